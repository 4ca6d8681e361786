"""What PostgreSQL says of a deployment's backfills, as gauges of the one meter.

A scrape reads the database, at most once in ``READING_LASTS_S``. One that does not answer is a value of its own
(``postgres.reachable`` is 0) and leaves every other gauge out: what is not known is missing, and never an old number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import TypeVar

import psycopg

from statlib.backfills.registry import Registry
from statlib.backfills.standing import Gate, Standing, read_standing
from statlib.kernel import telemetry
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.kernel.telemetry import Reading
from statlib.postgres.connection import Postgres, connected

READING_LASTS_S = 5.0
Label = TypeVar("Label", bound=Enum)


class BackfillGauges:
    """The last reading, shared by every gauge. The database may be away when this begins: it is looked for again."""

    def __init__(self, settings: Settings, registry: Registry, stack: ExitStack) -> None:
        self._settings = settings
        self._registry = registry
        self._stack = stack
        self._postgres: Postgres | None = None
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._reading: Standing | None = None

    def declare(self) -> None:
        """Make the gauges known to the meter; once in a process."""
        for name, unit, description, values in GAUGES:
            telemetry.observe(name, self._reader(values), unit=unit, description=description)
        telemetry.observe(
            "postgres.reachable",
            lambda: [Reading(float(self.reading() is not None))],
            unit="{database}",
            description="1 if PostgreSQL answered the last reading",
        )

    def reading(self) -> Standing | None:
        """Backfills as they were at most ``READING_LASTS_S`` ago; None if PostgreSQL does not answer."""
        with self._lock:
            if time.monotonic() - self._read_at >= READING_LASTS_S:
                try:
                    self._reading = read_standing(self._connected(), self._registry)
                except (psycopg.Error, Refusal):
                    self._reading = None
                self._read_at = time.monotonic()
            return self._reading

    def _connected(self) -> Postgres:
        if self._postgres is None:
            self._postgres = self._stack.enter_context(connected(self._settings, app_name="statlib-metrics"))
        return self._postgres

    def _reader(self, values: Callable[[Standing], Iterable[Reading]]) -> Callable[[], Iterable[Reading]]:
        def read() -> Iterable[Reading]:
            reading = self.reading()
            return values(reading) if reading is not None else ()

        return read


@contextmanager
def backfill_gauges(settings: Settings, registry: Registry) -> Iterator[BackfillGauges]:
    """Gauges whose connections end with the block."""
    with ExitStack() as stack:
        yield BackfillGauges(settings, registry, stack)


def _by(label: str, values: Mapping[Label, float]) -> Iterable[Reading]:
    return [Reading(float(value), {label: key}) for key, value in values.items()]


Gauge = tuple[str, str, str, Callable[[Standing], Iterable[Reading]]]

GAUGES: tuple[Gauge, ...] = (
    ("backfills", "{backfill}", "backfills by lifecycle", lambda found: _by("lifecycle", found.lifecycles)),
    (
        "backfills.gate",
        "{gate}",
        "what backfills make of readiness: 1 at the one that holds, for the settings of this process",
        lambda found: _by("gate", {gate: float(gate is found.gate) for gate in Gate}),
    ),
    (
        "backfills.claims",
        "{claim}",
        "claims that are held, and those of lost workers that nobody has taken over",
        lambda found: _by("standing", found.claims),
    ),
    (
        "backfills.rows",
        "{row}",
        "rows that committed batches selected and changed, of all backfills",
        lambda found: _by("rows", found.rows),
    ),
    ("backfills.batches", "{batch}", "batches that committed", lambda found: [Reading(found.batches)]),
    (
        "backfills.stalled",
        "s",
        "since the backfill at work that waited longest moved its checkpoint; 0 where none is at work",
        lambda found: [Reading(found.stalled_s)],
    ),
    (
        "backfills.retried",
        "{backfill}",
        "backfills with tries since their last progress",
        lambda found: [Reading(found.retried)],
    ),
    (
        "backfills.failures",
        "{backfill}",
        "backfills whose last try failed, by what went wrong",
        lambda found: _by("kind", found.failures),
    ),
    (
        "backfills.validations",
        "{backfill}",
        "backfills by what their last validation said",
        lambda found: _by("outcome", found.proofs),
    ),
    (
        "backfills.spent",
        "s",
        "seconds that committed batches and validations took, of all backfills",
        lambda found: _by("phase", found.spent_s),
    ),
)
