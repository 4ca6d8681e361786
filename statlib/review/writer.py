"""Saving a screening decision: open a study, hold the envelope, submit; or submit in one call."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.review.catalogue import REVIEW
from statlib.review.documents import Project, Study
from statlib.review.screening import Decision, decide, inclusion_info
from statlib.statistics.attempts import save
from statlib.statistics.bounds import SUBMISSION_ROUNDS_MAX
from statlib.statistics.catalogue import Document
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Saved, SourceWrite
from statlib.statistics.reasons import SaveReason
from statlib.statistics.sources import load

SCREENING_NAMESPACE = "stats.source.screening"


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
        counted = inclusion_info(after, project.agreement_threshold)
        info = study.inclusion_info.model_copy(update=dict(counted))  # fields that only another release knows stay
        return SourceWrite(
            fields={
                "Screenings": [screening.to_bson() for screening in after],
                "InclusionInfo": info.to_bson(),
            }
        )


@dataclass(frozen=True, slots=True)
class ScreeningWriter:
    """Screening decisions of one project, saved through ``host``."""

    host: Host
    project: UUID

    def open(self, study: UUID, investigator: UUID) -> Envelope:
        """Read the study and mint the envelope of one submission. Refuses SourceNotFound, ProjectNotFound."""
        self.host.require_open()
        loaded = load(self.host.mongo, REVIEW, self.project, study)
        return Envelope(
            namespace=SCREENING_NAMESPACE,
            stream=f"screening:{study}:{investigator}",
            project=self.project,
            aggregate=study,
            actor=investigator,
            stage=None,
            expected=loaded.version,
            opening=loaded.opening,
            created_at=loaded.now,
            loaded=loaded,
        )

    def save(self, envelope: Envelope, decision: Decision, *, at: datetime | None = None) -> Saved:
        """Deliver a decision under an envelope, any number of times: it is saved at most once.

        Raises Refusal: VersionStale, DigestMismatch, AttemptsExhausted, GateSkew (nothing was saved), or
        StatisticsOperationUnresolved (nobody can know).
        """
        return save(self.host, REVIEW, envelope, ScreeningChange(decision, at))

    def submit(self, study: UUID, investigator: UUID, decision: Decision, *, at: datetime | None = None) -> Saved:
        """Open and save, again on a document that moved meanwhile: at most three rounds."""
        for last_round in range(1, SUBMISSION_ROUNDS_MAX + 1):
            envelope = self.open(study, investigator)
            try:
                return self.save(envelope, decision, at=at)
            except Refusal as refusal:
                if refusal.reason is not SaveReason.VersionStale or last_round == SUBMISSION_ROUNDS_MAX:
                    raise
        raise AssertionError("unreachable: the last round returns or raises")
