"""Serving gates: each closed alone names itself, and of several the first in order speaks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from statlib.statistics.documents import GlobalControl, Member, Mode, ProjectControl, State, WriteEpochs
from statlib.statistics.gates import guard_gate, matches, project_gate, row_gate, scopes_gate, stamp_of
from statlib.statistics.reasons import ServeReason
from tests.unit.statistics.stored import FAMILY, PROJECT, SAME, STAMP, guard, row, served_row

VERSION = 4


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


def fleet(**changed: Any) -> GlobalControl:
    return GlobalControl(**{"mode": Mode.ENABLED, "catalogue_version": VERSION} | changed)


def control(**changed: Any) -> ProjectControl:
    return ProjectControl(**{"id": PROJECT, "mode": Mode.ENABLED, "catalogue_version": VERSION} | changed)


def asked(**changed: Any) -> ServeReason | None:
    given: dict[str, Any] = {
        "fleet": fleet(),
        "control": control(),
        "included": True,
        "members": [member()],
        "project": PROJECT,
        "families": [FAMILY],
        "served_families": frozenset({FAMILY}),
        "catalogue_version": VERSION,
    }
    given |= changed
    return project_gate(given.pop("fleet"), given.pop("control"), **given)


CLOSED_ALONE: list[tuple[dict[str, Any], ServeReason]] = [
    ({"control": control(inclusion_recalculation_token="t")}, ServeReason.SourceVisibilityFenced),
    ({"control": control(definition_rewrite_token="t")}, ServeReason.SourceVisibilityFenced),
    ({"fleet": fleet(mode=Mode.DISABLED)}, ServeReason.FleetDisabled),
    ({"control": control(mode=Mode.DISABLED)}, ServeReason.ProjectDisabled),
    ({"control": None}, ServeReason.ProjectDisabled),
    ({"included": False}, ServeReason.NotAllowlisted),
    ({"members": [member(), member(allowlist=[])]}, ServeReason.AllowlistInconsistent),
    ({"members": [member(writes=False)]}, ServeReason.AllowlistInconsistent),
    ({"members": [member(families=[])]}, ServeReason.AllowlistInconsistent),
    ({"control": control(catalogue_version=VERSION + 1)}, ServeReason.VersionIncompatible),
    ({"control": control(storage_version=99)}, ServeReason.VersionIncompatible),
    ({"control": control(source_version=99)}, ServeReason.VersionIncompatible),
    ({"fleet": fleet(catalogue_version=VERSION - 1)}, ServeReason.VersionIncompatible),
    ({"fleet": fleet(storage_version=99)}, ServeReason.VersionIncompatible),
    ({"fleet": fleet(source_version=99)}, ServeReason.VersionIncompatible),
    ({"catalogue_version": VERSION + 1}, ServeReason.VersionIncompatible),
    ({"served_families": frozenset()}, ServeReason.FamilyDisabled),
]


def test_open_gates_say_nothing() -> None:
    assert asked() is None


@pytest.mark.parametrize(("closed", "reason"), CLOSED_ALONE, ids=lambda value: getattr(value, "name", None))
def test_each_gate_closed_alone_names_itself(closed: dict[str, Any], reason: ServeReason) -> None:
    assert asked(**closed) is reason


def test_of_two_closed_gates_the_first_in_order_speaks() -> None:
    in_order: list[tuple[dict[str, Any], ServeReason]] = [
        ({"inclusion_recalculation_token": "t"}, ServeReason.SourceVisibilityFenced),
        ({"fleet": fleet(mode=Mode.DISABLED, catalogue_version=VERSION)}, ServeReason.FleetDisabled),
        ({"mode": Mode.DISABLED}, ServeReason.ProjectDisabled),
        ({"included": False}, ServeReason.NotAllowlisted),
        ({"members": [member(allowlist=[UUID(int=9)])]}, ServeReason.AllowlistInconsistent),
        ({"catalogue_version": VERSION + 1}, ServeReason.VersionIncompatible),
        ({"served_families": frozenset()}, ServeReason.FamilyDisabled),
    ]
    for (first, reason), (second, _) in pairwise(in_order):
        both = first | second
        stored = {name: both.pop(name) for name in ("inclusion_recalculation_token", "mode") if name in both}
        assert asked(control=control(**stored), **both) is reason


def test_a_family_that_only_this_host_leaves_out_is_no_disagreement() -> None:
    assert asked(members=[member(families=[])], served_families=frozenset()) is ServeReason.FamilyDisabled


def test_versions_match_only_if_the_fleet_the_project_and_this_release_agree() -> None:
    assert matches(fleet(), control(), VERSION)
    assert not matches(fleet(), control(), VERSION + 1)


@pytest.mark.parametrize("state", [State.MISSING, State.STALE, State.REBUILDING])
def test_a_guard_that_is_not_fresh_closes_its_family(state: State) -> None:
    assert guard_gate(guard(state)) is ServeReason.GuardNotFresh


def test_a_family_without_a_guard_is_closed() -> None:
    assert guard_gate(None) is ServeReason.GuardNotFresh


def test_a_fence_closes_its_family() -> None:
    assert guard_gate(guard(active_fence_count=1)) is ServeReason.FenceActive


ROW_CLOSED_ALONE: list[tuple[dict[str, Any], ServeReason]] = [
    ({"state": State.STALE}, ServeReason.RowNotFresh),
    ({"state": State.REBUILDING}, ServeReason.RowNotFresh),
    ({"write_epochs": WriteEpochs(fleet=1, project=2, family=5, tracking=9)}, ServeReason.TrackingModeChanged),
    ({"write_epochs": WriteEpochs(fleet=9, project=2, family=5, tracking=3)}, ServeReason.RowEpochOutdated),
    ({"write_epochs": WriteEpochs(fleet=1, project=9, family=5, tracking=3)}, ServeReason.RowEpochOutdated),
    ({"write_epochs": WriteEpochs(fleet=1, project=2, family=9, tracking=3)}, ServeReason.RowEpochOutdated),
    ({"source_version": 9}, ServeReason.RowVersionIncompatible),
    ({"catalogue_version": 9}, ServeReason.RowVersionIncompatible),
    ({"configuration_digest": "another"}, ServeReason.ConfigurationChanged),
]


def test_a_current_row_is_served() -> None:
    assert row_gate(row(), guard(), STAMP) is None


@pytest.mark.parametrize(("changed", "reason"), ROW_CLOSED_ALONE, ids=lambda value: getattr(value, "name", None))
def test_each_thing_that_outdates_a_row_names_itself(changed: dict[str, Any], reason: ServeReason) -> None:
    assert row_gate(row(**changed), guard(), STAMP) is reason


def test_a_scope_without_a_row_is_closed() -> None:
    assert row_gate(None, guard(), STAMP) is ServeReason.RowMissing


def test_of_several_things_wrong_with_a_row_the_first_in_order_speaks() -> None:
    wrong: dict[str, Any] = {}
    in_order: list[tuple[dict[str, Any], ServeReason]] = [
        ({"state": State.STALE}, ServeReason.RowNotFresh),
        ({"write_epochs": WriteEpochs(fleet=9, project=2, family=5, tracking=9)}, ServeReason.TrackingModeChanged),
        ({"write_epochs": WriteEpochs(fleet=9, project=2, family=5, tracking=3)}, ServeReason.RowEpochOutdated),
        ({"catalogue_version": 9}, ServeReason.RowVersionIncompatible),
        ({"configuration_digest": "another"}, ServeReason.ConfigurationChanged),
    ]
    for changed, reason in reversed(in_order):
        wrong |= changed
        assert row_gate(row(**wrong), guard(), STAMP) is reason


def test_one_failing_scope_closes_the_whole_bundle() -> None:
    rows = {(FAMILY, "a"): row("a"), (FAMILY, "b"): row("b", state=State.STALE)}
    assert scopes_gate({FAMILY: guard()}, rows, {FAMILY: ["a"]}, STAMP) is None
    assert scopes_gate({FAMILY: guard()}, rows, {FAMILY: ["a", "b"]}, STAMP) is ServeReason.RowNotFresh
    assert scopes_gate({FAMILY: guard()}, rows, {FAMILY: ["a", "c"]}, STAMP) is ServeReason.RowMissing


def test_rows_that_share_a_standing_are_each_asked_for_their_own_configuration() -> None:
    class OwnOfB:
        def digest(self, family: str, scope: str) -> str:
            return "another" if scope == "b" else "digest"

    shared = served_row("a")
    rows = {(FAMILY, scope): replace(shared, scope=scope) for scope in "abc"}
    assert scopes_gate({FAMILY: guard()}, rows, {FAMILY: ["a", "b", "c"]}, STAMP) is None
    stamp = replace(STAMP, configuration=OwnOfB())
    assert scopes_gate({FAMILY: guard()}, rows, {FAMILY: ["a", "c"]}, stamp) is None
    assert scopes_gate({FAMILY: guard()}, rows, {FAMILY: ["a", "b", "c"]}, stamp) is ServeReason.ConfigurationChanged


def test_a_standing_that_passes_under_one_guard_is_judged_again_under_the_next() -> None:
    shared = served_row("a")
    rows = {(FAMILY, "a"): shared, ("Next", "a"): replace(shared, family="Next")}
    guards = {FAMILY: guard(), "Next": guard(family_write_epoch=6)}
    assert scopes_gate(guards, rows, {FAMILY: ["a"], "Next": ["a"]}, STAMP) is ServeReason.RowEpochOutdated


@pytest.mark.parametrize("outdated", ["a", "b", "c"])
def test_an_outdated_row_between_current_ones_closes_the_bundle(outdated: str) -> None:
    current, stale = served_row("a"), served_row("a", state=State.STALE)
    rows = {(FAMILY, scope): replace(stale if scope == outdated else current, scope=scope) for scope in "abc"}
    assert scopes_gate({FAMILY: guard()}, rows, {FAMILY: ["a", "b", "c"]}, STAMP) is ServeReason.RowNotFresh


def test_a_stamp_counts_openings_and_switches() -> None:
    stamp = stamp_of(
        fleet(mode_epoch=1, reviewer_tracking_epoch=3),
        control(opening_count=2),
        catalogue_version=4,
        configuration=SAME,
    )
    assert stamp == STAMP
    assert stamp.epochs(5) == row().write_epochs
