"""Audit and idempotency of operators' actions.

The change and its audit record commit together: an operation receives an ``Action`` and inserts its record in its
own transaction. Repeating an accepted request returns its first outcome; a refused one may be tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from bson import ObjectId
from pymongo.client_session import ClientSession

from statlib.kernel.digests import digest
from statlib.kernel.refusals import Reason, Refusal, RefusalKind
from statlib.mongo.connection import Mongo
from statlib.mongo.documents import Stored, UtcTime

AUDIT = "pmProjectStatisticsAdminAudit"
REQUEST = "pmProjectStatisticsAdminRequest"


class RequestReason(Reason):
    """Refusals of a repeated request."""

    RequestConflict = (RefusalKind.CONFLICT, "This request id was used for something else: use a new one.")


class Outcome(StrEnum):
    INTENDED = "Intended"  # work of several transactions was begun; its outcome follows, or it died
    ACCEPTED = "Accepted"
    REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class Action:
    """Who does what to what, under which request id. ``payload``: JSON values that the request consists of."""

    principal: str
    authority: str
    action: str
    target: str
    request_id: str
    payload: Mapping[str, Any]

    @property
    def key(self) -> dict[str, str]:
        return {
            "Principal": self.principal,
            "Action": self.action,
            "Target": self.target,
            "RequestId": self.request_id,
        }

    @property
    def digest(self) -> str:
        return digest(dict(self.payload))


class AuditRecord(Stored):
    """One control attempt, accepted or rejected."""

    principal: str
    authority: str
    action: str
    target: str
    request_id: str
    payload: dict[str, Any]
    outcome: Outcome
    reason: str | None = None
    before: dict[str, Any]
    after: dict[str, Any]
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
) -> None:
    """Record an accepted action, and its outcome under its request id, in the transaction that carries it out."""
    record = _record(action, Outcome.ACCEPTED, None, before, after, now)
    mongo.collection(AUDIT).insert_one({"_id": ObjectId(), **record.to_bson()}, session=session)
    remembered = {"_id": action.key, "Digest": action.digest, "Outcome": dict(after), "ObservedAtUtc": now}
    mongo.collection(REQUEST).insert_one(remembered, session=session)


def reject(mongo: Mongo, action: Action, refusal: Refusal, *, now: datetime) -> None:
    """Record a refused action on its own: there is no change to commit it with."""
    record = _record(action, Outcome.REJECTED, refusal.reason.name, {}, refusal.state, now)
    mongo.collection(AUDIT).insert_one({"_id": ObjectId(), **record.to_bson()})


def recall(mongo: Mongo, action: Action) -> Mapping[str, Any] | None:
    """The outcome of this request if it was accepted before. Refuses RequestConflict if it then said something else."""
    found = mongo.collection(REQUEST).find_one({"_id": action.key})
    if found is None:
        return None
    if found["Digest"] != action.digest:
        raise Refusal(RequestReason.RequestConflict, action.request_id)
    outcome: Mapping[str, Any] = found["Outcome"]
    return outcome


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
) -> AuditRecord:
    return AuditRecord(
        principal=action.principal,
        authority=action.authority,
        action=action.action,
        target=action.target,
        request_id=action.request_id,
        payload=dict(action.payload),
        outcome=outcome,
        reason=reason,
        before=dict(before),
        after=dict(after),
        observed_at_utc=now,
    )
