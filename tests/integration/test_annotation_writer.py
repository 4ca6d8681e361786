"""Annotation sessions saved one at a time: what becomes of the study, its tallies and the statistics of it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.review.annotation_writer import AnnotationWriter, SessionAct
from statlib.review.answers import ANSWER_BYTES_MAX, STUDY_ANSWER_BYTES_MAX
from statlib.review.documents import (
    STUDIES,
    Answer,
    AnswerKind,
    Question,
    Session,
    SlotReservation,
    Stage,
    StageKind,
    Tally,
)
from statlib.review.namespaces import ANNOTATION_NAMESPACE
from statlib.review.reasons import ReviewReason
from statlib.statistics.arms import Arm
from statlib.statistics.documents import RECEIPT
from statlib.statistics.envelopes import Envelope
from statlib.statistics.outcomes import Saved
from tests import arms
from tests.reviews import Review, review, stage

AT = datetime(2024, 5, 1, tzinfo=UTC)
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

    def submit(
        self, act: SessionAct, answers: dict[UUID, Any] | None = None, who: UUID = ANNA, **options: Any
    ) -> Saved:
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
        held = [SlotReservation(stage_id=of, investigator_id=h, at_utc=AT) for h in holders]
        tally = Tally(stage_id=of, reservations=len(held), total_allocated=len(held), total_engaged=len(held))
        self.opened.mongo.collection(STUDIES).update_one(
            {"_id": self.study},
            {"$set": {"SlotReservations": [r.to_bson() for r in held], "Tallies": [tally.to_bson()]}},
        )

    def receipts(self) -> set[str]:
        arms.fold(self.opened)
        return {receipt["OperationId"] for receipt in self.opened.receipts()}


@contextmanager
def bench(settings: Settings, arm: Arm) -> Iterator[Bench]:
    with review(
        settings,
        studies=1,
        stages=(STAGE, OTHER, SCREENING),
        questions=QUESTIONS,
        **arms.options(arm),
    ) as opened:
        arms.begin(opened, arm)
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
    left = (0, 2, 3, 4) if bench_in.arm is Arm.FOLD else range(5)  # answers of a started session are not counted
    expected = {f"{kinds[revision]}:{stream}:{revision}" for revision in left}
    assert bench_in.receipts() == (expected if bench_in.arm in arms.UNDER_STATISTICS else set())
    for receipt in bench_in.opened.mongo.collection(RECEIPT).find():
        assert receipt["OperationNamespace"] == ANNOTATION_NAMESPACE
        assert receipt["SourceAggregateId"] == bench_in.study


def test_a_session_is_completed_at_once_and_as_a_reconciliation_beside_the_candidate(bench_in: Bench) -> None:
    bench_in.submit(SessionAct.COMPLETE, ANSWERS)
    bench_in.submit(SessionAct.SAVE, reconciliation=True)
    assert bench_in.tally() == (1, 1, True, False, 0, 1, 2)
    bench_in.submit(SessionAct.COMPLETE, {BLINDED.id: False}, reconciliation=True)
    assert bench_in.tally() == (1, 1, True, True, 0, 1, 2)
    candidate, reconciliation = bench_in.sessions()
    assert (candidate["Reconciliation"], reconciliation["Reconciliation"]) == (False, True)
    assert [len(session["Answers"]) for session in (candidate, reconciliation)] == [4, 1]
    bench_in.submit(SessionAct.DELETE, reconciliation=True)
    assert bench_in.sessions() == [candidate]
    assert bench_in.tally() == (1, 1, False, False, 0, 1, 1)


@pytest.mark.parametrize(
    ("act", "of", "frees"),
    [
        (SessionAct.SAVE, STAGE, True),
        (SessionAct.COMPLETE, STAGE, True),
        (SessionAct.SAVE, OTHER, False),
    ],
    ids=["save", "complete", "on another stage"],
)
def test_a_save_frees_its_investigators_own_place_on_the_stage(
    bench_in: Bench, act: SessionAct, of: Stage, frees: bool
) -> None:
    bench_in.reserve(BEN, ANNA)
    bench_in.submit(act, stage=of.id)
    held = [place["InvestigatorId"] for place in bench_in.stored()["SlotReservations"]]
    assert held == ([BEN] if frees else [BEN, ANNA])
    completed = int(act is SessionAct.COMPLETE)
    assert bench_in.tally() == ((1, completed, False, False, 1, 2, 2) if frees else (0, 0, False, False, 2, 2, 2))
    if bench_in.arm is Arm.TRANSACTIONAL:
        assert len(bench_in.receipts()) == 1


INVALID: list[tuple[Any, Any]] = [
    (BLINDED, "true"),
    (BLINDED, 1),
    (ANIMALS, True),
    (ANIMALS, 1.5),
    (ANIMALS, 2**63),
    (SPECIES, "rat"),
    (SPECIES, None),
    (NOTES, 3),
    (NOTES, "\ud800"),
    (NOTES, ["a", "list"]),
    (ELSEWHERE, True),
    (question(AnswerKind.TEXT), "nobody asked"),
]


@pytest.mark.parametrize(("asked", "value"), INVALID, ids=[f"{q.answer}-{value!r:.12}" for q, value in INVALID])
def test_an_answer_that_the_stage_does_not_ask_for_is_refused_by_name(
    transactional: Bench, asked: Question, value: Any
) -> None:
    before = transactional.opened.snapshot_of_statistics()
    with pytest.raises(Refusal) as refused:
        transactional.submit(SessionAct.COMPLETE, {BLINDED.id: True, asked.id: value})
    assert refused.value.reason is ReviewReason.AnswerInvalid
    assert str(asked.id) in refused.value.detail
    assert repr(value) in refused.value.detail
    assert transactional.opened.snapshot_of_statistics() == before


def test_keys_are_canonical_and_values_stay_as_given(transactional: Bench) -> None:
    decomposed = unicodedata.normalize("NFD", "souris à pattes")
    transactional.submit(SessionAct.COMPLETE, {SPECIES.id: decomposed, ANIMALS.id: -(2**63)})
    species, animals = transactional.sessions()[0]["Answers"]
    assert (species["Value"], species["Key"]) == (decomposed, "souris à pattes")
    assert (animals["Value"], animals["Key"]) == (-(2**63), str(-(2**63)))


def test_somebody_elses_session_is_not_to_be_touched(transactional: Bench) -> None:
    transactional.submit(SessionAct.SAVE)
    [session] = transactional.sessions()
    for act in SessionAct:
        with pytest.raises(Refusal) as refused:
            transactional.submit(act, who=BEN, session=session["Id"])
        assert refused.value.reason is ReviewReason.SessionOfAnother
    assert transactional.sessions() == [session]


def test_texts_are_stored_until_the_study_is_full_and_then_refused(bench_in: Bench) -> None:
    """At the bound the study still fits into a document, and into the command that saves it."""
    text, room = "x" * ANSWER_BYTES_MAX, STUDY_ANSWER_BYTES_MAX // ANSWER_BYTES_MAX - 1
    others = [
        Session(
            id=uuid4(), stage_id=STAGE.id, investigator_id=uuid4(), reconciliation=False, at_utc=AT,
            answers=(Answer(question_id=NOTES.id, value=text, key=None),),
        ).to_bson()
        for _ in range(room)
    ]  # fmt: skip
    bench_in.opened.mongo.collection(STUDIES).update_one({"_id": bench_in.study}, {"$set": {"Sessions": others}})
    bench_in.submit(SessionAct.COMPLETE, {NOTES.id: text})
    assert len(bench_in.sessions()) == room + 1
    with pytest.raises(Refusal, match="at most 8,000,000") as refused:
        bench_in.submit(SessionAct.SAVE, {NOTES.id: "x"}, who=BEN)
    assert refused.value.reason is ReviewReason.AnswersTooLong
    assert len(bench_in.sessions()) == room + 1
    bench_in.submit(SessionAct.COMPLETE, {ANIMALS.id: 3}, who=ANNA)
    bench_in.submit(SessionAct.SAVE, {NOTES.id: "x"}, who=BEN)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stage": uuid4()}, ReviewReason.StageUnknown),
        ({"stage": SCREENING.id}, ReviewReason.NotAnnotationStage),
        ({"session": uuid4()}, ReviewReason.SessionUnknown),
        ({"act": SessionAct.DELETE}, ReviewReason.SessionUnknown),
        ({"act": SessionAct.DELETE, "answers": ANSWERS}, ReviewReason.AnswerInvalid),
    ],
    ids=["no such stage", "a screening stage", "no such session", "none to delete", "answers to nothing"],
)
def test_what_is_not_there_is_refused_by_name(bench_in: Bench, options: dict[str, Any], reason: ReviewReason) -> None:
    before = bench_in.opened.snapshot_of_statistics()
    with pytest.raises(Refusal) as refused:
        bench_in.submit(**{"act": SessionAct.SAVE, **options})
    assert refused.value.reason is reason
    assert bench_in.opened.snapshot_of_statistics() == before


def test_a_person_has_one_candidate_session_per_stage_however_often_it_is_started(transactional: Bench) -> None:
    """Twice at once: the same session; after another start: that one stands, and the late start says so."""
    envelopes = [transactional.open(), transactional.open()]
    assert envelopes[0].part == envelopes[1].part
    assert not transactional.writer.save(envelopes[0], ANSWERS).duplicate
    assert transactional.writer.save(envelopes[1].as_redelivered(), ANSWERS).duplicate
    transactional.submit(SessionAct.DELETE)
    late = transactional.open()
    transactional.submit(SessionAct.SAVE, who=BEN)
    transactional.submit(SessionAct.SAVE)  # opened two revisions later
    with pytest.raises(Refusal) as refused:
        transactional.writer.save(late.as_redelivered())
    assert refused.value.reason is ReviewReason.SessionExists
    assert [s["InvestigatorId"] for s in transactional.sessions()] == [BEN, ANNA]


def test_a_save_of_a_session_that_was_deleted_meanwhile_does_not_bring_it_back(transactional: Bench) -> None:
    """Deleted past its siblings' receipts, as by an administrator: the envelope was not minted to start it."""
    transactional.submit(SessionAct.SAVE)
    late = transactional.open()
    transactional.opened.mongo.collection(STUDIES).update_one(
        {"_id": transactional.study}, {"$set": {"Sessions": []}, "$inc": {"Audit.Version": 1}}
    )
    with pytest.raises(Refusal) as refused:
        transactional.writer.save(late.as_redelivered(), ANSWERS)
    assert refused.value.reason is ReviewReason.SessionUnknown
    assert transactional.sessions() == []


def test_what_changes_nothing_keeps_the_time_of_the_session(transactional: Bench) -> None:
    transactional.submit(SessionAct.COMPLETE, ANSWERS, at=datetime(2020, 1, 1, tzinfo=UTC))
    [before] = transactional.sessions()
    transactional.submit(SessionAct.COMPLETE, dict(reversed(ANSWERS.items())))
    assert transactional.sessions() == [before]
    transactional.submit(SessionAct.SAVE, {})
    [after] = transactional.sessions()
    assert (before["AtUtc"], after["Answers"]) == (datetime(2020, 1, 1, tzinfo=UTC), [])
    assert after["AtUtc"] > before["AtUtc"]


def test_what_another_release_keeps_on_sessions_answers_and_tallies_survives(transactional: Bench) -> None:
    transactional.submit(SessionAct.SAVE, ANSWERS)
    transactional.opened.mongo.collection(STUDIES).update_one(
        {"_id": transactional.study},
        {"$set": {"Sessions.$[].Note": "n", "Sessions.$[].Answers.$[].Confidence": 3, "Tallies.$[].Colour": "red"}},
    )
    transactional.submit(SessionAct.COMPLETE, {BLINDED.id: False})
    [session] = transactional.sessions()
    [answer] = session["Answers"]
    assert (session["Note"], answer["Confidence"], answer["Key"]) == ("n", 3, "false")
    assert [tally["Colour"] for tally in transactional.stored()["Tallies"]] == ["red"]


def test_an_annotation_save_sends_as_many_commands_as_a_decision(settings: Settings) -> None:
    with bench(settings, Arm.SOURCE_ONLY) as plain, counting(plain.opened.mongo.client) as count:
        plain.submit(SessionAct.SAVE, ANSWERS)
    assert count.names == ("aggregate", "findAndModify")
