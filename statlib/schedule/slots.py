"""Slots from falling due to their end: each step is one transaction that proves what it rests on.

Invariants: the record of how far a schedule was evaluated moves together with the slots that it covers, so none is
lost; every transaction here writes the schedule's document, so any two of them that matter to each other conflict;
a run's steps also prove the schedule's lease, so a holder that was overtaken changes nothing. An effect can only
happen after ``begin`` has committed: a slot that died before is given back, one that died after is not.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bson import ObjectId
from pydantic import JsonValue
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from statlib.kernel.identifiers import new_token
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease, acquire, fence, release
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import transact
from statlib.passes import audit
from statlib.schedule import planning
from statlib.schedule.bounds import ATTEMPTS_MAX, CLAIMS_MAX, DETAIL_MAX
from statlib.schedule.cron import QuartzCron
from statlib.schedule.definitions import OnInterruption, Schedule
from statlib.schedule.documents import RUN, SCHEDULE, SLOT, HookState, Registration, Run, Slot
from statlib.schedule.reasons import ScheduleReason
from statlib.schedule.states import HELD, OPEN, SlotReason, SlotState, require_edge


@dataclass(frozen=True, slots=True)
class Claim:
    """A slot that this host holds under the schedule's lease."""

    schedule: Schedule
    slot_at_utc: datetime
    claims: int
    attempt: int
    lease: Lease


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
class _Step:
    """One try at a transaction, at one reading of the server's time."""

    mongo: Mongo
    session: ClientSession
    now: datetime

    def collection(self, name: str) -> Collection[dict[str, Any]]:
        return self.mongo.collection(name)


def lease_id(schedule: str) -> dict[str, str]:
    return {"Schedule": schedule}


def register(mongo: Mongo, schedule: Schedule) -> None:
    """Make this definition the schedule's; the host that started last wins.

    A new schedule owes nothing before now. When a definition is replaced, what fell due under the old one is
    recorded as missed first.
    """
    now = audit.server_time(mongo)

    def body(session: ClientSession) -> None:
        step = _Step(mongo, session, now)
        stored = _registration(step, schedule.name)
        if stored is not None and stored.definition_digest == schedule.digest:
            return
        if stored is not None:
            window = planning.Window(stored.evaluated_through_utc, now)
            cron = QuartzCron.parse(stored.cron)
            changed = SlotReason.DEFINITION_CHANGED
            _insert(step, schedule.name, planning.all_as(cron, window, SlotState.MISSED, changed))
            if (waiting := _open(step, schedule.name)) and waiting.state is SlotState.DUE:
                _move(step, waiting, SlotState.MISSED, Reason=changed)
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
        step = _Step(mongo, session, now)
        stored = _ours(step, schedule)
        window = planning.Window(stored.evaluated_through_utc, now)
        opened = _open(step, schedule.name)
        if opened is not None and opened.state in HELD:
            busy = SlotReason.PREDECESSOR_RUNNING
            records = planning.all_as(schedule.slots, window, SlotState.SKIPPED, busy)
        else:
            records = planning.due(schedule.slots, window, misfire=schedule.misfire, tolerance_s=tolerance_s)
        if not records:
            return
        if opened is not None and opened.state is SlotState.DUE:
            _move(step, opened, SlotState.MISSED, Reason=SlotReason.SUPERSEDED)
        _insert(step, schedule.name, records)
        mongo.collection(SCHEDULE).update_one(
            {"_id": lease_id(schedule.name)}, {"$set": {"EvaluatedThroughUtc": now}}, session=session
        )

    transact(mongo, body)


def recover(mongo: Mongo, schedule: Schedule, *, ttl_s: float) -> bool:
    """Settle the slot of a host whose lease ran out. False: there is none, or the lease is held after all.

    Running becomes Interrupted (and due again, once, where the schedule says so); Claimed goes back to Due.
    """
    if (lease := _acquire(mongo, schedule, ttl_s)) is None:
        return False
    try:
        return _settle(mongo, schedule, lease, SlotReason.HOST_LOST, "its lease ran out")
    finally:
        release(mongo, lease)


def claim(mongo: Mongo, schedule: Schedule, *, ttl_s: float) -> Claim | None:
    """Take the slot that is due, with the schedule's lease. None: another has it, or there is none.

    Refuses ScheduleSuperseded.
    """
    if (lease := _acquire(mongo, schedule, ttl_s)) is None:
        return None
    now = audit.server_time(mongo)

    def body(session: ClientSession) -> Slot | None:
        step = _Step(mongo, session, now)
        fence(mongo, session, lease)
        _ours(step, schedule)
        waiting = _open(step, schedule.name)
        if waiting is None or waiting.state is not SlotState.DUE:
            return None
        changes = {"LeaseGeneration": lease.generation, "Claims": waiting.claims + 1}
        _move(step, waiting, SlotState.CLAIMED, **changes)
        return waiting

    try:
        taken = transact(mongo, body)
    except BaseException:
        release(mongo, lease)
        raise
    if taken is None:
        release(mongo, lease)
        return None
    return Claim(schedule, taken.slot_at_utc, taken.claims + 1, taken.attempt, lease)


def begin(mongo: Mongo, claim: Claim) -> Run:
    """Record that the run starts, before it may have any effect. Refuses LeaseLost and SlotTaken."""
    now = audit.server_time(mongo)
    schedule = claim.schedule
    run = _run_of(claim, claim.attempt + 1, SlotState.RUNNING, now)

    def body(session: ClientSession) -> None:
        step = _Step(mongo, session, now)
        fence(mongo, session, claim.lease)
        slot = _held(step, claim, SlotState.CLAIMED)
        _move(step, slot, SlotState.RUNNING, Attempt=run.attempt)
        mongo.collection(RUN).insert_one(run.to_bson(), session=session)

    transact(mongo, body)
    audit.begin(mongo, _action(schedule, run), now=now)
    return run


def conclude(mongo: Mongo, claim: Claim, run: Run, ended: Ended) -> None:
    """Record how the run ended, with its audit, and owe its hook. Harmless to repeat. Refuses LeaseLost."""
    now = audit.server_time(mongo)

    def body(session: ClientSession) -> None:
        step = _Step(mongo, session, now)
        fence(mongo, session, claim.lease)
        found = mongo.collection(RUN).find_one({"_id": run.id}, session=session)
        if found is not None and found["State"] != SlotState.RUNNING:
            return  # an earlier try committed without our hearing of it
        slot = _held(step, claim, SlotState.RUNNING)
        _move(step, slot, ended.state, Reason=ended.reason, Detail=ended.detail[:DETAIL_MAX])
        _end_run(step, claim.schedule, run, ended)
        before, after = {"state": SlotState.RUNNING.value}, {"state": ended.state.value, "runId": run.id}
        audit.accept(mongo, session, _action(claim.schedule, run), before=before, after=after, now=now)

    transact(mongo, body)


def settle_dead(mongo: Mongo, claim: Claim, detail: str) -> bool:
    """Settle the slot of a run whose process ended without saying how. False: the slot is no longer this claim's."""
    try:
        return _settle(mongo, claim.schedule, claim.lease, SlotReason.RUN_DIED, detail)
    except Refusal as refusal:
        if refusal.reason is MongoReason.LeaseLost:
            return False  # another host settles it, or has
        raise
    finally:
        release(mongo, claim.lease)


def _settle(mongo: Mongo, schedule: Schedule, lease: Lease, reason: SlotReason, detail: str) -> bool:
    now = audit.server_time(mongo)

    def body(session: ClientSession) -> Run | bool:
        step = _Step(mongo, session, now)
        fence(mongo, session, lease)
        slot = _open(step, schedule.name)
        if slot is None or slot.state not in HELD:
            return False
        if slot.state is SlotState.CLAIMED:
            return _settle_unbegun(step, schedule, slot, lease)
        _move(step, slot, SlotState.INTERRUPTED, Reason=reason, Detail=detail[:DETAIL_MAX])
        if schedule.on_interruption is OnInterruption.RUN_AGAIN and slot.attempt < ATTEMPTS_MAX:
            interrupted = slot.model_copy(update={"state": SlotState.INTERRUPTED})
            _move(step, interrupted, SlotState.DUE)
        key = {"Schedule": schedule.name, "SlotAtUtc": slot.slot_at_utc, "Attempt": slot.attempt}
        run = Run.from_bson(_found(mongo.collection(RUN).find_one(key, session=session)))
        _end_run(step, schedule, run, Ended(SlotState.INTERRUPTED, reason, detail))
        return run

    settled = transact(mongo, body)
    if isinstance(settled, Run):
        audit.reject(
            mongo, _action(schedule, settled), Refusal(ScheduleReason.RunInterrupted, f"{reason}: {detail}"), now=now
        )
    return settled is not False


def _settle_unbegun(step: _Step, schedule: Schedule, slot: Slot, lease: Lease) -> bool:
    if slot.claims < CLAIMS_MAX:
        _move(step, slot, SlotState.DUE)
        return True
    ended = Ended(SlotState.FAILED, SlotReason.RUN_DIED, f"its run could not be begun, {plural(slot.claims, 'time')}")
    _move(step, slot, SlotState.FAILED, Reason=ended.reason, Detail=ended.detail)
    claim = Claim(schedule, slot.slot_at_utc, slot.claims, slot.attempt, lease)
    run = _run_of(claim, slot.attempt + 1, SlotState.FAILED, step.now)
    step.collection(RUN).insert_one(run.to_bson(), session=step.session)
    _end_run(step, schedule, run, ended)
    return True


def principal_of(schedule: Schedule) -> str:
    return f"job:{schedule.target}@{socket.gethostname()}"


def _run_of(claim: Claim, attempt: int, state: SlotState, now: datetime) -> Run:
    return Run(
        id=new_token(),
        schedule=claim.schedule.name,
        slot_at_utc=claim.slot_at_utc,
        attempt=attempt,
        target_kind=claim.schedule.kind,
        target=claim.schedule.target,
        principal=principal_of(claim.schedule),
        host=socket.gethostname(),
        pid=os.getpid(),
        lease_generation=claim.lease.generation,
        state=state,
        started_at_utc=now,
    )


def _action(schedule: Schedule, run: Run) -> audit.Action:
    payload: dict[str, JsonValue] = {
        "slot": run.slot_at_utc.isoformat(), "attempt": run.attempt, "kind": schedule.kind.value,
        "target": schedule.target, "parameters": dict(schedule.parameters),
    }  # fmt: skip
    return audit.Action(run.principal, "schedule", "schedule.run", schedule.name, run.id, payload)


def _acquire(mongo: Mongo, schedule: Schedule, ttl_s: float) -> Lease | None:
    try:
        return acquire(mongo, SCHEDULE, lease_id(schedule.name), ttl_s)
    except Refusal as refusal:
        if refusal.reason is MongoReason.LeaseHeld:
            return None
        raise


def _registration(step: _Step, schedule: str) -> Registration | None:
    found = step.collection(SCHEDULE).find_one({"_id": lease_id(schedule)}, session=step.session)
    return Registration.from_bson(found) if found else None


def _ours(step: _Step, schedule: Schedule) -> Registration:
    stored = _registration(step, schedule.name)
    if stored is None or stored.definition_digest != schedule.digest:
        raise Refusal(ScheduleReason.ScheduleSuperseded, schedule.name)
    return stored


def _open(step: _Step, schedule: str) -> Slot | None:
    found = step.collection(SLOT).find_one(
        {"Schedule": schedule, "State": {"$in": [state.value for state in OPEN]}}, session=step.session
    )
    return Slot.from_bson(found) if found else None


def _held(step: _Step, claim: Claim, state: SlotState) -> Slot:
    slot = _open(step, claim.schedule.name)
    if (
        slot is None
        or slot.slot_at_utc != claim.slot_at_utc
        or slot.state is not state
        or slot.lease_generation != claim.lease.generation
    ):
        raise Refusal(ScheduleReason.SlotTaken, f"{claim.schedule.name} {claim.slot_at_utc.isoformat()}")
    return slot


def _move(step: _Step, slot: Slot, state: SlotState, **changes: Any) -> None:
    require_edge(slot.state, state)
    result = step.collection(SLOT).update_one(
        {"_id": slot.id, "State": slot.state.value},
        {"$set": {"State": state.value, "ChangedAtUtc": step.now, **changes}},
        session=step.session,
    )
    _require_one(result.matched_count)


def _insert(step: _Step, schedule: str, records: Sequence[planning.Record]) -> None:
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


def _end_run(step: _Step, schedule: Schedule, run: Run, ended: Ended) -> None:
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


def _found(document: Any) -> Any:
    if document is None:
        raise Refusal(ScheduleReason.SlotTaken, "its run is not recorded")
    return document
