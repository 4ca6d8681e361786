"""The second domain's own arithmetic: derivation against a naive count, and what a row depends on."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from statlib.examples.flights.catalogue import FLIGHT_STATISTICS
from statlib.examples.flights.documents import Flight, Logbook, Status
from statlib.examples.flights.families import BY_CARRIER, BY_ORIGIN, Dimension, FlightFamily
from statlib.statistics.counters import Counters, plus, without_zeros
from statlib.statistics.documents import TrackingMode

LOGBOOK = Logbook(id=UUID(int=1), name="test", origins=("EWR", "JFK"), carriers=("AA", "UA"))
AT = datetime(2013, 1, 1, tzinfo=UTC)
DOMAIN = FLIGHT_STATISTICS.domain
CONTEXT = DOMAIN.context(LOGBOOK.to_bson(), TrackingMode.TRACKED)

flights = st.builds(
    Flight,
    id=st.integers(2, 6).map(lambda number: UUID(int=number)),
    project_id=st.just(LOGBOOK.id),
    origin=st.sampled_from(LOGBOOK.origins),
    destination=st.just("IAH"),
    carrier=st.sampled_from(LOGBOOK.carriers),
    number=st.integers(1, 9),
    scheduled_utc=st.just(AT),
    status=st.sampled_from(Status),
    delay_minutes=st.none() | st.integers(-20, 40),
)


def counted(known: dict[UUID, Flight], by: Dimension) -> dict[str, dict[str, int]]:
    """One flight at a time, sharing nothing with the families."""
    scopes: dict[str, Counter[str]] = {}
    for flight in known.values():
        code, other = (flight.origin, flight.carrier) if by == "origin" else (flight.carrier, flight.origin)
        into = scopes.setdefault(by + "/" + code, Counter())
        into["Flights"] += 1
        into["Status/" + flight.status.value] += 1
        into[other + "/Flights"] += 1
        if flight.delay_minutes is not None and flight.delay_minutes >= 15:
            into["Late"] += 1
            into[other + "/Late"] += 1
    return {scope: dict(counters) for scope, counters in scopes.items()}


@given(st.lists(flights, max_size=20), st.sampled_from([BY_ORIGIN, BY_CARRIER]))
def test_what_changes_derive_adds_up_to_what_is_there(history: list[Flight], family: FlightFamily) -> None:
    known: dict[UUID, Flight] = {}
    totals: dict[str, Counters] = {}
    for flight in history:
        before = known.get(flight.id)
        known[flight.id] = flight
        if before is None:  # how it comes to be there is the load's business; count it as it is
            totals = dict(counted(known, family.by))
            continue
        effect = family.derive(DOMAIN.evidence(before.to_bson()), DOMAIN.evidence(flight.to_bson()), CONTEXT)
        for scope, moves in effect.moves.items():
            totals[scope] = plus(totals.get(scope, {}), moves)
    nonzero = {scope: without_zeros(counters) for scope, counters in totals.items() if without_zeros(counters)}
    assert nonzero == counted(known, family.by)


def test_a_row_depends_on_what_counts_as_late_and_on_nothing_else_of_the_logbook() -> None:
    def digest(**changed: object) -> str:
        context = DOMAIN.context(LOGBOOK.model_copy(update=changed).to_bson(), TrackingMode.TRACKED)
        return FLIGHT_STATISTICS.configuration(context).digest(BY_ORIGIN.name, "origin/EWR")

    assert digest() == digest(name="another", carriers=("AA",))
    assert digest() != digest(late_from_minutes=30)


def test_scopes_are_declared_by_the_logbook() -> None:
    assert BY_ORIGIN.declared_scopes(CONTEXT) == ("origin/EWR", "origin/JFK")
    assert BY_CARRIER.declared_scopes(CONTEXT) == ("carrier/AA", "carrier/UA")
