"""What one change makes of a family: moved, staled, a placeholder, or left alone; never a refused save."""

from __future__ import annotations

from typing import Any

import pytest

from statlib.statistics import moves
from statlib.statistics.catalogue import Effect
from statlib.statistics.documents import State, WriteEpochs
from statlib.statistics.moves import NOTHING, FamilyMoves, StaleCause, plan
from tests.unit.statistics.stored import STAMP, guard, row

MOVE = Effect(moves={"project": {"n": 1, "m": 2}})
NOT_SERVED: list[dict[str, Any]] = [
    {"state": State.STALE},
    {"state": State.REBUILDING},
    {"write_epochs": WriteEpochs(fleet=0, project=2, family=5, tracking=3)},
    {"write_epochs": WriteEpochs(fleet=1, project=1, family=5, tracking=3)},
    {"write_epochs": WriteEpochs(fleet=1, project=2, family=4, tracking=3)},
    {"write_epochs": WriteEpochs(fleet=1, project=2, family=5, tracking=2)},
    {"catalogue_version": 3},
    {"source_version": 99},
    {"configuration_digest": "another"},
]


def test_a_current_row_is_moved() -> None:
    planned = plan(MOVE, guard(), {"project": row(counters={"n": 1})}, STAMP, None)
    assert planned == FamilyMoves(new_counters={"project": {"n": 2, "m": 2}})
    assert planned.writes_rows


@pytest.mark.parametrize("state", [State.MISSING, State.STALE, State.REBUILDING])
def test_under_a_guard_that_is_not_fresh_nothing_is_written(state: State) -> None:
    assert plan(MOVE, guard(state), {"project": row()}, STAMP, None) is NOTHING
    assert plan(MOVE, guard(state, active_fence_count=1), {"project": row()}, STAMP, StaleCause.FENCED) is NOTHING


def test_without_a_guard_nothing_is_written() -> None:
    assert plan(MOVE, None, {}, STAMP, None) is NOTHING


def test_a_change_without_effect_writes_nothing_not_even_behind_a_closed_gate() -> None:
    assert plan(Effect(), guard(active_fence_count=1), {"project": row()}, STAMP, StaleCause.GATE_CLOSED) is NOTHING


@pytest.mark.parametrize("changed", NOT_SERVED, ids=str)
def test_a_row_that_is_not_served_is_evaluated_before_it_would_be_moved_and_left_alone(changed: dict[str, Any]) -> None:
    rows = {"project": row(**changed), "other": row("other", {"n": 4})}
    effect = Effect(moves={"project": {"n": 1}, "other": {"n": 1}})
    assert plan(effect, guard(), rows, STAMP, None) == FamilyMoves(new_counters={"other": {"n": 5}})


def test_a_scope_without_a_row_gets_a_placeholder_and_its_siblings_move() -> None:
    effect = Effect(moves={"project": {"n": 1}, "joining": {"n": 1}})
    planned = plan(effect, guard(), {"project": row(counters={"n": 1})}, STAMP, None)
    assert planned == FamilyMoves(new_counters={"project": {"n": 2}}, placeholders=("joining",))


def test_a_fence_stales_the_family_whatever_else_blocks_it() -> None:
    planned = plan(MOVE, guard(active_fence_count=2), {"project": row()}, STAMP, StaleCause.LEDGER_CAPACITY)
    assert planned == FamilyMoves(stale_family=StaleCause.FENCED)
    assert not planned.writes_rows


@pytest.mark.parametrize("blocked", list(StaleCause))
def test_what_may_not_move_stales_the_family(blocked: StaleCause) -> None:
    assert plan(MOVE, guard(), {"project": row()}, STAMP, blocked) == FamilyMoves(stale_family=blocked)


def test_an_invalidated_family_is_staled() -> None:
    assert plan(Effect(stale_family=True), guard(), {}, STAMP, None).stale_family is StaleCause.INVALIDATED


def test_a_counter_that_would_fall_below_zero_stales_the_family() -> None:
    effect = Effect(moves={"project": {"n": -2}, "other": {"n": 1}})
    rows = {"project": row(counters={"n": 1}), "other": row("other")}
    assert plan(effect, guard(), rows, STAMP, None) == FamilyMoves(stale_family=StaleCause.NEGATIVE_COUNTER)


def test_a_counter_may_fall_to_zero() -> None:
    planned = plan(Effect(moves={"project": {"n": -1}}), guard(), {"project": row(counters={"n": 1})}, STAMP, None)
    assert planned.new_counters == {"project": {"n": 0}}


@pytest.mark.parametrize(("keys", "cause"), [(3, None), (4, StaleCause.KEY_CAPACITY)])
def test_a_row_holds_its_keys_up_to_the_cap(
    monkeypatch: pytest.MonkeyPatch, keys: int, cause: StaleCause | None
) -> None:
    monkeypatch.setattr(moves, "COUNTER_KEYS_MAX", 3)
    effect = Effect(moves={"project": {f"k{n}": 1 for n in range(keys - 1)}})
    assert plan(effect, guard(), {"project": row(counters={"n": 1})}, STAMP, None).stale_family is cause


@pytest.mark.req("WORKER-48")
@pytest.mark.parametrize("letter", ["k", "é", "猫", "🐈"])
def test_a_row_holds_the_bytes_of_its_keys_up_to_the_cap(monkeypatch: pytest.MonkeyPatch, letter: str) -> None:
    added, length = Effect(moves={"project": {letter * 30: 1}}), 30 * len(letter.encode())
    for bytes_max, cause in ((length + 2 * 40 + 1, None), (length + 2 * 40, StaleCause.KEY_CAPACITY)):
        monkeypatch.setattr(moves, "COUNTER_BYTES_MAX", bytes_max)
        assert plan(added, guard(), {"project": row(counters={"n": 1})}, STAMP, None).stale_family is cause


@pytest.mark.req("WORKER-49")
def test_where_something_pending_will_raise_it_a_stored_counter_may_fall_below_zero() -> None:
    lowered, rows = Effect(moves={"project": {"n": -2}}), {"project": row(counters={"n": 1})}
    assert plan(lowered, guard(), rows, STAMP, None).stale_family is StaleCause.NEGATIVE_COUNTER
    assert plan(lowered, guard(), rows, STAMP, None, signed=True).new_counters == {"project": {"n": -1}}


def test_only_a_served_row_needs_staling() -> None:
    effect = Effect(stale_scopes=frozenset({"b", "a", "gone", "old"}))
    rows = {"a": row("a"), "b": row("b"), "old": row("old", state=State.STALE)}
    planned = plan(effect, guard(), rows, STAMP, None)
    assert planned == FamilyMoves(stale_scopes=("a", "b"))
    assert planned.writes_rows


def test_a_staled_scope_is_not_moved_as_well() -> None:
    effect = Effect(moves={"a": {"n": 1}, "b": {"n": 1}}, stale_scopes=frozenset({"a"}))
    planned = plan(effect, guard(), {"a": row("a"), "b": row("b", {"n": 1})}, STAMP, None)
    assert planned == FamilyMoves(new_counters={"b": {"n": 2}}, stale_scopes=("a",))
