"""Audit and idempotency of operators' actions.

The change and its audit record commit together: an operation receives an ``Action`` and inserts its record in its
own transaction. Repeating an accepted request returns its first outcome; a refused one may be tried again. Attempts
without valid credentials have no principal, so they are only counted: one document a minute, however many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo import ASCENDING, IndexModel
from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Reason, Refusal, RefusalKind
from statlib.mongo.connection import Mongo
from statlib.mongo.documents import Stored, UtcTime
from statlib.passes.actions import Action as Action  # noqa: PLC0414 - callers find it here
from statlib.passes.actions import Outcome as Outcome  # noqa: PLC0414 - callers find it here
from statlib.passes.actions import RequestReason as RequestReason  # noqa: PLC0414 - callers find it here

AUDIT = "pmProjectStatisticsAdminAudit"
REQUEST = "pmProjectStatisticsAdminRequest"


INDEXES = {
    AUDIT: [
        IndexModel([("ObservedAtUtc", ASCENDING), ("_id", ASCENDING)]),
        IndexModel([("RunId", ASCENDING), ("ObservedAtUtc", ASCENDING), ("_id", ASCENDING)]),
    ],
    REQUEST: [IndexModel([("ObservedAtUtc", ASCENDING)])],
}


class AuditRecord(Stored):
    """One control attempt, accepted or rejected."""

    principal: str
    authority: str
    action: str
    target: str
    request_id: str
    run_id: str = ""
    payload: dict[str, Any]
    outcome: Outcome
    reason: str | None = None
    before: dict[str, Any]
    after: dict[str, Any]
    generation: int | None = None
    observed_at_utc: UtcTime


def begin(mongo: Mongo, action: Action, *, now: datetime) -> None:
    """Record the intent of work that spans several transactions."""
    record = _record(action, Outcome.INTENDED, None, {}, {}, now)
    mongo.collection(AUDIT).insert_one({"_id": ObjectId(), **record.to_bson()})


def accept(
    mongo: Mongo,
    session: ClientSession,
    action: Action,
    *,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    now: datetime,
    generation: int | None = None,
) -> None:
    """Record an accepted action, and its outcome under its request id, in the transaction that carries it out.

    ``generation``: the opening, epoch or lease generation that the change brought about.
    """
    record = _record(action, Outcome.ACCEPTED, None, before, after, now, generation)
    mongo.collection(AUDIT).insert_one({"_id": ObjectId(), **record.to_bson()}, session=session)
    remembered = {"_id": action.key, "Digest": action.digest, "Outcome": dict(after), "ObservedAtUtc": now}
    mongo.collection(REQUEST).insert_one(remembered, session=session)


def reject(mongo: Mongo, action: Action, refusal: Refusal, *, now: datetime) -> None:
    """Record a refused action on its own: there is no change to commit it with."""
    unresolved = refusal.reason.kind is RefusalKind.UNRESOLVED
    outcome = Outcome.UNRESOLVED if unresolved else Outcome.REJECTED
    record = _record(action, outcome, refusal.reason.name, {}, refusal.state, now)
    mongo.collection(AUDIT).insert_one({"_id": ObjectId(), **record.to_bson()})


def note_replay(mongo: Mongo, action: Action, earlier: Mapping[str, Any], *, now: datetime) -> None:
    """Record that an accepted request came again."""
    record = _record(action, Outcome.REPLAYED, None, {}, earlier, now)
    mongo.collection(AUDIT).insert_one({"_id": ObjectId(), **record.to_bson()})


def note_failure(mongo: Mongo, action: Action, correlation: str, *, now: datetime) -> None:
    """Record that an action ended in an unexpected fault; what it did is for the log to tell."""
    record = _record(action, Outcome.FAILED, None, {}, {"correlation": correlation}, now)
    mongo.collection(AUDIT).insert_one({"_id": ObjectId(), **record.to_bson()})


def count_unauthenticated(mongo: Mongo, reason: Reason, *, now: datetime) -> None:
    """Count an attempt without valid credentials. Nothing of what was sent is kept."""
    minute = now.replace(second=0, microsecond=0)
    anonymous = Action("anonymous", "none", "unauthenticated", "boundary", minute.isoformat(), {})
    record = _record(anonymous, Outcome.REJECTED, reason.name, {}, {}, minute).to_bson()
    del record["After"]
    identity = ObjectId(hashlib.sha256(f"unauthenticated {minute.isoformat()}".encode()).digest()[:12])
    mongo.collection(AUDIT).update_one(
        {"_id": identity},
        {"$setOnInsert": record, "$inc": {"After.attempts": 1}, "$max": {"After.lastAtUtc": now.isoformat()}},
        upsert=True,
    )


def recall(mongo: Mongo, action: Action) -> Mapping[str, Any] | None:
    """The outcome of this request if it was accepted before. Refuses RequestConflict if it then said something else."""
    found = mongo.collection(REQUEST).find_one({"_id": action.key})
    if found is None:
        return None
    if found["Digest"] != action.digest:
        raise Refusal(RequestReason.RequestConflict, action.request_id)
    outcome: Mapping[str, Any] = found["Outcome"]
    return outcome


@dataclass(frozen=True, slots=True)
class MongoRecords:
    """The records of a system that lives in MongoDB, as the boundary uses them."""

    mongo: Mongo

    def recall(self, action: Action) -> Mapping[str, Any] | None:
        return recall(self.mongo, action)

    def note_replay(self, action: Action, earlier: Mapping[str, Any]) -> None:
        note_replay(self.mongo, action, earlier, now=server_time(self.mongo))

    def reject(self, action: Action, refusal: Refusal) -> None:
        reject(self.mongo, action, refusal, now=server_time(self.mongo))

    def note_failure(self, action: Action, correlation: str) -> None:
        note_failure(self.mongo, action, correlation, now=server_time(self.mongo))


def server_time(mongo: Mongo) -> datetime:
    """The database's time, for records that are not written inside a transaction."""
    pipeline: list[dict[str, Any]] = [{"$documents": [{}]}, {"$project": {"Now": mongo.clock.mongo_now()}}]
    now: datetime = next(iter(mongo.database.aggregate(pipeline)))["Now"]
    return now


def _record(  # noqa: PLR0917 - one place builds the record from its parts
    action: Action,
    outcome: Outcome,
    reason: str | None,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    now: datetime,
    generation: int | None = None,
) -> AuditRecord:
    return AuditRecord(
        principal=action.principal,
        authority=action.authority,
        action=action.action,
        target=action.target,
        request_id=action.request_id,
        run_id=action.run,
        payload=dict(action.payload),
        outcome=outcome,
        reason=reason,
        before=dict(before),
        after=dict(after),
        generation=generation,
        observed_at_utc=now,
    )
