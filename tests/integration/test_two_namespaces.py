"""Decisions that move annotation statistics too: one write, one operation in each namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.annotation_writer import AnnotationWriter, SessionAct
from statlib.review.catalogue import REVIEW
from statlib.review.claims import ClaimWriter
from statlib.review.namespaces import ANNOTATION_FAMILIES, ANNOTATION_NAMESPACE, SCREENING_NAMESPACE
from statlib.review.reasons import ReviewReason
from statlib.review.reservation_writer import ReleaseCause, ReservationWriter
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics.arms import Arm
from statlib.statistics.documents import GUARD, ROW
from statlib.statistics.reasons import SaveReason
from tests.doings import ANNA, BEN, DOINGS, EXTRACTION, SCREENING, done_to, insert
from tests.exactness import unserved
from tests.reviews import Review, host_of, review, settings_for

CLEO = UUID(int=0xC)
CROSSING = DOINGS["decide and cross, from a place"]  # Ben has included; Anna and Ben hold places


@pytest.fixture
def opened(settings: Settings) -> Iterator[Review]:
    with done_to(settings, Arm.TRANSACTIONAL) as review_:
        yield review_


def decide(opened: Review, study: UUID, who: UUID, what: Decision = Decision.INCLUDE, **options: Any) -> int:
    """The number of the revision that it left."""
    return ScreeningWriter(opened.host, opened.project).submit(study, who, what, **options).revision_after


def operations(opened: Review, revision: int) -> dict[str, str]:
    """Operation ids of the receipts of the save that left the study at ``revision``, by namespace."""
    left = [r for r in opened.receipts() if r["CommittedSourceAfterRevision"] == revision]
    assert (
        len({(r["SourceDigest"], r["ExpectedSourceRevision"], r["CommittedSourceBeforeRevision"]) for r in left}) == 1
    )
    return {r["OperationNamespace"]: r["OperationId"] for r in left}


def entries(opened: Review) -> list[tuple[int, str, frozenset[str]]]:
    """Record, operation id and moved families of each ledger entry at the last revision."""
    last = opened.control()["CommittedProjectionRevision"]
    found = sorted((d for d in opened.deltas() if d["Revision"] == last), key=lambda d: int(d["Record"]))
    return [(d["Record"], d["OperationId"], frozenset(m["Family"] for m in d["Moves"])) for d in found]


def test_every_annotation_family_is_one_of_the_catalogue() -> None:
    assert set(REVIEW.families) > ANNOTATION_FAMILIES
    assert {family for family in REVIEW.families if "Annot" in family or "Reconc" in family} <= ANNOTATION_FAMILIES


@pytest.mark.req("SAVE-17")
def test_a_decision_that_crosses_from_a_place_leaves_a_receipt_and_a_ledger_entry_in_each_namespace(
    opened: Review,
) -> None:
    [study] = insert(opened, CROSSING)
    opened.backfill_all()
    clocks = opened.control()["CommittedProjectionRevision"]

    decide(opened, study, ANNA, stage=SCREENING.id)

    stored = opened.study(study)
    assert [r["InvestigatorId"] for r in stored["SlotReservations"]] == [BEN]
    [tally] = stored["Tallies"]
    assert (tally["StageId"], tally["Reservations"], tally["TotalAllocated"]) == (SCREENING.id, 1, 1)
    assert stored["InclusionInfo"]["Class"] == "Included"
    decision, inclusion = f"screening:{study}:{ANNA}:0", f"inclusion:{study}:-:{ANNA}:0"
    assert operations(opened, 1) == {SCREENING_NAMESPACE: decision, ANNOTATION_NAMESPACE: inclusion}
    (zero, own, screened), (one, further, annotated) = entries(opened)
    assert (zero, own, one, further) == (0, decision, 1, inclusion)
    assert screened == {"ProjectScreening", "MembershipScreening", "ReviewerScreening"}
    assert annotated == {"StageAnnotation", "MembershipStageAnnotation", "DomainReconciliation"}
    assert opened.control()["CommittedProjectionRevision"] == clocks + 1
    assert set(unserved(opened)) == {"ReviewerAnnotation"}


def test_a_decision_that_only_frees_a_place_is_a_release_in_the_other_namespace(opened: Review) -> None:
    [study] = insert(opened, CROSSING)
    opened.backfill_all()
    decide(opened, study, BEN, stage=SCREENING.id)  # as decided: only the place is new
    assert operations(opened, 1) == {
        SCREENING_NAMESPACE: f"screening:{study}:{BEN}:0",
        ANNOTATION_NAMESPACE: f"release:{study}:{SCREENING.id}:{BEN}:0",
    }
    [(record, operation, families)] = entries(opened)
    assert (record, operation) == (0, f"release:{study}:{SCREENING.id}:{BEN}:0")
    assert families <= ANNOTATION_FAMILIES
    assert set(unserved(opened)) == {"ReviewerAnnotation"}


@pytest.mark.parametrize("stage", [None, SCREENING.id], ids=["no stage", "a stage, and no place there"])
def test_a_decision_that_moves_nothing_of_annotation_is_one_operation(opened: Review, stage: UUID | None) -> None:
    [study] = insert(opened, DOINGS["claim"])  # two have included it
    decide(opened, study, CLEO, stage=stage)
    assert operations(opened, 1) == {SCREENING_NAMESPACE: f"screening:{study}:{CLEO}:0"}


def test_a_project_without_stages_has_no_annotation_operations(settings: Settings) -> None:
    with review(settings, studies=1, min_screenings=1) as plain:
        decide(plain, plain.studies[0], ANNA)
        assert plain.study(plain.studies[0])["InclusionInfo"]["Class"] == "Included"
        assert len(plain.receipts()) == 1


def test_two_decisions_opened_at_one_revision_may_both_cross(opened: Review) -> None:
    """Each has an operation of its own in either namespace, though both expected the same revision."""
    [study] = insert(opened, CROSSING)
    opened.backfill_all()
    writer = ScreeningWriter(opened.host, opened.project)
    opened_by = {who: writer.open(study, who) for who in (ANNA, BEN)}
    classes = []
    for who, what in ((ANNA, Decision.INCLUDE), (BEN, Decision.RETRACT)):
        writer.save(opened_by[who].as_redelivered(), what)
        classes.append(opened.study(study)["InclusionInfo"]["Class"])
    assert classes == ["Included", "Undecided"]
    for revision, who in ((1, ANNA), (2, BEN)):
        assert operations(opened, revision)[ANNOTATION_NAMESPACE] == f"inclusion:{study}:-:{who}:0"
    assert set(unserved(opened)) <= {"ReviewerAnnotation"}


def test_a_release_that_was_done_by_itself_since_asks_for_another_opening(opened: Review) -> None:
    """Disconnected, and back in the same place: the page that is still open cannot release it under the same id."""
    [study] = insert(opened, CROSSING)
    writer = ScreeningWriter(opened.host, opened.project)
    page = writer.open(study, ANNA, stage=SCREENING.id)
    ReservationWriter(opened.host, opened.project).release(study, ANNA, SCREENING.id, ReleaseCause.DISCONNECT)
    assert ClaimWriter(opened.host, opened.project).claim(study, ANNA, SCREENING.id, enforce_capacity=False) is not None
    before = opened.snapshot_of_statistics()
    with pytest.raises(Refusal) as refused:
        writer.save(page.as_redelivered(), Decision.EXCLUDE)
    assert refused.value.reason is SaveReason.VersionStale
    assert opened.snapshot_of_statistics() == before
    decide(opened, study, ANNA, Decision.EXCLUDE, stage=SCREENING.id)
    assert operations(opened, 3)[ANNOTATION_NAMESPACE] == f"release:{study}:{SCREENING.id}:{ANNA}:2"


def test_families_that_this_host_does_not_keep_are_staled_in_either_namespace(
    opened: Review, settings: Settings
) -> None:
    [study] = insert(opened, CROSSING)
    opened.backfill_all()
    with host_of(settings_for(settings, opened.project, families=("ProjectScreening",))) as other:
        ScreeningWriter(other, opened.project).submit(study, ANNA, Decision.INCLUDE, stage=SCREENING.id)
    assert [operation for _, operation, _ in entries(opened)] == [f"screening:{study}:{ANNA}:0"]
    assert len(opened.receipts()) == 2
    fresh = {g["_id"]["Family"] for g in opened.mongo.collection(GUARD).find({"State": "Fresh"})}
    assert fresh == {"ProjectScreening", "QuestionAnswers", "SearchPopulation"}  # moved, and the two not touched
    unserved(opened)


@pytest.mark.parametrize("stage", [uuid4(), EXTRACTION.id], ids=["of no project", "an annotation stage"])
def test_a_decision_names_a_screening_stage_or_none(opened: Review, stage: UUID) -> None:
    [study] = insert(opened, CROSSING)
    before = opened.snapshot_of_statistics()
    with pytest.raises(Refusal) as refused:
        decide(opened, study, ANNA, stage=stage)
    assert refused.value.reason in {ReviewReason.StageUnknown, ReviewReason.NotScreeningStage}
    assert (refused.value.reason is ReviewReason.NotScreeningStage) is (stage == EXTRACTION.id)
    assert opened.snapshot_of_statistics() == before


# --- scopes without a row


@pytest.mark.req("SCOPE-01", "SCOPE-03", "SCOPE-11")
def test_a_placeholder_says_whether_the_project_declares_its_scope(opened: Review) -> None:
    [study] = insert(opened, DOINGS["start a session, from a place"])
    opened.backfill_all()
    declared = f"stage/{EXTRACTION.id}/member/{ANNA}"
    opened.mongo.collection(ROW).delete_many({"Family": "MembershipStageAnnotation", "Scope": declared})
    for who in (ANNA, CLEO):
        AnnotationWriter(opened.host, opened.project).submit(study, who, EXTRACTION.id, SessionAct.SAVE)
    guard = opened.mongo.collection(GUARD).find_one({"_id.Family": "MembershipStageAnnotation"})
    assert guard is not None
    wanted = {"Family": "MembershipStageAnnotation", "State": "Stale"}
    found = {row["Scope"]: row for row in opened.mongo.collection(ROW).find(wanted)}
    assert {scope: row["LastFailureReason"] for scope, row in found.items()} == {
        declared: "MissingBaseline",
        f"stage/{EXTRACTION.id}/member/{CLEO}": "MissingBaselineUndeclared",
    }
    for row in found.values():
        assert (row["IsPublished"], row["Counters"]) == (True, [])
        assert (row["Generation"], row["Token"]) == (guard["VisibleGeneration"], guard["VisibleToken"])
    assert unserved(opened)["MembershipStageAnnotation"] == {declared}
    AnnotationWriter(opened.host, opened.project).submit(study, CLEO, EXTRACTION.id, SessionAct.COMPLETE)
    assert {row["Scope"]: row for row in opened.mongo.collection(ROW).find(wanted)} == found
    opened.backfill("MembershipStageAnnotation")
    assert "MembershipStageAnnotation" not in unserved(opened)


@pytest.mark.req("SCOPE-04")
def test_a_key_that_an_unpublished_row_holds_stales_the_family(opened: Review) -> None:
    """This release leaves none; another one's must not make every save of that scope fail."""
    [study] = insert(opened, DOINGS["start a session, from a place"])
    opened.backfill_all()
    scope = f"stage/{EXTRACTION.id}/member/{ANNA}"
    wanted = {"Family": "MembershipStageAnnotation", "Scope": scope}
    opened.mongo.collection(ROW).update_one(wanted, {"$set": {"IsPublished": False}})
    before = opened.mongo.collection(ROW).find_one(wanted)
    AnnotationWriter(opened.host, opened.project).submit(study, ANNA, EXTRACTION.id, SessionAct.SAVE)
    guard = opened.mongo.collection(GUARD).find_one({"_id.Family": "MembershipStageAnnotation"})
    assert guard is not None
    assert guard["State"] == "Stale"
    assert opened.mongo.collection(ROW).find_one(wanted) == before
    assert len(opened.receipts()) == 1
    unserved(opened)
