"""Slots that fall due: which definition holds, and how far it was evaluated.

Invariant: the record of how far a schedule was evaluated moves in the transaction that records the slots that it
covers, so none is lost; every transaction here writes the schedule's document, so any two of them conflict.
"""

from __future__ import annotations

from datetime import datetime

from pymongo.client_session import ClientSession

from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import transact
from statlib.passes import audit
from statlib.schedule import planning
from statlib.schedule.cron import QuartzCron
from statlib.schedule.definitions import Schedule
from statlib.schedule.documents import SCHEDULE
from statlib.schedule.slot_store import Step, insert, lease_id, move, open_slot, registration, require_ours
from statlib.schedule.states import HELD, SlotReason, SlotState


def register(mongo: Mongo, schedule: Schedule) -> None:
    """Make this definition the schedule's; the host that started last wins.

    A new schedule owes nothing before now. When a definition is replaced, what fell due under the old one is
    recorded as missed first.
    """
    now = audit.server_time(mongo)

    def body(session: ClientSession) -> None:
        step = Step(mongo, session, now)
        stored = registration(step, schedule.name)
        if stored is not None and stored.definition_digest == schedule.digest:
            return
        if stored is not None:
            window = planning.Window(stored.evaluated_through_utc, now)
            cron = QuartzCron.parse(stored.cron)
            changed = SlotReason.DEFINITION_CHANGED
            insert(step, schedule.name, planning.all_as(cron, window, SlotState.MISSED, changed))
            if (waiting := open_slot(step, schedule.name)) and waiting.state is SlotState.DUE:
                move(step, waiting, SlotState.MISSED, Reason=changed)
        through = now if stored is None else max(now, stored.evaluated_through_utc)
        mongo.collection(SCHEDULE).update_one(
            {"_id": lease_id(schedule.name)},
            {
                "$set": {
                    "Cron": schedule.cron,
                    "DefinitionDigest": schedule.digest,
                    "RegisteredAtUtc": now,
                    "EvaluatedThroughUtc": through,
                }
            },
            upsert=True,
            session=session,
        )

    transact(mongo, body)


def evaluate(mongo: Mongo, schedule: Schedule, *, now: datetime, tolerance_s: float) -> None:
    """Record every slot that fell due until ``now``. Refuses ScheduleSuperseded."""

    def body(session: ClientSession) -> None:
        step = Step(mongo, session, now)
        stored = require_ours(step, schedule)
        window = planning.Window(stored.evaluated_through_utc, now)
        opened = open_slot(step, schedule.name)
        if opened is not None and opened.state in HELD:
            busy = SlotReason.PREDECESSOR_RUNNING
            records = planning.all_as(schedule.slots, window, SlotState.SKIPPED, busy)
        else:
            records = planning.due(schedule.slots, window, misfire=schedule.misfire, tolerance_s=tolerance_s)
        if not records:
            return
        if opened is not None and opened.state is SlotState.DUE:
            move(step, opened, SlotState.MISSED, Reason=SlotReason.SUPERSEDED)
        insert(step, schedule.name, records)
        mongo.collection(SCHEDULE).update_one(
            {"_id": lease_id(schedule.name)}, {"$set": {"EvaluatedThroughUtc": now}}, session=session
        )

    transact(mongo, body)
