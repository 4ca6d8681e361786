"""What a deployment's database says of it, as gauges of the one meter.

A scrape reads the database, at most once in ``READING_LASTS_S`` however many scrape. An unreachable database is a
value of its own (``database.reachable`` is 0) and leaves every other gauge out, because an old number is no number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from pymongo.errors import PyMongoError

from statlib.kernel import telemetry
from statlib.kernel.refusals import Refusal
from statlib.kernel.telemetry import Reading
from statlib.mongo.connection import Mongo
from statlib.passes.audit import server_time
from statlib.schedule.documents import SLOT
from statlib.schedule.states import SlotState
from statlib.statistics.bounds import DELTA_LEDGER_ROWS_MAX
from statlib.statistics.documents import (
    CONTROL,
    GLOBAL_CONTROL,
    GLOBAL_ID,
    GUARD,
    LEASE,
    MEMBER,
    FoldMode,
    Mode,
    State,
)
from statlib.statistics.hosts import Role, live_filter
from statlib.workers import queries
from statlib.workers.outbox import owed

READING_LASTS_S = 5.0
SLOTS_WITHIN = timedelta(days=1)
_NO_LEDGER: Mapping[str, Any] = {"Most": 0, "Oldest": None, "Projects": 0}


class Gate(Enum):
    """Whether readers may be served: both the fleet's gate and the project's must be open."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Deployment:
    """One reading. Counts; ``oldest_open_slot_age_s`` is 0 where no slot waits or runs;
    ``ledger_oldest_age_s`` where every ledger is empty.

    ``fold_worker_heartbeat_age_s``: of the newest heartbeat of any protocol. Where there never was one, since the
    first project was let fold; 0 where none ever was.
    """

    fleet_open: bool
    projects: int
    families: Mapping[tuple[State, Gate], int]
    ledger_headroom: int
    ledger_oldest_age_s: float
    hosts: Mapping[Role, int]
    leases_held: int
    slots: Mapping[SlotState, int]
    oldest_open_slot_age_s: float
    outbox_owed: int
    fold_projects: Mapping[FoldMode, int]
    fold_worker_heartbeat_age_s: float


def read_deployment(mongo: Mongo) -> Deployment:
    """Read everything now. Reads only; registers no host, so watching a deployment never changes what it serves."""
    now = server_time(mongo)
    fleet = mongo.collection(GLOBAL_CONTROL).find_one({"_id": GLOBAL_ID}, {"Mode": 1})
    fleet_open = fleet is not None and fleet["Mode"] == Mode.ENABLED
    ledger = next(iter(mongo.collection(CONTROL).aggregate(queries.fullest_ledger())), _NO_LEDGER)
    slots = list(mongo.collection(SLOT).aggregate(queries.slots_by_state(now - SLOTS_WITHIN)))
    return Deployment(
        fleet_open=fleet_open,
        projects=int(ledger["Projects"]),
        families=_families(mongo, fleet_open=fleet_open),
        ledger_headroom=max(0, DELTA_LEDGER_ROWS_MAX - int(ledger["Most"])),
        ledger_oldest_age_s=max(0.0, (now - (ledger["Oldest"] or now)).total_seconds()),
        hosts=_hosts(mongo),
        leases_held=mongo.collection(LEASE).count_documents(queries.unexpired(mongo.clock.mongo_now())),
        slots={state: sum(int(s["Count"]) for s in slots if s["_id"] == state) for state in SlotState},
        oldest_open_slot_age_s=_oldest_age_s(slots, now),
        outbox_owed=owed(mongo),
        fold_projects=_fold_projects(mongo),
        fold_worker_heartbeat_age_s=_heartbeat_age_s(mongo, now),
    )


class DeploymentGauges:
    """The last reading, shared by every gauge."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._reading: Deployment | None = None

    def declare(self) -> None:
        """Make the gauges known to the meter; once in a process."""
        for name, unit, description, values in GAUGES:
            telemetry.observe(name, self._reader(values), unit=unit, description=description)
        telemetry.observe(
            "database.reachable",
            lambda: [Reading(float(self.reading() is not None))],
            unit="{database}",
            description="1 if the database answered the last reading",
        )
        telemetry.observe(
            "clock.offset",
            lambda: [Reading(self._mongo.clock.offset_ms / 1000)],
            unit="s",
            description="seconds by which a rehearsal advanced every clock; 0 in production",
        )

    def reading(self) -> Deployment | None:
        """The deployment as it was at most ``READING_LASTS_S`` ago; None if its database does not answer."""
        with self._lock:
            if time.monotonic() - self._read_at >= READING_LASTS_S:
                try:
                    self._reading = read_deployment(self._mongo)
                except (PyMongoError, Refusal):
                    self._reading = None
                self._read_at = time.monotonic()
            return self._reading

    def _reader(self, values: Callable[[Deployment], Iterable[Reading]]) -> Callable[[], Iterable[Reading]]:
        def read() -> Iterable[Reading]:
            reading = self.reading()
            return values(reading) if reading is not None else ()

        return read


Gauge = tuple[str, str, str, Callable[[Deployment], Iterable[Reading]]]

GAUGES: tuple[Gauge, ...] = (
    (
        "fleet.open",
        "{fleet}",
        "1 if the fleet's gate is open",
        lambda found: [Reading(float(found.fleet_open))],
    ),
    (
        "projects",
        "{project}",
        "projects that have a control",
        lambda found: [Reading(found.projects)],
    ),
    (
        "families",
        "{family}",
        "families of all projects by state and gate; served are the Fresh ones behind an open gate",
        lambda found: [
            Reading(count, {"state": state, "gate": gate}) for (state, gate), count in found.families.items()
        ],
    ),
    (
        "ledger.headroom",
        "{row}",
        "rows that the fullest ledger still takes before its project's families go stale with every save",
        lambda found: [Reading(found.ledger_headroom)],
    ),
    (
        "ledger.oldest.age",
        "s",
        "since the oldest row of any ledger was observed; at ninety days its ledger takes no more",
        lambda found: [Reading(found.ledger_oldest_age_s)],
    ),
    (
        "outbox.owed",
        "{slot}",
        "changes that no receiver has taken yet, coalesced per family; they stay where no dispatcher runs",
        lambda found: [Reading(found.outbox_owed)],
    ),
    (
        "fold.projects",
        "{project}",
        "projects by fold mode",
        lambda found: [Reading(count, {"mode": mode}) for mode, count in found.fold_projects.items()],
    ),
    (
        "fold.worker_heartbeat_age",
        "s",
        "since a fold worker last gave a sign of life",
        lambda found: [Reading(found.fold_worker_heartbeat_age_s)],
    ),
    (
        "hosts.live",
        "{host}",
        "hosts that renewed their record within two minutes",
        lambda found: [Reading(count, {"role": role}) for role, count in found.hosts.items()],
    ),
    (
        "leases.held",
        "{lease}",
        "rebuild leases that have not run out",
        lambda found: [Reading(found.leases_held)],
    ),
    (
        "schedule.slots",
        "{slot}",
        "slots that are under way, and those that fell due within a day, by state",
        lambda found: [Reading(count, {"state": state}) for state, count in found.slots.items()],
    ),
    (
        "schedule.oldest.open.slot.age",
        "s",
        "since the oldest slot that is not over yet fell due",
        lambda found: [Reading(found.oldest_open_slot_age_s)],
    ),
)


def _families(mongo: Mongo, *, fleet_open: bool) -> Mapping[tuple[State, Gate], int]:
    """Every combination is there, also at zero: an alert cannot fire on a series that is missing."""
    found = {(state, gate): 0 for state in State for gate in Gate}
    for counted in mongo.collection(GUARD).aggregate(queries.families_by_state()):
        is_open = fleet_open and counted["_id"]["Open"]
        found[State(counted["_id"]["State"]), Gate.OPEN if is_open else Gate.CLOSED] += int(counted["Count"])
    return found


def _hosts(mongo: Mongo) -> Mapping[Role, int]:
    found = dict.fromkeys(Role, 0)
    live: list[dict[str, Any]] = [{"$match": live_filter(mongo)}, dict(queries.counted_by("Deployment"))]
    for counted in mongo.collection(MEMBER).aggregate(live):
        found[Role(counted["_id"])] = int(counted["Count"])
    return found


def _fold_projects(mongo: Mongo) -> Mapping[FoldMode, int]:
    found = dict.fromkeys(FoldMode, 0)
    for counted in mongo.collection(CONTROL).aggregate([dict(queries.counted_by("FoldMode"))]):
        found[FoldMode(counted["_id"] or FoldMode.DISABLED)] += int(counted["Count"])
    return found


def _heartbeat_age_s(mongo: Mongo, now: datetime) -> float:
    fleet = mongo.collection(GLOBAL_CONTROL).find_one({"_id": GLOBAL_ID}, {"FoldWorkerHeartbeats": 1}) or {}
    beats = [beat["RenewedAtUtc"] for beat in (fleet.get("FoldWorkerHeartbeats") or {}).values()]
    if not beats:
        first = mongo.collection(CONTROL).find_one(
            {"FoldEnabledAtUtc": {"$ne": None}}, {"FoldEnabledAtUtc": 1}, sort=[("FoldEnabledAtUtc", 1)]
        )
        beats = [first["FoldEnabledAtUtc"]] if first else []
    return max(0.0, (now - max(beats)).total_seconds()) if beats else 0.0


def _oldest_age_s(slots: Iterable[Mapping[str, Any]], now: datetime) -> float:
    open_states = {SlotState.DUE, SlotState.CLAIMED, SlotState.RUNNING}
    oldest = [slot["Oldest"] for slot in slots if slot["_id"] in open_states]
    return max(0.0, (now - min(oldest)).total_seconds()) if oldest else 0.0
