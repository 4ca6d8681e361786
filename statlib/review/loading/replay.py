"""Submits the events of a loaded review, decisions and acts on sessions alike, each through its own writer."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from statlib.review.annotation_writer import AnnotationWriter
from statlib.review.loading.review import AnnotationEvent, DecisionEvent
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Saved

Event = DecisionEvent | AnnotationEvent


@dataclass(frozen=True, slots=True)
class EventWriter:
    """One writer of everything that a replay of ``project`` submits. Refusals are those of the writers behind it."""

    host: Host
    project: UUID

    def open(self, event: Event) -> Envelope:
        """Read the event's study and mint the envelope of one submission."""
        if isinstance(event, DecisionEvent):
            return self._screening.open(event.study_id, event.investigator_id)
        return self._annotation.open(
            event.study_id, event.investigator_id, event.stage_id, event.act, reconciliation=event.reconciliation
        )

    def save(self, envelope: Envelope, event: Event) -> Saved:
        """Deliver the event under an envelope, at its recorded time, any number of times: it is saved at most once."""
        if isinstance(event, DecisionEvent):
            return self._screening.save(envelope, event.decision, at=event.at)
        return self._annotation.save(envelope, event.answers, at=event.at)

    def submit(self, event: Event) -> Saved:
        """Open and save, again on a document that moved meanwhile, as often as the writers do."""
        if isinstance(event, DecisionEvent):
            return self._screening.submit(event.study_id, event.investigator_id, event.decision, at=event.at)
        return self._annotation.submit(
            event.study_id,
            event.investigator_id,
            event.stage_id,
            event.act,
            event.answers,
            reconciliation=event.reconciliation,
            at=event.at,
        )

    @property
    def _screening(self) -> ScreeningWriter:
        return ScreeningWriter(self.host, self.project)

    @property
    def _annotation(self) -> AnnotationWriter:
        return AnnotationWriter(self.host, self.project)
