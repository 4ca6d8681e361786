"""Letting go of a reserved place on a stage: open a study, hold the envelope, submit; or submit in one call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from statlib.kernel import telemetry
from statlib.kernel.refusals import Refusal
from statlib.review.catalogue import REVIEW
from statlib.review.documents import Project, Study
from statlib.review.namespaces import ANNOTATION_NAMESPACE
from statlib.review.reasons import ReviewReason
from statlib.review.stages import annotation_fields, project_as_opened, stage_of
from statlib.statistics.attempts import save
from statlib.statistics.catalogue import Document
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Saved, SourceWrite
from statlib.statistics.submissions import Stream, in_rounds, open_envelope


class ReleaseCause(StrEnum):
    """Why a place is let go; counted, and otherwise of no effect."""

    EXPLICIT = "Explicit"
    IDLE = "Idle"
    DISCONNECT = "Disconnect"


@dataclass(frozen=True, slots=True)
class ReservationRelease:
    """Frees the place that the actor held on the envelope's stage when it was opened.

    One taken since then stays: an idle timer or a lost connection has nothing to say about it.
    """

    @property
    def intent(self) -> Any:
        return "Release"

    def apply(self, source: Document, context: Document, envelope: Envelope) -> SourceWrite:
        study = Study.from_bson(source)
        stage = stage_of(Project.from_bson(context), envelope.stage).id
        kept = tuple(
            held
            for held in study.slot_reservations
            if (held.stage_id, held.investigator_id) != (stage, envelope.actor) or held.at_utc > envelope.created_at
        )
        if kept == study.slot_reservations:
            raise Refusal(ReviewReason.ReservationUnknown, f"{envelope.actor} on stage {stage} of study {study.id}")
        return SourceWrite(annotation_fields(study, study.sessions, kept))


@dataclass(frozen=True, slots=True)
class ReservationWriter:
    """Releases of reserved places in one project, saved through ``host``. Places are taken by ``ClaimWriter``."""

    host: Host
    project: UUID

    def open(self, study: UUID, investigator: UUID, stage: UUID) -> Envelope:
        """Read the study and mint the envelope of one release.

        Refuses SourceNotFound, ProjectNotFound, StageUnknown.
        """
        stream = f"release:{study}:{stage}:{investigator}"
        wanted = Stream(ANNOTATION_NAMESPACE, stream, self.project, study, investigator, stage)
        envelope = open_envelope(self.host, REVIEW, wanted)
        stage_of(project_as_opened(envelope), stage)
        return envelope

    def save(self, envelope: Envelope, cause: ReleaseCause = ReleaseCause.EXPLICIT) -> Saved:
        """Deliver a release under an envelope, any number of times: it is done at most once.

        Raises Refusal: ReservationUnknown, and as every save VersionStale, DigestMismatch, AttemptsExhausted, GateSkew
        (nothing was saved), or StatisticsOperationUnresolved (nobody can know).
        """
        saved = save(self.host, REVIEW, envelope, ReservationRelease())
        if not saved.duplicate:
            telemetry.count("reservations.released", cause=cause)
        return saved

    def release(
        self, study: UUID, investigator: UUID, stage: UUID, cause: ReleaseCause = ReleaseCause.EXPLICIT
    ) -> Saved:
        """Open and save, again on a document that moved meanwhile: at most three rounds."""
        return in_rounds(lambda: self.save(self.open(study, investigator, stage), cause))
