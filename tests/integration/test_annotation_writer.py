"""Annotation sessions saved one at a time: what becomes of the study, its tallies and the statistics of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.annotation_writer import AnnotationWriter, SessionAct
from statlib.review.documents import STUDIES, AnswerKind, Question, SlotReservation, StageKind, Tally
from statlib.review.reasons import ReviewReason
from statlib.review.namespaces import ANNOTATION_NAMESPACE
from statlib.statistics.arms import Arm
from statlib.statistics.documents import RECEIPT
from statlib.statistics.envelopes import Envelope
from statlib.statistics.outcomes import Saved
from statlib.statistics.reasons import SaveReason
from tests.reviews import Review, review, stage

ANNA, BEN = UUID(int=0xA), UUID(int=0xB)
STAGE = stage("data extraction")
OTHER = stage("risk of bias")
SCREENING = stage("title and abstract", kind=StageKind.SCREENING)


def question(answer: AnswerKind, *options: str, of: UUID = STAGE.id) -> Question:
    return Question(id=uuid4(), stage_id=of, text=f"a question of {answer}", answer=answer, options=options)


BLINDED = question(AnswerKind.BOOLEAN)
SPECIES = question(AnswerKind.CHOICE, "mouse", "souris à pattes")
ANIMALS = question(AnswerKind.INTEGER)
NOTES = question(AnswerKind.TEXT)
ELSEWHERE = question(AnswerKind.BOOLEAN, of=OTHER.id)
QUESTIONS = (BLINDED, SPECIES, ANIMALS, NOTES, ELSEWHERE)
ANSWERS: dict[UUID, Any] = {NOTES.id: "as reported", BLINDED.id: True, ANIMALS.id: 12, SPECIES.id: "mouse"}


@dataclass(frozen=True)
class Bench:
    """One study of one review, in one arm."""

    opened: Review
    arm: Arm

    @property
    def study(self) -> UUID:
        return self.opened.studies[0]

    @property
    def writer(self) -> AnnotationWriter:
        return AnnotationWriter(self.opened.host, self.opened.project)

    def submit(self, act: SessionAct, answers: dict[UUID, Any] | None = None, who: UUID = ANNA, **options: Any) -> Saved:
        return self.writer.submit(self.study, who, options.pop("stage", STAGE.id), act, answers, **options)

    def open(self, act: SessionAct = SessionAct.SAVE, who: UUID = ANNA, **options: Any) -> Envelope:
        return self.writer.open(self.study, who, options.pop("stage", STAGE.id), act, **options)

    def stored(self) -> dict[str, Any]:
        return self.opened.study(self.study)

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.stored()["Sessions"]
        return found

    def tally(self, of: UUID = STAGE.id) -> tuple[int, int, bool, bool, int, int, int] | None:
        """NCS, NCCS, RS, RC, reservations, allocated, engaged."""
        for stored in self.stored()["Tallies"]:
            if stored["StageId"] == of:
                names = ("NCS", "NCCS", "RS", "RC", "Reservations", "TotalAllocated", "TotalEngaged")
                counts = tuple(stored[name] for name in names)
                assert len(counts) == 7
                return counts
        return None

    def reserve(self, *holders: UUID, of: UUID = STAGE.id) -> None:
        held = [SlotReservation(stage_id=of, investigator_id=h, at_utc=datetime(2024, 5, 1, tzinfo=UTC)) for h in holders]
        tally = Tally(stage_id=of, reservations=len(held), total_allocated=len(held), total_engaged=len(held))
        self.opened.mongo.collection(STUDIES).update_one(
            {"_id": self.study},
            {"$set": {"SlotReservations": [r.to_bson() for r in held], "Tallies": [tally.to_bson()]}},
        )

    def receipts(self) -> set[str]:
        return {receipt["OperationId"] for receipt in self.opened.receipts()}


@contextmanager
def bench(settings: Settings, arm: Arm) -> Iterator[Bench]:
    with review(
        settings,
        studies=1,
        under_statistics=arm is Arm.TRANSACTIONAL,
        stages=(STAGE, OTHER, SCREENING),
        questions=QUESTIONS,
    ) as opened:
        if arm is Arm.TRANSACTIONAL:
            opened.backfill_all()
        yield Bench(opened, arm)


@pytest.fixture(params=list(Arm))
def bench_in(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Bench]:
    with bench(settings, request.param) as opened:
        yield opened


@pytest.fixture
def transactional(settings: Settings) -> Iterator[Bench]:
    with bench(settings, Arm.TRANSACTIONAL) as opened:
        yield opened


def test_a_session_is_started_edited_completed_edited_again_and_deleted(bench_in: Bench) -> None:
    started = bench_in.submit(SessionAct.SAVE)
    [session] = bench_in.sessions()
    assert (session["Status"], session["Reconciliation"], session["Answers"]) == ("Started", False, [])
    assert (session["StageId"], session["InvestigatorId"]) == (STAGE.id, ANNA)
    assert bench_in.tally() == (1, 0, False, False, 0, 1, 1)

    bench_in.submit(SessionAct.SAVE, ANSWERS)
    [edited] = bench_in.sessions()
    assert edited["Id"] == session["Id"]
    assert [(a["QuestionId"], a["Value"], a["Key"]) for a in edited["Answers"]] == [
        (BLINDED.id, True, "true"),
        (SPECIES.id, "mouse", "mouse"),
        (ANIMALS.id, 12, "12"),
        (NOTES.id, "as reported", None),
    ]

    bench_in.submit(SessionAct.COMPLETE)
    [completed] = bench_in.sessions()
    assert (completed["Status"], completed["Answers"]) == ("Completed", edited["Answers"])
    assert bench_in.tally() == (1, 1, False, False, 0, 1, 1)

    bench_in.submit(SessionAct.SAVE, {BLINDED.id: False})
    [again] = bench_in.sessions()
    assert (again["Status"], [a["Key"] for a in again["Answers"]]) == ("Completed", ["false"])

    last = bench_in.submit(SessionAct.DELETE)
    assert bench_in.sessions() == []
    assert bench_in.tally() == (0, 0, False, False, 0, 0, 0)
    assert last.revision_after == bench_in.stored()["Audit"]["Version"] == 5
    assert started.arm is bench_in.arm

    stream = f"{bench_in.study}:{STAGE.id}:{session['Id']}"
    kinds = ("session-save", "session-save", "session-complete", "session-save", "session-delete")
    expected = {f"{kind}:{stream}:{revision}" for revision, kind in enumerate(kinds)}
    assert bench_in.receipts() == (expected if bench_in.arm is Arm.TRANSACTIONAL else set())
    for receipt in bench_in.opened.mongo.collection(RECEIPT).find():
        assert receipt["OperationNamespace"] == ANNOTATION_NAMESPACE
        assert receipt["SourceAggregateId"] == bench_in.study
