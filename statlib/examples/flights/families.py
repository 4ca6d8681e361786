"""What is counted: flights by origin, and flights by carrier, each split by the other.

Counters of a scope: ``Flights``; ``Status/{status}``; ``Late`` departures; and of each counterpart c (a carrier at an
origin, an origin of a carrier) ``{c}/Flights`` and ``{c}/Late``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from statlib.examples.flights.documents import Flight, Logbook, Status
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters, minus
from statlib.statistics.documents import TrackingMode


@dataclass(frozen=True, slots=True)
class LogbookContext:
    """The parameters of every calculation in one logbook."""

    origins: tuple[str, ...]
    carriers: tuple[str, ...]
    late_from_minutes: int


@dataclass(frozen=True, slots=True)
class FlightEvidence:
    """The counted part of a flight. Everything else of it may change without any counter being touched."""

    origin: str
    carrier: str
    status: Status
    delay_minutes: int | None

    def counted_as_late(self, context: LogbookContext) -> bool:
        return self.delay_minutes is not None and self.delay_minutes >= context.late_from_minutes


class FlightDomain:
    """The engine's view of flights and logbooks."""

    def context(self, project: Document, tracking: TrackingMode) -> LogbookContext:
        logbook = Logbook.from_bson(project)
        return LogbookContext(logbook.origins, logbook.carriers, logbook.late_from_minutes)

    def evidence(self, source: Document) -> FlightEvidence:
        flight = Flight.from_bson(source)
        return FlightEvidence(flight.origin, flight.carrier, flight.status, flight.delay_minutes)


class Dimension(StrEnum):
    ORIGIN = "origin"
    CARRIER = "carrier"


@dataclass(frozen=True, slots=True)
class FlightFamily:
    """Flights by one dimension; scopes are ``origin/{code}`` or ``carrier/{code}``."""

    name: str
    by: Dimension

    def declared_scopes(self, context: LogbookContext) -> tuple[str, ...]:
        codes = context.origins if self.by is Dimension.ORIGIN else context.carriers
        return tuple(f"{self.by}/{code}" for code in codes)

    def parameters(self, context: LogbookContext, scope: str) -> Any:
        return context.late_from_minutes

    def aggregation(self, project: UUID, context: LogbookContext) -> Pipeline:
        """Grouped by all that is counted on the server: a few hundred groups come back, whatever the year's traffic."""
        late = {"$gte": ["$DelayMinutes", context.late_from_minutes]}  # a missing delay sorts below every number
        key = {"origin": "$Origin", "carrier": "$Carrier", "status": "$Status", "late": late}
        return [{"$match": {"ProjectId": project}}, {"$group": {"_id": key, "Flights": {"$sum": 1}}}]

    def collect(self, groups: Iterable[Document], context: LogbookContext) -> Mapping[str, Counters]:
        scopes: dict[str, Counter[str]] = {}
        for group in groups:
            key = group["_id"]
            one = self._counters(key["origin"], key["carrier"], Status(key["status"]), late=key["late"])
            into = scopes.setdefault(self._scope(key["origin"], key["carrier"]), Counter())
            into.update({counter: value * group["Flights"] for counter, value in one.items()})
        return scopes

    def derive(self, before: FlightEvidence, after: FlightEvidence, context: LogbookContext) -> Effect:
        old, new = self._contribution(before, context), self._contribution(after, context)
        moves = {scope: minus(new.get(scope, {}), old.get(scope, {})) for scope in {*old, *new}}
        return Effect(moves={scope: changes for scope, changes in moves.items() if changes})

    def _contribution(self, flight: FlightEvidence, context: LogbookContext) -> dict[str, Counters]:
        late = flight.counted_as_late(context)
        counters = self._counters(flight.origin, flight.carrier, flight.status, late=late)
        return {self._scope(flight.origin, flight.carrier): counters}

    def _scope(self, origin: str, carrier: str) -> str:
        return f"{self.by}/{origin if self.by is Dimension.ORIGIN else carrier}"

    def _counters(self, origin: str, carrier: str, status: Status, *, late: bool) -> dict[str, int]:
        other = carrier if self.by is Dimension.ORIGIN else origin
        counters = {"Flights": 1, f"Status/{status}": 1, f"{other}/Flights": 1}
        return counters | ({"Late": 1, f"{other}/Late": 1} if late else {})


BY_ORIGIN = FlightFamily("FlightsByOrigin", Dimension.ORIGIN)
BY_CARRIER = FlightFamily("FlightsByCarrier", Dimension.CARRIER)
