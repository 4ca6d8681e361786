"""What a step of a slot reads and writes, inside the transaction that it is given. Decides nothing by itself.

Every change is filtered by the state that it starts from; one that no longer stands refuses SlotTaken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.schedule.bounds import DETAIL_MAX
from statlib.schedule.definitions import Schedule
from statlib.schedule.documents import RUN, SCHEDULE, SLOT, HookState, Registration, Run, Slot
from statlib.schedule.planning import Record
from statlib.schedule.reasons import ScheduleReason
from statlib.schedule.states import OPEN, SlotReason, SlotState, require_edge


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. ``exit_code`` is a runbook's, ``report`` the folder of its archived run."""

    state: SlotState
    reason: SlotReason | None = None
    detail: str = ""
    exit_code: int | None = None
    report: str | None = None
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One try at a transaction, at one reading of the server's time."""

    mongo: Mongo
    session: ClientSession
    now: datetime

    def collection(self, name: str) -> Collection[dict[str, Any]]:
        return self.mongo.collection(name)


def lease_id(schedule: str) -> dict[str, str]:
    return {"Schedule": schedule}


def registration(step: Step, schedule: str) -> Registration | None:
    found = step.collection(SCHEDULE).find_one({"_id": lease_id(schedule)}, session=step.session)
    return Registration.from_bson(found) if found else None


def require_ours(step: Step, schedule: Schedule) -> Registration:
    stored = registration(step, schedule.name)
    if stored is None or stored.definition_digest != schedule.digest:
        raise Refusal(ScheduleReason.ScheduleSuperseded, schedule.name)
    return stored


def open_slot(step: Step, schedule: str) -> Slot | None:
    found = step.collection(SLOT).find_one(
        {"Schedule": schedule, "State": {"$in": [state.value for state in OPEN]}}, session=step.session
    )
    return Slot.from_bson(found) if found else None


def move(step: Step, slot: Slot, state: SlotState, **changes: Any) -> None:
    require_edge(slot.state, state)
    result = step.collection(SLOT).update_one(
        {"_id": slot.id, "State": slot.state.value},
        {"$set": {"State": state.value, "ChangedAtUtc": step.now, **changes}},
        session=step.session,
    )
    _require_one(result.matched_count)


def insert(step: Step, schedule: str, records: Sequence[Record]) -> None:
    slots = [
        Slot(
            id=ObjectId(),
            schedule=schedule,
            slot_at_utc=record.last,
            first_slot_at_utc=record.first,
            slot_count=record.count,
            state=record.state,
            reason=record.reason,
            late=record.late,
            recorded_at_utc=step.now,
            changed_at_utc=step.now,
        ).to_bson()
        for record in records
    ]
    if slots:
        step.collection(SLOT).insert_many(slots, session=step.session)


def end_run(step: Step, schedule: Schedule, run: Run, ended: Ended) -> None:
    tells = schedule.on_failure is not None and ended.state is not SlotState.SUCCEEDED
    result = step.collection(RUN).update_one(
        {"_id": run.id},
        {
            "$set": {
                "State": ended.state.value,
                "Reason": ended.reason,
                "Detail": ended.detail[:DETAIL_MAX],
                "ExitCode": ended.exit_code,
                "Report": ended.report,
                "Counts": ended.counts,
                "EndedAtUtc": step.now,
                "Hook": (HookState.OWED if tells else HookState.NONE).value,
            }
        },
        session=step.session,
    )
    _require_one(result.matched_count)


def _require_one(matched: int) -> None:
    if matched != 1:
        raise Refusal(ScheduleReason.SlotTaken, "its document changed meanwhile")


def require_found(document: Any) -> Any:
    if document is None:
        raise Refusal(ScheduleReason.SlotTaken, "its run is not recorded")
    return document
