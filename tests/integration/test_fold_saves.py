"""Saves that fold: one command more than the load, and everything that statistics need of them in the study itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest

from statlib.kernel.refusals import Reason, Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES, InclusionInfo
from statlib.review.reservation_writer import ReservationWriter
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningChange, ScreeningWriter
from statlib.statistics.arms import Arm
from statlib.statistics.attempts import save
from statlib.statistics.bounds import FREE_RETRIES_MAX, OVERFLOW_RECORDED_MAX, PENDING_ENTRIES_MAX, SAVE_ATTEMPTS_MAX
from statlib.statistics.catalogue import Document
from statlib.statistics.documents import CONTROL
from statlib.statistics.envelopes import Envelope
from statlib.statistics.fold.turn import fold_project
from statlib.statistics.outcomes import Cause, SourceWrite
from statlib.statistics.pending import FOLD_PROTOCOL, PENDING
from statlib.statistics.reasons import SaveReason
from tests import arms
from tests.doings import DOINGS, SCREENING, Doing, done_to, insert
from tests.exactness import unserved
from tests.folding import fold_off, fold_on, pending
from tests.reviews import ALL_FAMILIES, FAMILY, Review, host_of, review, settings_for

ANNA, BEN = UUID(int=0xA), UUID(int=0xB)
AT = datetime(2024, 5, 1, tzinfo=UTC)


@contextmanager
def folding(settings: Settings, **options: Any) -> Iterator[Review]:
    with review(settings, fold=True, **{"families": ALL_FAMILIES, **options}) as opened:
        opened.backfill_all()
        fold_on(opened.mongo, opened.project)
        yield opened


@pytest.fixture
def opened(settings: Settings) -> Iterator[Review]:
    with folding(settings) as review_:
        yield review_


@pytest.mark.req("SAVE-02", "SAVE-03", "SAVE-19", "SAVE-23", "SAVE-24", "SAVE-43", "SAVE-46", "ENTRY-13", "ENTRY-18")
def test_a_screening_save_is_a_load_and_one_write_and_leaves_its_entry_in_the_study_alone(opened: Review) -> None:
    study = opened.studies[0]
    untouched = {k: v for k, v in opened.snapshot_of_statistics().items() if k != "pmStudy"}
    with counting(opened.mongo.client) as count:
        saved = opened.writer.submit(study, ANNA, Decision.INCLUDE)

    assert count.names == ("aggregate", "findAndModify")
    assert (saved.arm, saved.leaves_receipt, saved.revision_after, saved.failed_attempts) == (Arm.FOLD, True, 1, ())
    assert {k: v for k, v in opened.snapshot_of_statistics().items() if k != "pmStudy"} == untouched
    (entry,) = pending(opened.mongo, opened.project)[study].entries
    assert entry["OperationId"] == f"screening:{study}:{ANNA}:0"
    assert (entry["ExpectedSourceRevision"], entry["SourceRevisionBefore"], entry["SourceRevisionAfter"]) == (0, 0, 1)
    assert entry["ProtocolVersion"] == FOLD_PROTOCOL
    assert opened.decisions(study) == {ANNA: True}


@pytest.mark.req("SAVE-53", "SAVE-54", "SAVE-32", "SAVE-33")
def test_a_repeat_is_known_by_the_pending_entry(opened: Review) -> None:
    envelope = opened.writer.open(opened.studies[0], ANNA)
    opened.writer.save(envelope, Decision.INCLUDE)
    before = opened.snapshot_of_statistics()

    again = opened.writer.save(envelope.as_redelivered(), Decision.INCLUDE)
    with pytest.raises(Refusal) as refused:
        opened.writer.save(envelope.as_redelivered(), Decision.EXCLUDE)

    assert (again.duplicate, again.leaves_receipt, again.revision_after) == (True, True, 1)
    assert refused.value.reason is SaveReason.DigestMismatch
    assert opened.snapshot_of_statistics() == before


def test_a_save_that_another_came_before_is_made_upon_it(opened: Review) -> None:
    study = opened.studies[0]
    envelope = opened.writer.open(study, ANNA)
    opened.writer.submit(study, BEN, Decision.EXCLUDE)
    with counting(opened.mongo.client) as count:
        saved = opened.writer.save(envelope, Decision.INCLUDE)

    assert count.names == ("findAndModify", "aggregate", "findAndModify")
    assert (saved.failed_attempts, saved.revision_after) == ((Cause.SOURCE,), 2)
    second = pending(opened.mongo, opened.project)[study].entries[1]
    assert (second["ExpectedSourceRevision"], second["SourceRevisionBefore"]) == (0, 1)
    assert opened.decisions(study) == {ANNA: True, BEN: False}


def over_the_wire(envelope: Envelope) -> Envelope:
    return Envelope.from_wire(json.loads(json.dumps(envelope.to_wire())))


def reason(opened: Review, envelope: Envelope, decision: Decision = Decision.INCLUDE) -> Reason:
    with pytest.raises(Refusal) as refused:
        opened.writer.save(envelope, decision)
    assert isinstance(refused.value.reason, Reason)
    return refused.value.reason


def set_pending(opened: Review, study: UUID, stored: dict[str, Any]) -> None:
    opened.mongo.collection(STUDIES).update_one({"_id": study}, {"$set": {PENDING: stored}})


def full(*, drops: int = 0) -> dict[str, Any]:
    """A set without room, and with that many drops by name."""
    entries = [
        {"OperationNamespace": "n", "OperationId": f"o:{number}", "SubmissionDigest": "d", "CreatedAtUtc": AT}
        for number in range(PENDING_ENTRIES_MAX)
    ]
    dropped = [
        {"OperationNamespace": "n", "OperationId": f"p:{number}", "SubmissionDigest": "d"} for number in range(drops)
    ]
    overflow = {"OverflowedAtUtc": AT, "Dropped": dropped} if drops else None
    return {"OldestAtUtc": AT, "Entries": entries, "Overflow": overflow}


# --- repeats


@pytest.mark.req("SAVE-53", "SAVE-54", "SAVE-56", "SAVE-59", "SAVE-76")
def test_a_repeat_is_known_before_the_fold_and_after_it(opened: Review) -> None:
    envelope = opened.writer.open(opened.studies[0], ANNA)
    opened.writer.save(envelope, Decision.INCLUDE)
    for _ in range(2):
        again = opened.writer.save(over_the_wire(envelope), Decision.INCLUDE)
        assert (again.duplicate, again.leaves_receipt, again.revision_after) == (True, True, 1)
        assert reason(opened, over_the_wire(envelope), Decision.EXCLUDE) is SaveReason.DigestMismatch
        arms.fold(opened)
    (receipt,) = opened.receipts()
    assert receipt["OperationId"] == envelope.operation_id
    assert opened.decisions(opened.studies[0]) == {ANNA: True}


@pytest.mark.req("SAVE-55", "SAVE-57", "SAVE-79", "SAVE-80", "ENTRY-48", "ENTRY-50", "SAVE-18")
def test_a_save_that_overflows_is_saved_and_known_by_name_before_the_fold_and_after_it(opened: Review) -> None:
    study = opened.studies[0]
    set_pending(opened, study, full())
    envelope = opened.writer.open(study, ANNA)
    saved = opened.writer.save(envelope, Decision.INCLUDE)
    assert (saved.duplicate, saved.leaves_receipt, saved.failed_attempts) == (False, False, ())
    found = pending(opened.mongo, opened.project)[study]
    assert found.overflow is not None
    assert [dropped.operation_id for dropped in found.overflow.dropped] == [envelope.operation_id]
    for _ in range(2):
        again = opened.writer.save(over_the_wire(envelope), Decision.INCLUDE)
        assert (again.duplicate, again.leaves_receipt) == (True, False)
        assert reason(opened, over_the_wire(envelope), Decision.EXCLUDE) is SaveReason.DigestMismatch
        fold_project(opened.host, REVIEW, opened.project, min_age_s=0.0)
    assert not pending(opened.mongo, opened.project)
    assert opened.receipts() == []
    assert opened.decisions(study) == {ANNA: True}


@pytest.mark.req("SAVE-67", "SAVE-68", "SAVE-72", "ENTRY-49")
def test_a_drop_without_a_name_is_neither_repeated_nor_denied_before_the_fold_and_after_it(opened: Review) -> None:
    study = opened.studies[0]
    set_pending(opened, study, full(drops=OVERFLOW_RECORDED_MAX))
    envelope = opened.writer.open(study, ANNA)
    assert not opened.writer.save(envelope, Decision.INCLUDE).leaves_receipt
    for _ in range(2):
        assert reason(opened, over_the_wire(envelope)) is SaveReason.StatisticsOperationUnresolved
        fold_project(opened.host, REVIEW, opened.project, min_age_s=0.0)
    assert not pending(opened.mongo, opened.project)
    assert arms.saves_of(opened.study(study)) == 1
    assert not opened.writer.submit(study, ANNA, Decision.EXCLUDE).duplicate


@pytest.mark.req("SAVE-58")
def test_an_entry_whose_digest_nobody_can_read_is_neither_this_save_nor_another(opened: Review) -> None:
    study = opened.studies[0]
    envelope = opened.writer.open(study, ANNA)
    opened.writer.save(envelope, Decision.INCLUDE)
    opened.mongo.collection(STUDIES).update_one(
        {"_id": study}, {"$set": {f"{PENDING}.Entries.0.SubmissionDigest": 7, f"{PENDING}.Entries.0.Context": 7}}
    )
    for _ in range(2):
        assert reason(opened, over_the_wire(envelope)) is SaveReason.StatisticsOperationUnresolved
        fold_project(opened.host, REVIEW, opened.project, min_age_s=0.0)
    assert not pending(opened.mongo, opened.project)


@pytest.mark.req("SAVE-70")
def test_a_miss_proves_nothing_where_quarantine_is_incomplete(opened: Review) -> None:
    study = opened.studies[0]
    envelope, other = opened.writer.open(study, ANNA), opened.writer.open(study, BEN)
    opened.writer.submit(study, UUID(int=0xC), Decision.INCLUDE)
    opened.mongo.collection(CONTROL).update_one({}, {"$set": {"FoldQuarantineIncompleteSinceUtc": AT}})
    assert reason(opened, over_the_wire(envelope)) is SaveReason.StatisticsOperationUnresolved
    assert not opened.writer.save(other, Decision.INCLUDE).duplicate  # its first delivery, and no result is unknown


@pytest.mark.req("SAVE-60", "SAVE-61", "SAVE-65")
def test_of_two_submissions_under_one_id_one_is_saved_and_the_other_hears_so(opened: Review) -> None:
    for study in opened.studies:
        envelope = opened.writer.open(study, ANNA)
        start = Barrier(2)

        def deliver(decision: Decision, envelope: Envelope = envelope, start: Barrier = start) -> str:
            start.wait(timeout=30)
            try:
                return str(opened.writer.save(envelope, decision).duplicate)
            except Refusal as refusal:
                return str(refusal.reason.name)

        with ThreadPoolExecutor(2) as pool:
            answers = sorted(pool.map(deliver, (Decision.INCLUDE, Decision.EXCLUDE)))
        assert answers == [SaveReason.DigestMismatch.name, "False"]
        assert len(pending(opened.mongo, opened.project)[study].entries) == 1
        assert opened.study(study)["Audit"]["Version"] == 1


@pytest.mark.req("ENTRY-17")
def test_a_release_that_was_done_by_itself_is_not_done_again_by_a_decision(settings: Settings) -> None:
    doing = DOINGS["decide and cross, from a place"]
    already = {"screenings": doing.before["screenings"] * 0, "inclusion_info": InclusionInfo()}
    for folded in (False, True):
        with done_to(settings, Arm.FOLD) as opened:
            arms.begin(opened, Arm.FOLD)
            bare = doing.study(opened.project).model_copy(update=already)
            opened.mongo.collection(STUDIES).insert_one(bare.to_bson())
            decision = opened.writer.open(bare.id, ANNA, stage=SCREENING.id)
            ReservationWriter(opened.host, opened.project).release(bare.id, ANNA, SCREENING.id)
            opened.mongo.collection(STUDIES).update_one(
                {"_id": bare.id}, {"$set": {"SlotReservations": [r.to_bson() for r in bare.slot_reservations]}}
            )
            if folded:
                arms.fold(opened)
            assert reason(opened, decision) is SaveReason.VersionStale
            assert opened.decisions(bare.id) == {}


# --- saves that leave nothing


@pytest.mark.req("SAVE-14")
def test_a_save_that_changes_nothing_counted_leaves_no_entry_and_is_never_made_upon_anothers(opened: Review) -> None:
    study = opened.studies[0]
    opened.writer.submit(study, ANNA, Decision.INCLUDE)
    arms.fold(opened)
    repeated, later = opened.writer.open(study, ANNA), opened.writer.open(study, ANNA)
    saved = opened.writer.save(repeated, Decision.INCLUDE)
    assert (saved.arm, saved.leaves_receipt, saved.duplicate) == (Arm.FOLD, False, False)
    assert not pending(opened.mongo, opened.project)
    for envelope in (repeated, over_the_wire(repeated), later):
        assert reason(opened, envelope) is SaveReason.VersionStale
    assert arms.saves_of(opened.study(study)) == 2


def test_what_may_have_been_saved_without_an_entry_is_not_saved_upon_what_came_since(opened: Review) -> None:
    """By then it would do something: it would take back what an administrator made of the study meanwhile."""
    study = opened.studies[0]
    opened.writer.submit(study, ANNA, Decision.INCLUDE)
    envelope = opened.writer.open(study, ANNA)
    opened.writer.save(envelope, Decision.INCLUDE)
    excluded = [{"InvestigatorId": ANNA, "Included": False, "AtUtc": AT}]
    opened.mongo.collection(STUDIES).update_one(
        {"_id": study}, {"$set": {"Screenings": excluded}, "$inc": {"Audit.Version": 1}}
    )
    for again in (envelope, over_the_wire(envelope)):
        assert reason(opened, again) is SaveReason.VersionStale
        fold_off(opened.mongo, opened.project)
    assert opened.decisions(study) == {ANNA: False}


def test_what_others_made_needless_meanwhile_is_not_saved_upon_it(opened: Review) -> None:
    """It would have left an entry as it was opened, and would leave none now: its repeat could not be told."""
    study = opened.studies[0]
    envelope = opened.writer.open(study, ANNA)
    included = [{"InvestigatorId": ANNA, "Included": True, "AtUtc": AT}]
    opened.mongo.collection(STUDIES).update_one(
        {"_id": study}, {"$set": {"Screenings": included}, "$inc": {"Audit.Version": 1}}
    )
    assert reason(opened, envelope) is SaveReason.VersionStale
    assert opened.study(study)["Audit"]["Version"] == 1


# --- folds beside saves


@dataclass
class Meddled:
    """A change before each of whose writes somebody else saves, and is folded or not."""

    opened: Review
    study: UUID
    folded: int
    change: ScreeningChange = field(default_factory=lambda: ScreeningChange(Decision.INCLUDE))
    applied: int = 0
    decisions: Iterator[Decision] = field(default_factory=lambda: cycle((Decision.INCLUDE, Decision.EXCLUDE)))

    @property
    def intent(self) -> Any:
        return self.change.intent

    def apply(self, source: Document, context: Document, envelope: Envelope) -> SourceWrite:
        if source["Audit"]["Version"] == self.opened.study(self.study)["Audit"]["Version"]:
            self.opened.writer.submit(self.study, BEN, next(self.decisions))
            if self.applied < self.folded:
                arms.fold(self.opened)
            self.applied += 1
        return self.change.apply(source, context, envelope)


@pytest.mark.req("SAVE-73", "SAVE-74", "SAVE-75")
@pytest.mark.parametrize("folded", [0, 1, 9])
def test_attempts_that_folds_undid_are_not_charged_up_to_a_limit(opened: Review, folded: int) -> None:
    study = opened.studies[0]
    envelope = opened.writer.open(study, ANNA)
    with pytest.raises(Refusal) as refused:
        save(opened.host, REVIEW, envelope, Meddled(opened, study, folded))
    free = min(folded, FREE_RETRIES_MAX)
    causes = [Cause.FOLD.value] * free + [Cause.SOURCE.value] * SAVE_ATTEMPTS_MAX
    assert refused.value.reason is SaveReason.AttemptsExhausted
    assert refused.value.state["failedAttempts"] == causes
    assert ANNA not in opened.decisions(study)


@pytest.mark.req("SAVE-74")
def test_a_document_that_only_folds_moved_on_is_as_it_was_opened(opened: Review) -> None:
    """Also for a save that leaves nothing, and for an envelope of which nobody knows what it would have done."""
    study = opened.studies[0]
    for decision in (Decision.INCLUDE, Decision.RETRACT):
        opened.writer.submit(study, BEN, Decision.INCLUDE)
        envelope = opened.writer.open(study, ANNA)
        assert pending(opened.mongo, opened.project)
        arms.fold(opened)
        saved = opened.writer.save(over_the_wire(envelope), decision)
        assert (saved.duplicate, saved.failed_attempts) == (False, ())
        opened.writer.submit(study, BEN, Decision.RETRACT)
    assert opened.decisions(study) == {}


# --- leaving fold mode


@pytest.mark.req("SAVE-16", "ENTRY-09", "ENTRY-10", "ENTRY-07")
def test_a_save_after_disabling_is_transactional_knows_what_is_pending_and_leaves_it_alone(opened: Review) -> None:
    study = opened.studies[0]
    early = opened.writer.open(study, ANNA)
    opened.writer.save(early, Decision.INCLUDE)
    before = opened.study(study)[PENDING]
    fold_off(opened.mongo, opened.project)

    saved = opened.writer.submit(study, BEN, Decision.INCLUDE)
    assert saved.arm is Arm.TRANSACTIONAL
    assert opened.writer.save(over_the_wire(early), Decision.INCLUDE).duplicate
    assert reason(opened, over_the_wire(early), Decision.EXCLUDE) is SaveReason.DigestMismatch
    assert opened.study(study)[PENDING] == before
    arms.fold(opened)
    assert len(opened.receipts()) == 2
    assert opened.read().counters(FAMILY) == opened.truth()


@pytest.mark.req("SAVE-13", "ENTRY-31")
def test_a_host_that_may_not_fold_saves_in_transactions_beside_those_that_do(opened: Review) -> None:
    study = opened.studies[0]
    opened.writer.submit(study, ANNA, Decision.INCLUDE)
    chosen = settings_for(opened.mongo.settings, opened.project, families=ALL_FAMILIES)
    with host_of(chosen) as other:
        saved = ScreeningWriter(other, opened.project).submit(study, BEN, Decision.INCLUDE)
    assert saved.arm is Arm.TRANSACTIONAL
    assert len(pending(opened.mongo, opened.project)[study].entries) == 1
    arms.fold(opened)
    assert len(opened.receipts()) == 2


def test_a_closed_gate_does_not_end_folding(opened: Review) -> None:
    opened.gate(enabled=False)
    assert opened.writer.submit(opened.studies[0], ANNA, Decision.INCLUDE).arm is Arm.FOLD


# --- what all of it comes to


@pytest.mark.req("SAVE-01", "SAVE-03", "SAVE-05", "SAVE-07", "SAVE-26", "SAVE-27", "SAVE-30", "SAVE-02")
@pytest.mark.parametrize("doing", [doing for doing in DOINGS.values() if doing.name != "claim"], ids=lambda d: d.name)
def test_every_writer_is_a_load_and_one_write_and_exact_once_folded(settings: Settings, doing: Doing) -> None:
    with done_to(settings, Arm.FOLD) as opened:
        first, second = insert(opened, doing, 2)
        arms.begin(opened, Arm.FOLD)
        untouched = {k: v for k, v in opened.snapshot_of_statistics().items() if k != STUDIES}
        with counting(opened.mongo.client) as count:
            envelope = doing.open(opened.host, opened.project, first)
            assert doing.answer(opened.host, envelope) == "Saved"
        assert count.names == ("aggregate", "findAndModify")
        redelivered = doing.open(opened.host, opened.project, second).as_redelivered()
        with counting(opened.mongo.client) as count:
            assert doing.answer(opened.host, redelivered) == "Saved"
        assert count.names == ("aggregate", "findAndModify")
        assert {k: v for k, v in opened.snapshot_of_statistics().items() if k != STUDIES} == untouched
        assert len(pending(opened.mongo, opened.project)[first].entries) == doing.receipts
        assert set(unserved(opened)) <= {"ReviewerAnnotation", "QuestionAnswers"}
        arms.fold(opened)
        assert len(opened.receipts()) == 2 * doing.receipts
        assert set(unserved(opened)) <= {"ReviewerAnnotation", "QuestionAnswers"}
