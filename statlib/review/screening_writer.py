"""Saving a screening decision: open a study, hold the envelope, submit; or submit in one call.

A decision made on a screening stage lets go of the investigator's own place there in the same write. Where the write
moves annotation statistics too (a place let go, or another inclusion class in a project with stages), it carries one
operation in their namespace as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from statlib.review.catalogue import REVIEW
from statlib.review.documents import InclusionInfo, Project, Screening, StageKind, Study
from statlib.review.namespaces import ANNOTATION_FAMILIES, ANNOTATION_NAMESPACE, SCREENING_NAMESPACE
from statlib.review.screening import Decision, decide, inclusion_info
from statlib.review.stages import annotation_fields, project_as_opened, stage_of, without_reservation
from statlib.statistics.attempts import save
from statlib.statistics.catalogue import Document
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import FurtherOperation, Saved, SourceWrite
from statlib.statistics.submissions import Stream, in_rounds, open_envelope


@dataclass(frozen=True, slots=True)
class ScreeningChange:
    """One decision of one investigator. ``at``: when it was made, for replays; None takes the time of opening."""

    decision: Decision
    at: datetime | None = None

    @property
    def intent(self) -> Any:
        return self.decision.value

    def apply(self, source: Document, context: Document, envelope: Envelope) -> SourceWrite:
        study, project = Study.from_bson(source), Project.from_bson(context)
        after = decide(study.screenings, envelope.actor, self.decision, self.at or envelope.created_at)
        info = _counted(project, after)
        let_go = _letting_go(study, project, envelope)
        return SourceWrite(
            fields={
                "Screenings": [screening.to_bson() for screening in after],
                # fields that only another release knows stay
                "InclusionInfo": study.inclusion_info.model_copy(update=dict(info)).to_bson(),
                **let_go,
            },
            further=_further(
                envelope,
                crossed=bool(project.stages) and info.class_ is not _counted(project, study.screenings).class_,
                let_go=bool(let_go),
            ),
        )


def _counted(project: Project, screenings: tuple[Screening, ...]) -> InclusionInfo:
    return inclusion_info(screenings, project.agreement_threshold)


def _letting_go(study: Study, project: Project, envelope: Envelope) -> dict[str, Any]:
    """What the write sets to free the investigator's own place on the envelope's stage; nothing if they hold none."""
    if envelope.stage is None:
        return {}
    stage = stage_of(project, envelope.stage, StageKind.SCREENING)
    return annotation_fields(study, study.sessions, without_reservation(study, stage.id, envelope.actor))


def _further(envelope: Envelope, *, crossed: bool, let_go: bool) -> tuple[FurtherOperation, ...]:
    """One at most. It names its actor: of two decisions opened at one revision both may be saved, and both cross."""
    if crossed:
        what = f"inclusion:{envelope.aggregate}:-"
    elif let_go:
        what = f"release:{envelope.aggregate}:{envelope.stage}"
    else:
        return ()
    operation_id = f"{what}:{envelope.actor}:{envelope.expected}"
    return (FurtherOperation(ANNOTATION_NAMESPACE, operation_id, ANNOTATION_FAMILIES),)


@dataclass(frozen=True, slots=True)
class ScreeningWriter:
    """Screening decisions of one project, saved through ``host``."""

    host: Host
    project: UUID

    def open(self, study: UUID, investigator: UUID, *, stage: UUID | None = None) -> Envelope:
        """Read the study and mint the envelope of one submission, made on a screening ``stage`` or on none.

        Refuses SourceNotFound, ProjectNotFound, StageUnknown, NotScreeningStage.
        """
        stream = f"screening:{study}:{investigator}"
        wanted = Stream(SCREENING_NAMESPACE, stream, self.project, study, investigator, stage)
        envelope = open_envelope(self.host, REVIEW, wanted)
        if stage is not None:
            stage_of(project_as_opened(envelope), stage, StageKind.SCREENING)
        return envelope

    def save(self, envelope: Envelope, decision: Decision, *, at: datetime | None = None) -> Saved:
        """Deliver a decision under an envelope, any number of times: it is saved at most once.

        Raises Refusal: VersionStale, DigestMismatch, AttemptsExhausted, GateSkew (nothing was saved), or
        StatisticsOperationUnresolved (nobody can know).
        """
        return save(self.host, REVIEW, envelope, ScreeningChange(decision, at))

    def submit(
        self,
        study: UUID,
        investigator: UUID,
        decision: Decision,
        *,
        stage: UUID | None = None,
        at: datetime | None = None,
    ) -> Saved:
        """Open and save, again on a document that moved meanwhile: at most three rounds."""
        return in_rounds(lambda: self.save(self.open(study, investigator, stage=stage), decision, at=at))
