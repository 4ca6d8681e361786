"""Operations under way: who carries out which request, and who asked for it to stop.

A request that spans several transactions is claimed for its length by a lease, which its process renews. So the same
request at the same time waits instead of doing the work twice, and a dead process's claim runs out by itself. The
claim is a courtesy: exactness rests on the unique request record that is written with the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pydantic import Field
from pymongo import DESCENDING
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from statlib.mongo.connection import Mongo
from statlib.mongo.documents import Stored, UtcTime
from statlib.mongo.leases import Lease, acquire, renew
from statlib.passes.audit import AUDIT, INDEXES, REQUEST, Action
from statlib.passes.bounds import OPERATION_LEASE_TTL_S, OPERATIONS_LISTED_MAX

OPERATION = "pmProjectStatisticsAdminOperation"
_NAMESPACE_EXISTS = 48


class OperationKey(Stored):
    principal: str
    route: str
    target: str
    request_id: str


class OperationUnderWay(Stored):
    """One claim that has not run out."""

    id: OperationKey = Field(alias="_id")
    action: str = ""
    run_id: str = ""
    started_at_utc: UtcTime
    cancel_requested_at_utc: UtcTime | None = None


def initialise_records(mongo: Mongo) -> None:
    """Create the collections and indexes of audit, requests and operations; safe to repeat."""
    existing = set(mongo.database.list_collection_names())
    for name in (AUDIT, REQUEST, OPERATION):
        if name not in existing:  # ahead of a transaction, which would meet its rivals' creations
            _create(mongo, name)
    for name, indexes in INDEXES.items():
        mongo.collection(name).create_indexes(indexes)


def _create(mongo: Mongo, name: str) -> None:
    try:
        mongo.database.create_collection(name, check_exists=False)
    except OperationFailure as error:
        if error.code != _NAMESPACE_EXISTS:  # another process was first
            raise


def claim(mongo: Mongo, action: Action) -> Lease:
    """Claim the request. Refuses LeaseHeld while it is claimed by someone who lives."""
    lease = acquire(mongo, OPERATION, action.key, OPERATION_LEASE_TTL_S)
    about = {"Action": action.action, "RunId": action.run, "CancelRequestedAtUtc": None}
    mongo.collection(OPERATION).update_one(_own(lease), {"$set": about})
    return lease


def keep(mongo: Mongo, lease: Lease) -> bool:
    """Renew the claim; whether somebody asked for the operation to stop. Refuses LeaseLost."""
    renew(mongo, lease, OPERATION_LEASE_TTL_S)
    found = mongo.collection(OPERATION).find_one(_own(lease), {"CancelRequestedAtUtc": 1})
    return found is not None and found.get("CancelRequestedAtUtc") is not None


def end(mongo: Mongo, lease: Lease) -> None:
    """Give the claim up; harmless when it is no longer ours."""
    mongo.collection(OPERATION).delete_one(_own(lease))


def request_cancel(mongo: Mongo, session: ClientSession, request_id: str, *, of: str | None = None) -> int:
    """Ask every operation under this request id (of one principal, if given) to stop; how many there are."""
    wanted: dict[str, Any] = {"_id.RequestId": request_id, **_alive(mongo)}
    if of is not None:
        wanted["_id.Principal"] = of
    asked = mongo.collection(OPERATION).update_many(
        wanted,
        [{"$set": {"CancelRequestedAtUtc": {"$ifNull": ["$CancelRequestedAtUtc", mongo.clock.mongo_now()]}}}],
        session=session,
    )
    return asked.matched_count


def under_way(mongo: Mongo, *, request_id: str | None = None) -> tuple[OperationUnderWay, ...]:
    """Operations that are being carried out, newest first; at most ``OPERATIONS_LISTED_MAX``."""
    wanted: dict[str, Any] = _alive(mongo)
    if request_id is not None:
        wanted["_id.RequestId"] = request_id
    found: Iterable[dict[str, Any]] = (
        mongo.collection(OPERATION).find(wanted).sort("StartedAtUtc", DESCENDING).limit(OPERATIONS_LISTED_MAX)
    )
    return tuple(OperationUnderWay.from_bson(document) for document in found)


def forget_dead(mongo: Mongo, session: ClientSession, *, before: datetime, cap: int) -> int:
    """Remove at most ``cap`` claims of processes that died before then; how many."""
    dead = [
        found["_id"]
        for found in mongo.collection(OPERATION)
        .find({"ExpiresAtUtc": {"$lt": before}}, {"_id": 1}, session=session)
        .limit(cap)
    ]
    if not dead:
        return 0
    gone = {"_id": {"$in": dead}, "ExpiresAtUtc": {"$lt": before}}
    return mongo.collection(OPERATION).delete_many(gone, session=session).deleted_count


def _own(lease: Lease) -> dict[str, Any]:
    return {"_id": dict(lease.id), "Owner": lease.owner, "LeaseGeneration": lease.generation}


def _alive(mongo: Mongo) -> dict[str, Any]:
    return {"$expr": {"$gt": ["$ExpiresAtUtc", mongo.clock.mongo_now()]}}
