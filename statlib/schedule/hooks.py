"""Telling somebody of a run that did not succeed: at least once, a bounded number of times, and on record.

The debt is stored with the run's end, in the same transaction. Whoever delivers claims it for as long as delivering
can take; if that host dies, another repeats it. A receiver tells repeats by the run's id.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pymongo import ReturnDocument

from statlib.kernel import telemetry
from statlib.kernel.settings import ScheduleSettings
from statlib.mongo.connection import Mongo
from statlib.passes.delivery import Command, Webhook
from statlib.schedule.bounds import HOOK_BACK_OFF_S, HOOK_CLAIM_MARGIN_S
from statlib.schedule.definitions import Hook
from statlib.schedule.documents import RUN, HookState, Run


class Delivery(StrEnum):
    DELIVERED = "Delivered"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Debt:
    """A run whose hook this host has claimed."""

    run: Run
    hook: Hook


def claim_owed(mongo: Mongo, hooks: Mapping[str, Hook], settings: ScheduleSettings) -> Debt | None:
    """Claim one delivery that is owed for a schedule of ``hooks`` and that nobody is at. None: there is none."""
    claimed_until = mongo.clock.mongo_in(_budget_s(settings))
    free = {"$lte": [{"$ifNull": ["$HookClaimedUntilUtc", mongo.clock.mongo_now()]}, mongo.clock.mongo_now()]}
    found = mongo.collection(RUN).find_one_and_update(
        {"Hook": HookState.OWED.value, "Schedule": {"$in": list(hooks)}, "$expr": free},
        [{"$set": {"HookClaimedUntilUtc": claimed_until}}],
        return_document=ReturnDocument.AFTER,
    )
    if found is None:
        return None
    run = Run.from_bson(found)
    return Debt(run, hooks[run.schedule])


def deliver(mongo: Mongo, debt: Debt, settings: ScheduleSettings) -> HookState:
    """Try until it is taken or the attempts, counted over all hosts, are used up; record which."""
    failure = debt.run.hook_failure or "no attempt was left"
    attempts = debt.run.hook_attempts
    while attempts < settings.hook_attempts:
        if attempts > debt.run.hook_attempts:
            time.sleep(_back_off_s(attempts))
        attempts += 1
        mongo.collection(RUN).update_one({"_id": debt.run.id}, {"$set": {"HookAttempts": attempts}})
        failure = _send(debt, settings.hook_timeout_s)
        telemetry.count("schedule.hooks", outcome=Delivery.FAILED if failure else Delivery.DELIVERED)
        if not failure:
            return _record(mongo, debt, HookState.DELIVERED, "")
        mongo.collection(RUN).update_one({"_id": debt.run.id}, {"$set": {"HookFailure": failure}})
    return _record(mongo, debt, HookState.UNDELIVERED, failure)


def message_of(run: Run) -> dict[str, object]:
    """What a hook is told; JSON values."""
    return {
        "run_id": run.id,
        "schedule": run.schedule,
        "slot_at_utc": run.slot_at_utc.isoformat(),
        "attempt": run.attempt,
        "target_kind": run.target_kind,
        "target": run.target,
        "state": run.state.value,
        "reason": run.reason.value if run.reason else None,
        "detail": run.detail,
        "exit_code": run.exit_code,
        "report": run.report,
        "host": run.host,
    }


def _record(mongo: Mongo, debt: Debt, state: HookState, failure: str) -> HookState:
    mongo.collection(RUN).update_one(
        {"_id": debt.run.id, "Hook": HookState.OWED.value}, {"$set": {"Hook": state.value, "HookFailure": failure}}
    )
    return state


def _send(debt: Debt, timeout_s: float) -> str:
    """Empty if it was taken, else what went wrong, in one line."""
    text = json.dumps(message_of(debt.run), ensure_ascii=False)
    if debt.hook.command is not None:
        return Command(debt.hook.command).send(text, key=debt.run.id, timeout_s=timeout_s)
    variable = debt.hook.url_variable
    url = debt.hook.url if variable is None else os.environ.get(variable)
    if not url:
        return f"the variable {variable} is not set"
    return Webhook(url).send(text, key=debt.run.id, timeout_s=timeout_s)


def _back_off_s(attempt: int) -> float:
    return float(HOOK_BACK_OFF_S * 2 ** (attempt - 1))


def _budget_s(settings: ScheduleSettings) -> float:
    waits = sum(_back_off_s(attempt) for attempt in range(1, settings.hook_attempts))
    return settings.hook_attempts * settings.hook_timeout_s + waits + HOOK_CLAIM_MARGIN_S
