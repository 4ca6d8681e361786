"""What an operator sees of schedules: what there is, what comes next, and what became of what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pymongo import DESCENDING

from statlib.mongo.connection import Mongo
from statlib.passes.audit import server_time
from statlib.schedule.definitions import Schedule
from statlib.schedule.documents import RUN, SLOT, Run, Slot


@dataclass(frozen=True, slots=True)
class Coming:
    """A schedule's next slots, by the server's time."""

    schedule: str
    slots: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """A slot, or a range of them, with its last run if it had one."""

    slot: Slot
    run: Run | None


def coming(mongo: Mongo, schedules: Sequence[Schedule], count: int) -> tuple[Coming, ...]:
    """The next ``count`` slots of each schedule."""
    now = server_time(mongo)
    return tuple(Coming(schedule.name, _following(schedule, now, count)) for schedule in schedules)


def past(mongo: Mongo, schedules: Sequence[str], count: int) -> tuple[Past, ...]:
    """The newest ``count`` records of the schedules together, newest first; of all schedules if none is named."""
    query = {"Schedule": {"$in": list(schedules)}} if schedules else {}
    found = mongo.collection(SLOT).find(query).sort([("SlotAtUtc", DESCENDING), ("_id", DESCENDING)]).limit(count)
    return tuple(_past(mongo, Slot.from_bson(document)) for document in found)


def _past(mongo: Mongo, slot: Slot) -> Past:
    key = {"Schedule": slot.schedule, "SlotAtUtc": slot.slot_at_utc}
    run = mongo.collection(RUN).find_one(key, sort=[("Attempt", DESCENDING)]) if slot.attempt or slot.claims else None
    return Past(slot, Run.from_bson(run) if run else None)


def _following(schedule: Schedule, now: datetime, count: int) -> tuple[datetime, ...]:
    found: list[datetime] = []
    cron, moment = schedule.slots, now
    while len(found) < count and (slot := cron.next_after(moment)) is not None:
        found.append(slot)
        moment = slot
    return tuple(found)
