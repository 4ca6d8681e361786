"""Saving, completing and deleting annotation sessions: open a study, hold the envelope, submit; or submit in one call.

A session belongs to one investigator on one stage of one study, as a candidate or as a reconciliation, and an
investigator has at most one of each there. The envelope names it from the start: the one that stands, or the one that
the first save is going to make. A save lets go of the investigator's own reservation on the stage in the same write.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from statlib.kernel.refusals import Refusal
from statlib.review.answers import Answers, answered, require_room, submitted
from statlib.review.catalogue import REVIEW
from statlib.review.documents import Project, Session, SessionStatus, StageKind, Study
from statlib.review.namespaces import ANNOTATION_NAMESPACE
from statlib.review.reasons import ReviewReason
from statlib.review.stages import annotation_fields, project_as_opened, stage_of, study_as_opened, without_reservation
from statlib.statistics.attempts import save
from statlib.statistics.catalogue import Document
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Saved, SourceWrite
from statlib.statistics.submissions import Stream, in_rounds, open_envelope


class SessionAct(StrEnum):
    """What is done to a session; its operation ids begin with it.

    ``SAVE`` starts a session, or edits it in whatever status it is. ``COMPLETE`` starts one too if there is none.
    """

    SAVE = "session-save"
    COMPLETE = "session-complete"
    DELETE = "session-delete"


@dataclass(frozen=True, slots=True)
class SessionChange:
    """One act on one session. ``answers`` replace those that stand; None leaves them. ``at``: when it was done, for
    replays; None takes the time of opening."""

    act: SessionAct
    session: UUID
    answers: Answers | None = None
    at: datetime | None = None

    @property
    def intent(self) -> Any:
        return [self.act.value, self.session, None if self.answers is None else submitted(self.answers)]

    def apply(self, source: Document, context: Document, envelope: Envelope) -> SourceWrite:
        study, project = Study.from_bson(source), Project.from_bson(context)
        stage = stage_of(project, envelope.stage, StageKind.ANNOTATION).id
        standing = _own(study, self.session, stage, envelope.actor)
        if self.act is SessionAct.DELETE:
            if standing is None:
                raise Refusal(ReviewReason.SessionUnknown, f"session {self.session}")
            others = tuple(session for session in study.sessions if session is not standing)
            return SourceWrite(annotation_fields(study, others, study.slot_reservations))
        session = standing or self._started(study, stage, envelope)
        changed = self._changed(session, project, envelope)
        sessions = (
            (*study.sessions, changed)
            if standing is None
            else tuple(changed if s is standing else s for s in study.sessions)
        )
        if self.answers is not None:
            require_room(study.id, sessions)
        return SourceWrite(annotation_fields(study, sessions, without_reservation(study, stage, envelope.actor)))

    def _started(self, study: Study, stage: UUID, envelope: Envelope) -> Session:
        """A session that is not there is made only by the envelope that was minted to make it."""
        for reconciliation in (False, True):
            if self.session == new_session_id(study.id, stage, envelope.actor, envelope.expected, reconciliation):
                if (other := own_session(study, stage, envelope.actor, reconciliation=reconciliation)) is not None:
                    raise Refusal(ReviewReason.SessionExists, f"session {other.id} of {envelope.actor}")
                return Session(
                    id=self.session,
                    stage_id=stage,
                    investigator_id=envelope.actor,
                    reconciliation=reconciliation,
                    at_utc=self.at or envelope.created_at,
                )
        raise Refusal(ReviewReason.SessionUnknown, f"session {self.session}")

    def _changed(self, session: Session, project: Project, envelope: Envelope) -> Session:
        """Unchanged, its time included, where it already is what was submitted."""
        answers = session.answers
        if self.answers is not None:
            asked = (question for question in project.questions if question.stage_id == session.stage_id)
            answers = answered(asked, self.answers, session.answers)
        status = SessionStatus.COMPLETED if self.act is SessionAct.COMPLETE else session.status
        if (answers, status) == (session.answers, session.status):
            return session
        # Validated anew, not copied with an update: a copy would keep more of a time than the database does.
        return Session.from_bson(
            {
                **session.to_bson(),
                "Answers": [answer.to_bson() for answer in answers],
                "Status": status,
                "AtUtc": self.at or envelope.created_at,
            }
        )


def own_session(study: Study, stage: UUID, investigator: UUID, *, reconciliation: bool) -> Session | None:
    """The session of that sort that the investigator has there."""
    sort = (stage, investigator, reconciliation)
    return next((s for s in study.sessions if (s.stage_id, s.investigator_id, s.reconciliation) == sort), None)


def new_session_id(study: UUID, stage: UUID, investigator: UUID, expected: int, reconciliation: bool) -> UUID:
    """Of the session that an envelope opened at that revision may start.

    Told by what it is made for, so that whoever opens twice starts one session, and a late save of a session that was
    deleted meanwhile is known for what it is.
    """
    return uuid5(study, f"{stage}:{investigator}:{expected}:{'reconciliation' if reconciliation else 'candidate'}")


def _stream(act: SessionAct, study: UUID, stage: UUID, session: UUID) -> str:
    return f"{act.value}:{study}:{stage}:{session}"


def _own(study: Study, session: UUID, stage: UUID, investigator: UUID) -> Session | None:
    found = next((s for s in study.sessions if s.id == session and s.stage_id == stage), None)
    if found is not None and found.investigator_id != investigator:
        raise Refusal(ReviewReason.SessionOfAnother, f"session {session}")
    return found


@dataclass(frozen=True, slots=True)
class AnnotationWriter:
    """Annotation sessions of one project, saved through ``host``. Investigators need not be members."""

    host: Host
    project: UUID

    def open(
        self,
        study: UUID,
        investigator: UUID,
        stage: UUID,
        act: SessionAct = SessionAct.SAVE,
        *,
        session: UUID | None = None,
        reconciliation: bool = False,
    ) -> Envelope:
        """Read the study and mint the envelope of one submission, which names the session in its ``part``.

        Without ``session`` it is the investigator's own candidate (or ``reconciliation``) there, or else a new one.
        Refuses SourceNotFound, ProjectNotFound, StageUnknown, NotAnnotationStage, SessionUnknown, SessionOfAnother.
        """
        kind = Stream(ANNOTATION_NAMESPACE, act.value, self.project, study, investigator, stage)
        envelope = open_envelope(self.host, REVIEW, kind)
        stage_of(project_as_opened(envelope), stage, StageKind.ANNOTATION)
        stored = study_as_opened(envelope)
        if session is None:
            own = own_session(stored, stage, investigator, reconciliation=reconciliation)
            session = own.id if own else new_session_id(study, stage, investigator, envelope.expected, reconciliation)
        elif _own(stored, session, stage, investigator) is None:
            raise Refusal(ReviewReason.SessionUnknown, f"session {session}")
        return replace(
            envelope,
            stream=_stream(act, study, stage, session),
            part=session,
            siblings=tuple(_stream(other, study, stage, session) for other in SessionAct if other is not act),
        )

    def save(self, envelope: Envelope, answers: Answers | None = None, *, at: datetime | None = None) -> Saved:
        """Deliver the act that the envelope was opened for, any number of times: it is done at most once.

        ``answers`` become all that the session answers; None leaves what it answers. Each must be to a question of
        the stage, and of the sort that it asks for; they are counted under their canonical key.

        Raises Refusal: AnswerInvalid, AnswersTooLong, SessionUnknown, SessionExists, and as every save VersionStale,
        DigestMismatch, AttemptsExhausted, GateSkew (nothing was saved), or StatisticsOperationUnresolved (nobody can
        know).
        """
        act = SessionAct(envelope.stream.partition(":")[0])
        if envelope.part is None:
            raise ValueError(f"{envelope.operation_id} is no envelope of a session")
        if act is SessionAct.DELETE and answers is not None:
            raise Refusal(ReviewReason.AnswerInvalid, "a session that is deleted answers nothing")
        return save(self.host, REVIEW, envelope, SessionChange(act, envelope.part, answers, at))

    def submit(
        self,
        study: UUID,
        investigator: UUID,
        stage: UUID,
        act: SessionAct,
        answers: Answers | None = None,
        *,
        session: UUID | None = None,
        reconciliation: bool = False,
        at: datetime | None = None,
    ) -> Saved:
        """Open and save, again on a document that moved meanwhile: at most three rounds."""

        def deliver() -> Saved:
            envelope = self.open(study, investigator, stage, act, session=session, reconciliation=reconciliation)
            return self.save(envelope, answers, at=at)

        return in_rounds(deliver)
