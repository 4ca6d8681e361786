"""Edits of a project's document stale exactly what was counted under what they change, and forget nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.passes.audit import AUDIT, REQUEST
from statlib.statistics.documents import DELTA, LEASE, MEMBER, OUTBOX, TrackingMode
from statlib.statistics.edits import edit
from statlib.statistics.modes import set_tracking_mode
from statlib.statistics.publication import publish
from statlib.statistics.reader import ALL
from statlib.statistics.reasons import OperateReason, SaveReason, ServeReason
from tests.domain import FAMILIES, LIBRARIES, LIBRARY, LOANS, SHELVES, VISITS, Library, library, served_library
from tests.editing import Set, assert_right, edit_library
from tests.reviews import action, host_of


@pytest.fixture
def served(emptied: Settings) -> Iterator[Library]:
    with served_library(emptied) as opened:
        yield opened


def reason(of: Library, family: str, scope: Any = ALL) -> ServeReason | None:
    return of.read((family, scope)).reason


def moved(of: Library, before: dict[str, Any]) -> tuple[int, int, int]:
    """How far the source, projection and client clocks went."""
    after = of.control()
    names = ("SourceInvalidationRevision", "CommittedProjectionRevision", "ClientInvalidationRevision")
    source, projection, client = (after[name] - before[name] for name in names)
    return source, projection, client


def context(of: Library) -> dict[str, Any]:
    found = of.mongo.collection(LIBRARIES).find_one({"_id": of.project})
    assert found is not None
    return found


def test_parameters_of_every_scope_stale_the_families_whole(served: Library) -> None:
    before, guards = served.control(), {family: served.guard(family) for family in FAMILIES}
    edited = edit_library(served, Entitled=11)
    assert (edited.changed, edited.families, edited.scopes) == (True, tuple(sorted(FAMILIES)), ())
    assert moved(served, before) == (1, 0, 1)
    for family in FAMILIES:
        assert served.guard(family)["State"] == "Stale"
        assert served.guard(family)["FamilyWriteEpoch"] == guards[family]["FamilyWriteEpoch"] + 1
        slot = served.mongo.collection(OUTBOX).find_one({"_id.Family": family})
        assert slot is not None
        assert slot["ClientInvalidationRevision"] == served.control()["ClientInvalidationRevision"]
    assert (context(served)["Entitled"], context(served)["Audit"]["Version"]) == (11, 1)
    assert_right(served, served=False)
    served.backfill_all()
    assert_right(served, served=True)


def test_a_scope_that_appears_is_no_business_of_its_siblings(served: Library) -> None:
    before, rows = served.control(), served.all_rows()
    edited = edit_library(served, Visitors=["ann", "bob", "cy"])
    assert (edited.families, edited.scopes) == ((), ((VISITS, "visitor/cy"),))
    assert served.all_rows() == rows
    assert moved(served, before) == (1, 1, 1), "a revision, and so an entry, also where the scope had no row"
    assert served.mongo.collection(DELTA).count_documents({"Kind": "Invalidation"}) == 1
    assert reason(served, VISITS, "visitor/ann") is None
    assert reason(served, VISITS) is ServeReason.RowMissing
    served.lend(served.books[0], "cy")
    assert reason(served, VISITS) is ServeReason.RowNotFresh, "nobody starts a scope from zero"
    assert_right(served)
    served.backfill(VISITS)
    assert_right(served, served=True)


def test_one_who_leaves_and_comes_back_is_counted_anew(served: Library) -> None:
    served.lend(served.books[0], "ann")
    edit_library(served, Visitors=["bob"])
    assert_right(served, served=True)
    assert served.rows(VISITS)["visitor/ann"]["State"] == "Stale"
    assert served.rows(VISITS)["visitor/bob"]["State"] == "Fresh"
    served.lend(served.books[0], None)
    served.lend(served.books[1], "ann")
    served.lend(served.books[2], "ann")
    edit_library(served, Visitors=["ann", "bob"])
    assert reason(served, VISITS) is ServeReason.RowNotFresh
    assert_right(served)
    served.backfill(VISITS)
    assert_right(served, served=True)


@pytest.mark.parametrize(("field", "other"), [("Entitled", 11), ("Visitors", ["ann"]), ("Shelves", [0, 1])])
def test_parameters_that_return_bring_nothing_back(served: Library, field: str, other: Any) -> None:
    original = context(served)[field]
    edit_library(served, **{field: other})
    served.lend(served.books[2], "bob")
    edit_library(served, **{field: original})
    assert_right(served, served=False)
    served.backfill_all()
    assert_right(served, served=True)


def test_a_row_that_another_gate_keeps_back_is_staled_all_the_same(served: Library) -> None:
    """It is Fresh in its state, and the digest that it carries may come back."""
    served.set_row("visitor/ann", of=VISITS, ConfigurationDigest="of another time")
    edit_library(served, Visitors=["bob"])
    assert served.rows(VISITS)["visitor/ann"]["State"] == "Stale"


@pytest.mark.parametrize("state", ["Stale", "Rebuilding", "Missing"])
def test_under_a_guard_that_is_not_fresh_only_the_clocks_move(served: Library, state: str) -> None:
    served.set_guard(VISITS, State=state)
    before, rows, guard = served.control(), served.all_rows(), served.guard(VISITS)
    edit_library(served, Visitors=["bob"])
    assert moved(served, before) == (1, 0, 1)
    assert served.all_rows() == rows
    assert served.guard(VISITS) == guard


def test_an_edit_that_no_counter_depends_on_stales_nothing_and_overtakes_a_rebuild(served: Library) -> None:
    before, rows = served.control(), served.all_rows()
    edited = edit_library(served, Name="central")
    assert (edited.changed, edited.families, edited.scopes) == (True, (), ())
    assert moved(served, before) == (1, 0, 1)
    assert served.all_rows() == rows
    assert_right(served, served=True)


def test_an_edit_that_changes_nothing_leaves_its_audit_alone(served: Library) -> None:
    asked = action("edit")
    before = served.statistics(without=(AUDIT, REQUEST, LEASE, MEMBER))
    edited = edit_library(served, asked, Entitled=10)
    assert (edited.changed, edited.revision) == (False, 0)
    assert served.statistics(without=(AUDIT, REQUEST, LEASE, MEMBER)) == before
    kept = served.mongo.collection(REQUEST).find_one({"_id": asked.key})
    assert kept is not None
    assert kept["Outcome"] == edited.as_wire()


def test_an_edit_and_its_audit_commit_together_or_not_at_all(served: Library) -> None:
    asked = action("edit")
    edit_library(served, asked, Entitled=11)
    before = served.statistics()
    with pytest.raises(Exception, match="duplicate key"):
        edit_library(served, asked, Entitled=12)
    assert served.statistics() == before


def test_a_project_without_statistics_takes_the_edit_alone(emptied: Settings) -> None:
    with library(emptied, under_statistics=False) as plain:
        edited = edit_library(plain, Entitled=11)
        assert (edited.changed, edited.families, edited.revision) == (True, (), 1)
        assert context(plain)["Entitled"] == 11
        assert plain.all_rows() == []


def test_a_closed_gate_does_not_excuse_an_edit_from_staling(served: Library) -> None:
    served.gate(enabled=False)
    edit_library(served, Entitled=11)
    assert {served.guard(family)["State"] for family in FAMILIES} == {"Stale"}


def test_a_host_that_excludes_the_project_cannot_edit_past_its_statistics(served: Library) -> None:
    excluded = served.mongo.settings.statistics.model_copy(update={"allowlist": frozenset()})
    before = served.statistics()
    with (
        host_of(served.mongo.settings.model_copy(update={"statistics": excluded})) as other,
        pytest.raises(Refusal) as refused,
    ):
        edit(other, LIBRARY, served.project, Set({"Entitled": 11}))
    assert refused.value.reason is SaveReason.GateSkew
    assert served.statistics() == before


@pytest.mark.parametrize("under_statistics", [True, False])
def test_a_project_that_is_not_there_is_not_found(emptied: Settings, *, under_statistics: bool) -> None:
    with library(emptied, under_statistics=under_statistics) as opened:
        if under_statistics:
            opened.mongo.collection(LIBRARIES).delete_one({"_id": opened.project})
        with pytest.raises(Refusal) as refused:
            edit(opened.host, LIBRARY, opened.project if under_statistics else uuid4(), Set({"Entitled": 11}))
        assert refused.value.reason is OperateReason.ProjectNotFound


def test_a_rebuild_that_counted_before_an_edit_publishes_nothing(
    served: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edit_first(*arguments: Any) -> None:
        edit_library(served, Visitors=["ann", "bob", "cy"])
        publish(*arguments)

    monkeypatch.setattr("statlib.statistics.rebuild.publish", edit_first)
    with pytest.raises(Refusal) as refused:
        served.rebuild(LOANS, force=True)
    assert refused.value.reason is OperateReason.PublicationRaceLost
    assert_right(served)


# --- the tracking mode -----------------------------------------------------------------------------------------------


def test_a_switch_of_the_tracking_mode_outdates_every_row_and_its_return_brings_none_back(served: Library) -> None:
    before = served.statistics(without=(AUDIT, REQUEST, LEASE, MEMBER))
    after = set_tracking_mode(served.mongo, TrackingMode.UNTRACKED, action())
    assert (after.reviewer_tracking_mode, after.reviewer_tracking_epoch) == (TrackingMode.UNTRACKED, 1)
    assert reason(served, SHELVES) is ServeReason.TrackingModeChanged
    served.lend(served.books[0])  # its move is dropped, row by row
    after = set_tracking_mode(served.mongo, TrackingMode.TRACKED, action())
    assert after.reviewer_tracking_epoch == 2
    assert reason(served, SHELVES) is ServeReason.TrackingModeChanged
    assert_right(served, served=False)
    served.backfill_all()
    assert_right(served, served=True)
    assert [one["_id"] for one in before["pmProjectStatisticsRow"]] != [one["_id"] for one in served.all_rows()]


def test_setting_the_tracking_mode_that_holds_changes_nothing_and_is_audited(served: Library) -> None:
    before = served.statistics(without=(AUDIT, REQUEST))
    audited = served.mongo.collection(AUDIT).count_documents({})
    set_tracking_mode(served.mongo, TrackingMode.TRACKED, action())
    assert served.statistics(without=(AUDIT, REQUEST)) == before
    assert served.mongo.collection(AUDIT).count_documents({}) == audited + 1
