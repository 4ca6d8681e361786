"""A due slot's run: claimed under the schedule's lease, begun, concluded, or settled for a host that was lost.

Invariants: each step is one transaction that proves the schedule's lease, so a holder that was overtaken changes
nothing. An effect can only happen after ``begin`` has committed: a slot that died before is given back, one that died
after is not.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue
from pymongo.client_session import ClientSession

from statlib.kernel.identifiers import new_token
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease, acquire, fence, release
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import transact
from statlib.passes import audit
from statlib.schedule.bounds import ATTEMPTS_MAX, CLAIMS_MAX, DETAIL_MAX
from statlib.schedule.definitions import OnInterruption, Schedule
from statlib.schedule.documents import RUN, SCHEDULE, Run, Slot
from statlib.schedule.reasons import ScheduleReason
from statlib.schedule.slot_store import Ended, Step, end_run, lease_id, move, open_slot, require_found, require_ours
from statlib.schedule.states import HELD, SlotReason, SlotState


@dataclass(frozen=True, slots=True)
class Claim:
    """A slot that this host holds under the schedule's lease."""

    schedule: Schedule
    slot_at_utc: datetime
    claims: int
    attempt: int
    lease: Lease


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
        step = Step(mongo, session, now)
        fence(mongo, session, lease)
        require_ours(step, schedule)
        waiting = open_slot(step, schedule.name)
        if waiting is None or waiting.state is not SlotState.DUE:
            return None
        changes = {"LeaseGeneration": lease.generation, "Claims": waiting.claims + 1}
        move(step, waiting, SlotState.CLAIMED, **changes)
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
        step = Step(mongo, session, now)
        fence(mongo, session, claim.lease)
        slot = _held(step, claim, SlotState.CLAIMED)
        move(step, slot, SlotState.RUNNING, Attempt=run.attempt)
        mongo.collection(RUN).insert_one(run.to_bson(), session=session)

    transact(mongo, body)
    audit.begin(mongo, _action(schedule, run), now=now)
    return run


def conclude(mongo: Mongo, claim: Claim, run: Run, ended: Ended) -> None:
    """Record how the run ended, with its audit, and owe its hook. Harmless to repeat. Refuses LeaseLost."""
    now = audit.server_time(mongo)

    def body(session: ClientSession) -> None:
        step = Step(mongo, session, now)
        fence(mongo, session, claim.lease)
        found = mongo.collection(RUN).find_one({"_id": run.id}, session=session)
        if found is not None and found["State"] != SlotState.RUNNING:
            return  # an earlier try committed without our hearing of it
        slot = _held(step, claim, SlotState.RUNNING)
        move(step, slot, ended.state, Reason=ended.reason, Detail=ended.detail[:DETAIL_MAX])
        end_run(step, claim.schedule, run, ended)
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
        step = Step(mongo, session, now)
        fence(mongo, session, lease)
        slot = open_slot(step, schedule.name)
        if slot is None or slot.state not in HELD:
            return False
        if slot.state is SlotState.CLAIMED:
            return _settle_unbegun(step, schedule, slot, lease)
        move(step, slot, SlotState.INTERRUPTED, Reason=reason, Detail=detail[:DETAIL_MAX])
        if schedule.on_interruption is OnInterruption.RUN_AGAIN and slot.attempt < ATTEMPTS_MAX:
            interrupted = slot.model_copy(update={"state": SlotState.INTERRUPTED})
            move(step, interrupted, SlotState.DUE)
        key = {"Schedule": schedule.name, "SlotAtUtc": slot.slot_at_utc, "Attempt": slot.attempt}
        run = Run.from_bson(require_found(mongo.collection(RUN).find_one(key, session=session)))
        end_run(step, schedule, run, Ended(SlotState.INTERRUPTED, reason, detail))
        return run

    settled = transact(mongo, body)
    if isinstance(settled, Run):
        audit.reject(
            mongo, _action(schedule, settled), Refusal(ScheduleReason.RunInterrupted, f"{reason}: {detail}"), now=now
        )
    return settled is not False


def _settle_unbegun(step: Step, schedule: Schedule, slot: Slot, lease: Lease) -> bool:
    if slot.claims < CLAIMS_MAX:
        move(step, slot, SlotState.DUE)
        return True
    ended = Ended(SlotState.FAILED, SlotReason.RUN_DIED, f"its run could not be begun, {plural(slot.claims, 'time')}")
    move(step, slot, SlotState.FAILED, Reason=ended.reason, Detail=ended.detail)
    claim = Claim(schedule, slot.slot_at_utc, slot.claims, slot.attempt, lease)
    run = _run_of(claim, slot.attempt + 1, SlotState.FAILED, step.now)
    step.collection(RUN).insert_one(run.to_bson(), session=step.session)
    end_run(step, schedule, run, ended)
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


def _held(step: Step, claim: Claim, state: SlotState) -> Slot:
    slot = open_slot(step, claim.schedule.name)
    if (
        slot is None
        or slot.slot_at_utc != claim.slot_at_utc
        or slot.state is not state
        or slot.lease_generation != claim.lease.generation
    ):
        raise Refusal(ScheduleReason.SlotTaken, f"{claim.schedule.name} {claim.slot_at_utc.isoformat()}")
    return slot
