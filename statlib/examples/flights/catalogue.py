"""The registration: all that the engine is told of this domain."""

from __future__ import annotations

from statlib.examples.flights.documents import FLIGHTS, LOGBOOKS
from statlib.examples.flights.families import BY_CARRIER, BY_ORIGIN, FlightDomain, FlightEvidence, LogbookContext
from statlib.statistics.catalogue import Catalogue

FLIGHT_STATISTICS: Catalogue[LogbookContext, FlightEvidence] = Catalogue(
    source_collection=FLIGHTS,
    context_collection=LOGBOOKS,
    version=1,
    families={family.name: family for family in (BY_ORIGIN, BY_CARRIER)},
    domain=FlightDomain(),
)
