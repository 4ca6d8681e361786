"""One of everything that a person can do to a study, each with the study that it is done to.

For tests that deliver twice, kill or step down: whatever the writer, an envelope is opened and delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.annotation import tallies_after
from statlib.review.annotation_writer import AnnotationWriter, SessionAct
from statlib.review.catalogue import REVIEW
from statlib.review.claims import ClaimWriter, PlaceClaim
from statlib.review.documents import (
    PROJECTS,
    STUDIES,
    Answer,
    AnswerKind,
    InclusionClass,
    InclusionInfo,
    Membership,
    Question,
    Screening,
    Session,
    SessionStatus,
    SlotReservation,
    Stage,
    StageKind,
    Study,
)
from statlib.review.reservation_writer import ReservationWriter
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics.arms import Arm
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Saved
from statlib.statistics.submissions import open_envelope
from tests import arms
from tests.reviews import ALL_FAMILIES, Review, review

ANNA, BEN = UUID(int=0xA), UUID(int=0xB)
AT = datetime(2024, 5, 1, tzinfo=UTC)
EXTRACTION = Stage(id=UUID(int=0x51), name="data extraction", kind=StageKind.ANNOTATION, session_count_target=2)
SCREENING = Stage(id=UUID(int=0x52), name="title and abstract", kind=StageKind.SCREENING, session_count_target=2)
BLINDED = Question(id=UUID(int=0x61), stage_id=EXTRACTION.id, text="Was it blinded?", answer=AnswerKind.BOOLEAN)
ANSWERS: Mapping[UUID, bool | int | str] = {BLINDED.id: True}
OTHERS: Mapping[UUID, bool | int | str] = {BLINDED.id: False}


@dataclass(frozen=True)
class Doing:
    """``open`` and ``deliver`` run anywhere, also in another process; ``otherwise`` delivers another payload under the
    same envelope (None: there is none). ``before`` are the study's fields, ``receipts`` how many it leaves."""

    name: str
    open: Callable[[Host, UUID, UUID], Envelope]
    deliver: Callable[[Host, Envelope], Saved | None]
    otherwise: Callable[[Host, Envelope], Saved | None] | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    receipts: int = 1

    def study(self, project: UUID) -> Study:
        bare = Study(id=uuid4(), project_id=project, **{**_INCLUDED, **self.before})
        return bare.model_copy(update={"tallies": tallies_after(bare, bare.sessions, bare.slot_reservations)})

    def answer(self, host: Host, envelope: Envelope) -> str:
        """ "Saved", "Duplicate", "None" (not admitted), or the refusal's reason."""
        try:
            saved = self.deliver(host, envelope)
        except Refusal as refusal:
            return refusal.reason.name
        if saved is None:
            return "None"
        return "Duplicate" if saved.duplicate else "Saved"


def _decisions(*who: UUID) -> tuple[Screening, ...]:
    return tuple(Screening(investigator_id=person, included=True, at_utc=AT) for person in who)


_INCLUDED = {
    "screenings": _decisions(UUID(int=0xE1), UUID(int=0xE2)),
    "inclusion_info": InclusionInfo(class_=InclusionClass.INCLUDED, screened=2, included=2),
}


def _place(of: Stage) -> tuple[SlotReservation, ...]:
    return tuple(SlotReservation(stage_id=of.id, investigator_id=who, at_utc=AT) for who in (ANNA, BEN))


def _session(*, completed: bool) -> tuple[Session, ...]:
    return (
        Session(
            id=UUID(int=0x71),
            stage_id=EXTRACTION.id,
            investigator_id=ANNA,
            status=SessionStatus.COMPLETED if completed else SessionStatus.STARTED,
            answers=(Answer(question_id=BLINDED.id, value=False, key="false"),),
            at_utc=AT,
        ),
    )


def _decision(stage: UUID | None) -> Callable[[Host, UUID, UUID], Envelope]:
    return lambda host, project, study: ScreeningWriter(host, project).open(study, ANNA, stage=stage)


def _decide(decision: Decision) -> Callable[[Host, Envelope], Saved]:
    return lambda host, envelope: ScreeningWriter(host, envelope.project).save(envelope, decision)


def _act(act: SessionAct, *, reconciliation: bool = False) -> Callable[[Host, UUID, UUID], Envelope]:
    return lambda host, project, study: AnnotationWriter(host, project).open(
        study, ANNA, EXTRACTION.id, act, reconciliation=reconciliation
    )


def _answer(answers: Mapping[UUID, bool | int | str] | None) -> Callable[[Host, Envelope], Saved]:
    return lambda host, envelope: AnnotationWriter(host, envelope.project).save(envelope, answers)


def _release(host: Host, project: UUID, study: UUID) -> Envelope:
    return ReservationWriter(host, project).open(study, ANNA, EXTRACTION.id)


def _let_go(host: Host, envelope: Envelope) -> Saved:
    return ReservationWriter(host, envelope.project).save(envelope)


def _claim(host: Host, project: UUID, study: UUID) -> Envelope:
    """Claims have none; this only carries who claims what."""
    return open_envelope(host, REVIEW, PlaceClaim(project, study, ANNA, EXTRACTION.id).stream)


def _take(host: Host, envelope: Envelope) -> Saved | None:
    return ClaimWriter(host, envelope.project).claim(envelope.aggregate, envelope.actor, EXTRACTION.id)


_UNDECIDED = {"screenings": _decisions(BEN), "inclusion_info": InclusionInfo(screened=1, included=1)}
_STARTED = {"sessions": _session(completed=False)}
_COMPLETED = {"sessions": _session(completed=True)}
_STARTS = {"slot_reservations": _place(EXTRACTION)}

DOINGS = {
    doing.name: doing
    for doing in (
        Doing(
            "decide and cross, from a place",
            _decision(SCREENING.id),
            _decide(Decision.INCLUDE),
            _decide(Decision.EXCLUDE),
            {**_UNDECIDED, "slot_reservations": _place(SCREENING)},
            receipts=2,
        ),
        Doing("start a session, from a place", _act(SessionAct.SAVE), _answer(ANSWERS), _answer(OTHERS), _STARTS),
        Doing(
            "start a reconciliation",
            _act(SessionAct.SAVE, reconciliation=True),
            _answer(ANSWERS),
            _answer(None),
            _COMPLETED,
        ),
        Doing(
            "complete",
            _act(SessionAct.COMPLETE),
            _answer(None),
            _answer(OTHERS),
            {"sessions": _session(completed=False)},
        ),
        Doing("edit", _act(SessionAct.SAVE), _answer(ANSWERS), _answer({}), {"sessions": _session(completed=True)}),
        Doing("delete", _act(SessionAct.DELETE), _answer(None), None, {"sessions": _session(completed=True)}),
        Doing("release", _release, _let_go, None, _STARTS),
        Doing("claim", _claim, _take, None, {}),
    )
}


@contextmanager
def done_to(settings: Settings, arm: Arm) -> Iterator[Review]:
    """A review without studies that all doings fit, Anna and Ben its members, its families on; not backfilled."""
    with review(
        settings,
        studies=0,
        families=ALL_FAMILIES,
        stages=(EXTRACTION, SCREENING),
        questions=(BLINDED,),
        **arms.options(arm),
    ) as opened:
        members = [Membership(investigator_id=who, joined_at_utc=AT).to_bson() for who in (ANNA, BEN)]
        opened.mongo.collection(PROJECTS).update_one({"_id": opened.project}, {"$set": {"Memberships": members}})
        yield opened


def insert(opened: Review, doing: Doing, number: int = 1) -> tuple[UUID, ...]:
    """That many studies to do it to."""
    studies = [doing.study(opened.project) for _ in range(number)]
    opened.mongo.collection(STUDIES).insert_many([study.to_bson() for study in studies])
    return tuple(study.id for study in studies)
