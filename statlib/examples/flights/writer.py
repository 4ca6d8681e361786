"""Saving what became of a flight: the engine's envelope, attempts and receipts, and one pure function of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from statlib.examples.flights.catalogue import FLIGHT_STATISTICS
from statlib.examples.flights.documents import Status
from statlib.statistics.attempts import save
from statlib.statistics.catalogue import Document
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Saved, SourceWrite
from statlib.statistics.submissions import Stream, open_envelope, submit

NAMESPACE = "stats.source.flight"


@dataclass(frozen=True, slots=True)
class Departure:
    """A flight left ``delay_minutes`` late (early if negative); a later report corrects an earlier one."""

    delay_minutes: int

    @property
    def intent(self) -> Any:
        return ["departed", self.delay_minutes]

    def apply(self, source: Document, context: Document, envelope: Envelope) -> SourceWrite:
        return SourceWrite(fields={"Status": Status.DEPARTED.value, "DelayMinutes": self.delay_minutes})


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A flight did not leave."""

    @property
    def intent(self) -> Any:
        return ["cancelled"]

    def apply(self, source: Document, context: Document, envelope: Envelope) -> SourceWrite:
        return SourceWrite(fields={"Status": Status.CANCELLED.value, "DelayMinutes": None})


@dataclass(frozen=True, slots=True)
class FlightWriter:
    """Reports of one actor (an airport's desk, say) on flights of one logbook."""

    host: Host
    logbook: UUID
    actor: UUID

    def open(self, flight: UUID) -> Envelope:
        """Read the flight and mint the envelope of one report. Refuses SourceNotFound, ProjectNotFound."""
        return open_envelope(self.host, FLIGHT_STATISTICS, self._stream(flight))

    def save(self, envelope: Envelope, report: Departure | Cancellation) -> Saved:
        """Deliver a report under an envelope, any number of times: it is saved at most once."""
        return save(self.host, FLIGHT_STATISTICS, envelope, report)

    def submit(self, flight: UUID, report: Departure | Cancellation) -> Saved:
        """Open and save, again on a flight that changed meanwhile: at most three rounds."""
        return submit(self.host, FLIGHT_STATISTICS, self._stream(flight), report)

    def _stream(self, flight: UUID) -> Stream:
        return Stream(NAMESPACE, f"flight:{flight}:{self.actor}", self.logbook, flight, self.actor)
