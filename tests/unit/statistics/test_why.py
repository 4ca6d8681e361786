"""Why: every closed gate is named, whatever others are closed with it, and the first is the one that a read names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, cast

import pytest

from statlib.statistics.documents import GlobalControl, Member, Mode, ProjectControl, State, WriteEpochs
from statlib.statistics.gates import row_gate, scopes_gate
from statlib.statistics.overlay import OverlayRefusal
from statlib.statistics.reader import Moment
from statlib.statistics.reasons import ServeReason
from statlib.statistics.why import (
    GUARD_GATES,
    OVERLAY_GATES,
    PROJECT_GATES,
    ROW_GATES,
    SCOPES_NAMED_MAX,
    Asked,
    closed_project_gates,
    closed_row_gates,
    explain,
)
from tests.unit.statistics.stored import FAMILY, PROJECT, SAME, STAMP, guard, served_row

VERSION = STAMP.catalogue_version


def member(**changed: Any) -> Member:
    given: dict[str, Any] = {
        "id": "m",
        "deployment": "api",
        "host": "h",
        "pid": 1,
        "binary_version": "1",
        "allowlist": [PROJECT],
        "writes": True,
        "families": [FAMILY],
        "renewed_at_utc": datetime(2024, 1, 1, tzinfo=UTC),
    }
    return Member(**given | changed)


def asked_with(*closed: ServeReason, absent: bool = False) -> Asked:
    """A bundle whose gates are open but for those named."""
    shut = set(closed)
    fleet_mode = Mode.DISABLED if ServeReason.FleetDisabled in shut else Mode.ENABLED
    control = ProjectControl(
        id=PROJECT,
        mode=Mode.DISABLED if ServeReason.ProjectDisabled in shut else Mode.ENABLED,
        opening_count=STAMP.project,
        catalogue_version=VERSION + (ServeReason.VersionIncompatible in shut),
        definition_rewrite_token="t" if ServeReason.SourceVisibilityFenced in shut else None,
    )
    return Asked(
        project=PROJECT,
        fleet=GlobalControl(
            mode=fleet_mode, mode_epoch=STAMP.fleet, reviewer_tracking_epoch=STAMP.tracking, catalogue_version=VERSION
        ),
        control=None if absent else control,
        included=ServeReason.NotAllowlisted not in shut,
        members=(member(writes=ServeReason.AllowlistInconsistent not in shut),),
        families=(FAMILY,),
        served=frozenset() if ServeReason.FamilyDisabled in shut else frozenset({FAMILY}),
        catalogue_version=VERSION,
    )


def subsets(of: tuple[ServeReason, ...]) -> Iterator[tuple[ServeReason, ...]]:
    for size in range(len(of) + 1):
        yield from combinations(of, size)


def test_of_a_bundle_every_closed_gate_is_named_and_no_other() -> None:
    for closed in subsets(PROJECT_GATES):
        asked = asked_with(*closed)
        assert closed_project_gates(asked) == closed
        assert asked.gate() is (closed[0] if closed else None)


def test_a_project_without_a_control_lacks_its_opening_and_nothing_more() -> None:
    assert closed_project_gates(asked_with(absent=True)) == (ServeReason.ProjectDisabled,)


def test_hosts_that_leave_out_what_this_one_does_not_serve_yet_do_not_disagree_today() -> None:
    asked = asked_with(ServeReason.FamilyDisabled)
    others = Asked(**{name: getattr(asked, name) for name in Asked.__slots__} | {"members": (member(families=[]),)})
    assert closed_project_gates(others) == (ServeReason.FamilyDisabled,)


CLOSING: dict[ServeReason, dict[str, Any]] = {
    ServeReason.RowNotFresh: {"state": State.STALE},
    ServeReason.TrackingModeChanged: {"write_epochs": WriteEpochs(fleet=1, project=2, family=5, tracking=9)},
    ServeReason.RowEpochOutdated: {"write_epochs": WriteEpochs(fleet=1, project=2, family=4, tracking=3)},
    ServeReason.RowVersionIncompatible: {"catalogue_version": 1},
    ServeReason.ConfigurationChanged: {"configuration_digest": "other"},
}


def test_of_a_scope_every_closed_gate_is_named_and_no_other() -> None:
    for closed in subsets(tuple(CLOSING)):
        fields = {name: value for reason in closed for name, value in CLOSING[reason].items()}
        if {ServeReason.TrackingModeChanged, ServeReason.RowEpochOutdated} <= set(closed):
            fields["write_epochs"] = WriteEpochs(fleet=1, project=2, family=4, tracking=9)
        stored = served_row(**fields)
        assert closed_row_gates(stored, guard(), STAMP) == closed
        assert row_gate(stored, guard(), STAMP) is (closed[0] if closed else None)
    assert closed_row_gates(None, guard(), STAMP) == (ServeReason.RowMissing,)


def moment(asked: Asked, *, guards: dict[str, Any], rows: dict[str, Any]) -> Moment:
    return Moment(
        fleet=asked.fleet,
        control=asked.control,
        context=None,
        configuration=cast(Any, SAME),
        guards=guards,
        rows={(FAMILY, scope): stored for scope, stored in rows.items()},
        members=asked.members,
    )


def test_every_gate_is_listed_once_in_the_order_in_which_a_read_asks_it() -> None:
    asked = asked_with()
    gates = explain(asked, moment(asked, guards={FAMILY: guard()}, rows={"a": served_row("a")}), {FAMILY: ["a"]})
    in_order = [*PROJECT_GATES, *GUARD_GATES, *ROW_GATES, *OVERLAY_GATES]
    assert [gate.reason for gate in gates] == in_order
    assert set(in_order) == set(ServeReason)
    assert all(gate.passed for gate in gates)
    assert [gate.family for gate in gates] == [None] * len(PROJECT_GATES) + [FAMILY] * 9


def test_what_is_pending_closes_its_family_for_every_scope_and_says_by_what() -> None:
    asked = asked_with()
    at = moment(asked, guards={FAMILY: guard()}, rows={"a": served_row("a"), "b": served_row("b")})
    gates = explain(asked, at, {FAMILY: ["a", "b"]}, {FAMILY: OverlayRefusal.TOO_OLD})
    assert [(gate.reason, gate.closed, gate.detail) for gate in gates if not gate.passed] == [
        (ServeReason.PendingOverlayUnavailable, 2, OverlayRefusal.TOO_OLD)
    ]


@pytest.mark.parametrize(
    ("stored", "closed"),
    [
        (None, {ServeReason.GuardNotFresh}),
        (guard(State.STALE), {ServeReason.GuardNotFresh}),
        (guard(active_fence_count=1), {ServeReason.FenceActive}),
        (guard(State.STALE, active_fence_count=2), {ServeReason.GuardNotFresh, ServeReason.FenceActive}),
    ],
    ids=["missing", "stale", "fenced", "stale and fenced"],
)
def test_a_guard_closes_its_family_for_every_scope(stored: Any, closed: set[ServeReason]) -> None:
    asked = asked_with()
    guards = {FAMILY: stored} if stored else {}
    gates = explain(asked, moment(asked, guards=guards, rows={"a": served_row("a")}), {FAMILY: ["a", "b"]})
    assert {
        gate.reason: gate.closed for gate in gates if gate.reason in GUARD_GATES and not gate.passed
    } == dict.fromkeys(closed, 2)


def test_scopes_behind_a_closed_gate_are_all_counted_and_the_first_named() -> None:
    asked = asked_with()
    scopes = [f"stage/{number}" for number in range(SCOPES_NAMED_MAX + 5)]
    rows = {scope: served_row(scope, state=State.STALE) for scope in scopes[1:]}
    at = moment(asked, guards={FAMILY: guard()}, rows=rows)
    found = {gate.reason: gate for gate in explain(asked, at, {FAMILY: scopes})}
    assert found[ServeReason.RowMissing].scopes == (scopes[0],)
    stale = found[ServeReason.RowNotFresh]
    assert (stale.closed, stale.scopes) == (SCOPES_NAMED_MAX + 4, tuple(scopes[1 : SCOPES_NAMED_MAX + 1]))
    assert scopes_gate(at.guards, at.rows, {FAMILY: scopes}, STAMP) is ServeReason.RowMissing
