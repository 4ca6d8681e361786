"""One save at a time: which commands it sends and which documents it leaves, in either arm and before any guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.review.documents import PROJECTS, STUDIES
from statlib.review.namespaces import SCREENING_NAMESPACE
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics.arms import Arm
from statlib.statistics.bounds import DELTA_LEDGER_ROWS_MAX
from statlib.statistics.counters import from_stored, to_stored, without_zeros
from statlib.statistics.documents import CONTROL, GUARD, OUTBOX, ROW, Mode
from statlib.statistics.outcomes import Saved
from statlib.statistics.reader import Source
from statlib.statistics.reasons import OperateReason, SaveReason, ServeReason
from tests.reviews import FAMILY, Review, host_of, review, settings_for

ANNA, BEN = UUID(int=0xA), UUID(int=0xB)
CLOCKS = ("SourceInvalidationRevision", "CommittedProjectionRevision", "ClientInvalidationRevision")


@pytest.fixture
def reviews(settings: Settings) -> Iterator[Callable[..., Review]]:
    """Opens reviews on the test's database, each with hosts that end with the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(review(settings, **options))


@pytest.fixture
def fresh(reviews: Callable[..., Review]) -> Review:
    """A review whose statistics are published and served."""
    opened = reviews()
    opened.backfill()
    return opened


def clocks(of: Review) -> tuple[int, ...]:
    control = of.control()
    return tuple(control[name] for name in CLOCKS)


def outbox(of: Review) -> list[dict[str, Any]]:
    """Slots of the family that these tests move; others that a decision touches have theirs too."""
    return list(of.mongo.collection(OUTBOX).find({"_id.ProjectId": of.project, "_id.Family": FAMILY}))


def served(of: Review) -> dict[str, int]:
    bundle = of.read()
    assert bundle.source is Source.MATERIALISED, bundle.reason
    return dict(bundle.counters(FAMILY))


def row_values(of: Review) -> dict[str, int]:
    return without_zeros(from_stored(of.row()["Counters"]))


def decide(of: Review, decision: Decision = Decision.INCLUDE, who: UUID = ANNA, study: int = 0) -> Saved:
    return of.writer.submit(of.studies[study], who, decision)


# --- commands


def test_a_source_only_save_is_two_commands_opening_included(reviews: Callable[..., Review]) -> None:
    plain = reviews(under_statistics=False)
    with counting(plain.mongo.client) as count:
        saved = decide(plain)
    assert saved.arm is Arm.SOURCE_ONLY
    assert count.names == ("aggregate", "findAndModify")


def test_a_transactional_save_of_one_family_is_eleven_commands(fresh: Review) -> None:
    with counting(fresh.mongo.client) as count:
        saved = decide(fresh)
    assert saved.arm is Arm.TRANSACTIONAL
    assert count.names == (
        "aggregate",  # open
        "aggregate",  # the project's state
        "find",  # rows
        "update",  # control
        "update",  # guard
        "update",  # row
        "insert",  # ledger
        "update",  # outbox
        "update",  # study
        "insert",  # receipt
        "commitTransaction",
    )


def test_a_save_that_changes_nothing_writes_study_and_receipt_only(fresh: Review) -> None:
    decide(fresh)
    with counting(fresh.mongo.client) as count:
        decide(fresh)
    assert count.names == ("aggregate", "aggregate", "update", "insert", "commitTransaction")


# --- documents: a served family


@pytest.mark.parametrize(
    "history",
    [
        [Decision.INCLUDE],
        [Decision.INCLUDE, Decision.EXCLUDE],
        [Decision.INCLUDE, Decision.RETRACT],
        [Decision.EXCLUDE, Decision.RETRACT, Decision.INCLUDE],
    ],
    ids=["first", "correction", "retraction", "again-after-retraction"],
)
def test_a_decision_moves_the_row_and_leaves_one_receipt_one_ledger_entry_and_all_clocks(
    fresh: Review, history: list[Decision]
) -> None:
    decide(fresh, who=BEN)
    for decision in history[:-1]:
        decide(fresh, decision)
    before = fresh.snapshot_of_statistics()
    clocks_before, guard_before, receipts, deltas = clocks(fresh), fresh.guard(), fresh.receipts(), fresh.deltas()
    version = fresh.study(fresh.studies[0])["Audit"]["Version"]

    saved = decide(fresh, history[-1])

    assert saved.leaves_receipt
    assert not saved.duplicate
    assert saved.revision_after == version + 1 == fresh.study(fresh.studies[0])["Audit"]["Version"]
    assert served(fresh) == fresh.truth() == row_values(fresh)
    assert clocks(fresh) == tuple(value + 1 for value in clocks_before)

    [receipt] = [r for r in fresh.receipts() if r not in receipts]
    stream = f"screening:{fresh.studies[0]}:{ANNA}"
    assert receipt["OperationNamespace"] == SCREENING_NAMESPACE
    assert receipt["OperationId"] == saved.operation_id == f"{stream}:{version}"
    assert receipt["ExpectedSourceRevision"] == receipt["CommittedSourceBeforeRevision"] == version
    assert receipt["CommittedSourceAfterRevision"] == version + 1
    assert receipt["SourceAggregateId"] == fresh.studies[0]
    assert receipt["HasTrustedSourceIdentity"] is True
    assert receipt["IsPinned"] is False
    assert receipt["ObservedAtUtc"] >= receipt["CreatedAtUtc"]

    [delta] = [d for d in fresh.deltas() if d not in deltas]
    revision = fresh.control()["CommittedProjectionRevision"]
    assert (delta["Revision"], delta["Record"], delta["Kind"]) == (revision, 0, "Operation")
    assert delta["OperationId"] == saved.operation_id
    [move] = delta["Moves"]
    old = next(r for r in before[ROW] if r["_id"] == fresh.row()["_id"])
    moved = {
        key: value - from_stored(old["Counters"]).get(key, 0)
        for key, value in from_stored(fresh.row()["Counters"]).items()
    }
    assert from_stored(move["Counters"]) == without_zeros(moved)

    assert fresh.row()["LastChangedRevision"] == revision
    assert fresh.guard()["Version"] == guard_before["Version"] + 1
    assert fresh.guard()["FamilyWriteEpoch"] == guard_before["FamilyWriteEpoch"]
    [slot] = outbox(fresh)
    assert slot["ClientInvalidationRevision"] == fresh.control()["ClientInvalidationRevision"]


def test_a_decision_that_changes_nothing_leaves_a_receipt_and_nothing_else_of_statistics(fresh: Review) -> None:
    decide(fresh)
    before, receipts = fresh.snapshot_of_statistics(), len(fresh.receipts())
    saved = decide(fresh)
    after = fresh.snapshot_of_statistics()
    assert saved.leaves_receipt
    assert len(fresh.receipts()) == receipts + 1
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"pmProjectStatisticsReceipt", STUDIES}
    assert served(fresh) == fresh.truth()


def test_a_source_only_save_leaves_nothing_but_the_study(reviews: Callable[..., Review]) -> None:
    plain = reviews(under_statistics=False)
    before = plain.snapshot_of_statistics()
    saved = decide(plain)
    after = plain.snapshot_of_statistics()
    assert not saved.leaves_receipt
    assert {name for name in after if after[name] != before[name]} == {STUDIES}
    assert plain.decisions(plain.studies[0]) == {ANNA: True}


# --- documents: a family that is not served


def test_without_a_guard_a_save_leaves_receipt_clocks_and_outbox_only(reviews: Callable[..., Review]) -> None:
    bare = reviews()
    assert bare.mongo.collection(GUARD).count_documents({}) == 0
    decide(bare)
    assert clocks(bare) == (1, 0, 1)
    assert len(bare.receipts()) == 1
    assert [slot["ClientInvalidationRevision"] for slot in outbox(bare)] == [1]
    for collection in (GUARD, ROW):
        assert bare.mongo.collection(collection).count_documents({}) == 0
    assert bare.deltas() == []


@pytest.mark.parametrize("state", ["Stale", "Rebuilding"])
def test_under_a_guard_that_is_not_fresh_a_save_leaves_receipt_clocks_and_outbox_only(
    fresh: Review, state: str
) -> None:
    fresh.mongo.collection(GUARD).update_one({}, {"$set": {"State": state}})
    row, guard, deltas, before = fresh.row(), fresh.guard(), fresh.deltas(), clocks(fresh)
    decide(fresh)
    assert (fresh.row(), fresh.guard(), fresh.deltas()) == (row, guard, deltas)
    assert clocks(fresh) == (before[0] + 1, before[1], before[2] + 1)
    assert len(fresh.receipts()) == 1
    assert [s["ClientInvalidationRevision"] for s in outbox(fresh)] == [before[2] + 1]


def test_a_missing_row_gets_a_placeholder_that_is_never_served_nor_moved(fresh: Review) -> None:
    fresh.mongo.collection(ROW).delete_many({})
    before = clocks(fresh)
    decide(fresh)
    placeholder = fresh.row()
    assert placeholder["State"] == "Stale"
    assert placeholder["LastFailureReason"] == "MissingBaseline"
    assert placeholder["Counters"] == []
    assert placeholder["Generation"] == fresh.guard()["VisibleGeneration"]
    assert placeholder["Token"] == fresh.guard()["VisibleToken"]
    assert clocks(fresh) == tuple(value + 1 for value in before)
    bundle = fresh.read()
    assert (bundle.source, bundle.reason) == (Source.AUTHORITATIVE, ServeReason.RowNotFresh)
    assert bundle.counters(FAMILY) == fresh.truth()

    decide(fresh, who=BEN)
    assert fresh.row() == placeholder
    fresh.backfill()
    assert served(fresh) == fresh.truth()


def test_a_move_onto_a_row_that_is_not_fresh_is_dropped_for_that_row_alone(fresh: Review) -> None:
    """The guard stays Fresh, so the rows of its other scopes would go on being served."""
    fresh.mongo.collection(ROW).update_one({}, {"$set": {"State": "Stale"}})
    row, guard, deltas, before = fresh.row(), fresh.guard(), fresh.deltas(), clocks(fresh)
    decide(fresh)
    assert (fresh.row(), fresh.deltas()) == (row, deltas)
    assert fresh.guard() == guard
    assert clocks(fresh) == (before[0] + 1, before[1], before[2] + 1)
    fresh.backfill()
    assert served(fresh) == fresh.truth()


# --- what stales the family, and never refuses the save


def _close_gate(of: Review) -> None:
    of.gate(enabled=False)


def _close_fleet(of: Review) -> None:
    of.fleet(Mode.DISABLED)


def _fence(of: Review) -> None:
    of.mongo.collection(GUARD).update_one({}, {"$inc": {"ActiveFenceCount": 1}})


def _hide_source(of: Review) -> None:
    of.mongo.collection(CONTROL).update_one({}, {"$set": {"InclusionRecalculationToken": "t"}})


def _rewrite_definitions(of: Review) -> None:
    of.mongo.collection(CONTROL).update_one({}, {"$set": {"DefinitionRewriteToken": "t"}})


def _fill_ledger(of: Review) -> None:
    floor = of.control()["CommittedProjectionRevision"] - DELTA_LEDGER_ROWS_MAX
    of.mongo.collection(CONTROL).update_one({}, {"$set": {"ReplayFloorRevision": floor}})


def _empty_counters(of: Review) -> None:
    of.mongo.collection(ROW).update_one({}, {"$set": {"Counters": to_stored({"Studies": 0})}})


def _another_release(of: Review) -> None:
    of.mongo.collection(CONTROL).update_one({}, {"$inc": {"CatalogueVersion": 1}})


@pytest.mark.parametrize(
    "obstacle",
    [
        _close_gate,
        _close_fleet,
        _fence,
        _hide_source,
        _rewrite_definitions,
        _fill_ledger,
        _empty_counters,
        _another_release,
    ],
    ids=lambda obstacle: obstacle.__name__.strip("_"),
)
def test_a_move_that_may_not_be_made_stales_the_family_and_the_save_succeeds(
    fresh: Review, obstacle: Callable[[Review], None]
) -> None:
    obstacle(fresh)
    row, guard, deltas, before = fresh.row(), fresh.guard(), fresh.deltas(), clocks(fresh)
    saved = decide(fresh)
    assert saved.arm is Arm.TRANSACTIONAL
    assert saved.leaves_receipt
    assert fresh.decisions(fresh.studies[0]) == {ANNA: True}
    assert len(fresh.receipts()) == 1
    after = fresh.guard()
    assert after["State"] == "Stale"
    assert after["FamilyWriteEpoch"] == guard["FamilyWriteEpoch"] + 1
    assert after["Version"] == guard["Version"] + 1
    assert (fresh.row(), fresh.deltas()) == (row, deltas)
    assert clocks(fresh) == (before[0] + 1, before[1], before[2] + 1)


def test_the_ledger_takes_its_last_entry_just_below_capacity(fresh: Review) -> None:
    floor = fresh.control()["CommittedProjectionRevision"] - DELTA_LEDGER_ROWS_MAX + 1
    fresh.mongo.collection(CONTROL).update_one({}, {"$set": {"ReplayFloorRevision": floor}})
    decide(fresh)
    assert served(fresh) == fresh.truth()
    decide(fresh, who=BEN)
    assert fresh.guard()["State"] == "Stale"


def test_a_host_that_does_not_move_the_family_stales_it(fresh: Review, settings: Settings) -> None:
    epoch = fresh.guard()["FamilyWriteEpoch"]
    with host_of(settings_for(settings, fresh.project, families=())) as other:
        saved = ScreeningWriter(other, fresh.project).submit(fresh.studies[0], ANNA, Decision.INCLUDE)
    assert saved.leaves_receipt
    assert fresh.guard()["State"] == "Stale"
    assert fresh.guard()["FamilyWriteEpoch"] == epoch + 1
    assert fresh.read().counters(FAMILY) == fresh.truth()


# --- unknown fields


def test_fields_that_this_release_does_not_know_survive_a_save(fresh: Review) -> None:
    decide(fresh)
    decide(fresh, who=BEN)
    unknown = {"$set": {"FromTheFuture": {"A": 1}}}
    nested = {
        "$set": {
            "FromTheFuture": {"A": 1},
            "Audit.Author": "x",
            "InclusionInfo.Why": "y",
            "Screenings.$[].Note": "seen",
        }
    }
    fresh.mongo.collection(STUDIES).update_one({"_id": fresh.studies[0]}, nested)
    fresh.mongo.collection(PROJECTS).update_one({"_id": fresh.project}, unknown)
    for collection in (CONTROL, ROW, GUARD):
        fresh.mongo.collection(collection).update_one({}, unknown)

    decide(fresh, Decision.EXCLUDE)

    assert served(fresh) == fresh.truth()
    study = fresh.study(fresh.studies[0])
    project = fresh.mongo.collection(PROJECTS).find_one({"_id": fresh.project})
    assert project is not None
    for document in (study, project, fresh.control(), fresh.row(), fresh.guard()):
        assert document["FromTheFuture"] == {"A": 1}
    assert study["Audit"]["Author"] == "x"
    assert study["InclusionInfo"] == {"Class": "Undecided", "Screened": 2, "Included": 1, "Why": "y"}
    assert [s["Note"] for s in study["Screenings"]] == ["seen", "seen"]


# --- refusals


def test_a_host_that_excludes_a_project_under_statistics_cannot_save_past_them(
    fresh: Review, settings: Settings
) -> None:
    before = fresh.snapshot_of_statistics()
    with host_of(settings) as ignorant, pytest.raises(Refusal) as refused:
        ScreeningWriter(ignorant, fresh.project).submit(fresh.studies[0], ANNA, Decision.INCLUDE)
    assert refused.value.reason is SaveReason.GateSkew
    assert fresh.snapshot_of_statistics() == before


def test_a_host_with_writes_off_cannot_save_past_statistics_either(fresh: Review, settings: Settings) -> None:
    with (
        host_of(settings_for(settings, fresh.project, writes=False)) as off,
        pytest.raises(Refusal) as refused,
    ):
        ScreeningWriter(off, fresh.project).submit(fresh.studies[0], ANNA, Decision.INCLUDE)
    assert refused.value.reason is SaveReason.GateSkew


def test_behind_a_closed_gate_a_host_that_excludes_the_project_saves_without_statistics(
    fresh: Review, settings: Settings
) -> None:
    fresh.gate(enabled=False)
    with host_of(settings) as ignorant:
        saved = ScreeningWriter(ignorant, fresh.project).submit(fresh.studies[0], ANNA, Decision.INCLUDE)
    assert saved.arm is Arm.SOURCE_ONLY
    assert fresh.receipts() == []
    fresh.gate(enabled=True)
    assert fresh.read().counters(FAMILY) == fresh.truth()


def test_a_host_that_has_ended_saves_nothing(fresh: Review, settings: Settings) -> None:
    with host_of(settings_for(settings, fresh.project)) as gone:
        writer = ScreeningWriter(gone, fresh.project)
        envelope = writer.open(fresh.studies[0], ANNA)
    for late in (lambda: writer.open(fresh.studies[0], ANNA), lambda: writer.save(envelope, Decision.INCLUDE)):
        with pytest.raises(Refusal) as refused:
            late()
        assert refused.value.reason is SaveReason.HostNotRegistered
    assert fresh.decisions(fresh.studies[0]) == {}


def test_a_study_of_another_project_is_not_found(fresh: Review, reviews: Callable[..., Review]) -> None:
    other = reviews()
    for study in (uuid4(), other.studies[0]):
        with pytest.raises(Refusal) as refused:
            fresh.writer.submit(study, ANNA, Decision.INCLUDE)
        assert refused.value.reason is SaveReason.SourceNotFound
    assert other.decisions(other.studies[0]) == {}


def test_a_study_without_its_project_is_refused(fresh: Review) -> None:
    fresh.mongo.collection(PROJECTS).delete_one({"_id": fresh.project})
    with pytest.raises(Refusal) as refused:
        decide(fresh)
    assert refused.value.reason is OperateReason.ProjectNotFound
