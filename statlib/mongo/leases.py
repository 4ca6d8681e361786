"""Fenced leases: exclusive, expiring by the server's clock, and proved inside every write that they guard.

A holder may be frozen for an hour and woken. Whoever took over in between has a higher generation, so a guarded
transaction first *writes* the lease document under (owner, generation, unexpired): reading it would not conflict
with a takeover, and the transaction would still commit. Generations only grow; releasing a lease expires it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo import ReturnDocument, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from statlib.kernel.clock import Clock
from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Fault, Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that was held when it was returned; only ``fence`` says whether it still is."""

    collection: str
    id: Mapping[str, Any]
    owner: str
    generation: int
    expires_at_utc: datetime


def acquire(mongo: Mongo, collection: str, lease_id: Mapping[str, Any], ttl_s: float) -> Lease:
    """Take a free or expired lease for ``ttl_s`` seconds, in one command. Refuses LeaseHeld, naming its expiry."""
    owner = new_token()
    update = _take_if_free(mongo.clock, owner, ttl_s)
    try:
        document = _take(mongo, collection, lease_id, update)
    except DuplicateKeyError:  # two first acquirers: the loser's second look finds the winner's document
        document = _take(mongo, collection, lease_id, update)
    if document["Owner"] != owner:
        raise Refusal(
            MongoReason.LeaseHeld,
            f"{dict(lease_id)} is held until {document['ExpiresAtUtc'].isoformat()}",
            state={"expiresAtUtc": document["ExpiresAtUtc"].isoformat(), "generation": document["LeaseGeneration"]},
        )
    return Lease(collection, dict(lease_id), owner, document["LeaseGeneration"], document["ExpiresAtUtc"])


def fence(mongo: Mongo, session: ClientSession, *leases: Lease, ttl_s: float | None = None) -> None:
    """Prove, by writing them inside the caller's transaction, that leases of one collection are all still ours.

    ``ttl_s``: its commit also renews them, for that many seconds from this write. One command, however many leases.
    Refuses LeaseLost.
    """
    if not leases:
        return
    touched: list[dict[str, Any]] = [{"$set": {"FencedWrites": {"$add": [{"$ifNull": ["$FencedWrites", 0]}, 1]}}}]
    if ttl_s is not None:
        touched.append({"$set": {"ExpiresAtUtc": mongo.clock.mongo_in(ttl_s)}})
    writes = [UpdateOne(_held(mongo.clock, lease), touched) for lease in leases]
    result = mongo.collection(leases[0].collection).bulk_write(writes, session=session)
    if result.matched_count != len(leases):
        named = f"generation {leases[0].generation} of {dict(leases[0].id)}" if len(leases) == 1 else "one of several"
        raise Refusal(MongoReason.LeaseLost, named)


def renew(mongo: Mongo, lease: Lease, ttl_s: float) -> None:
    """Hold it for ``ttl_s`` more seconds from now. Refuses LeaseLost, also when it ran out unnoticed."""
    result = mongo.collection(lease.collection).update_one(
        _held(mongo.clock, lease), [{"$set": {"ExpiresAtUtc": mongo.clock.mongo_in(ttl_s)}}]
    )
    if result.matched_count != 1:
        raise Refusal(MongoReason.LeaseLost, f"generation {lease.generation} of {dict(lease.id)}")


def release(mongo: Mongo, lease: Lease) -> None:
    """Let the next one in at once; harmless when the lease is no longer ours."""
    mongo.collection(lease.collection).update_one(
        {"_id": dict(lease.id), "Owner": lease.owner, "LeaseGeneration": lease.generation},
        [{"$set": {"ExpiresAtUtc": mongo.clock.mongo_now()}}],
    )


@contextmanager
def held(mongo: Mongo, collection: str, lease_id: Mapping[str, Any], ttl_s: float) -> Iterator[Lease]:
    """Acquire on entry, release on the way out, whatever happened inside."""
    lease = acquire(mongo, collection, lease_id, ttl_s)
    try:
        yield lease
    finally:
        release(mongo, lease)


def _take(
    mongo: Mongo, collection: str, lease_id: Mapping[str, Any], update: list[dict[str, Any]]
) -> Mapping[str, Any]:
    document = mongo.collection(collection).find_one_and_update(
        {"_id": dict(lease_id)}, update, upsert=True, return_document=ReturnDocument.AFTER
    )
    if document is None:
        raise Fault(f"the lease {dict(lease_id)} was neither inserted nor found")
    return document


def _held(clock: Clock, lease: Lease) -> dict[str, Any]:
    return {
        "_id": dict(lease.id),
        "Owner": lease.owner,
        "LeaseGeneration": lease.generation,
        "$expr": {"$gt": ["$ExpiresAtUtc", clock.mongo_now()]},
    }


def _take_if_free(clock: Clock, owner: str, ttl_s: float) -> list[dict[str, Any]]:
    """One update serves insertion and takeover alike: the server decides by its own clock whether the lease is free."""
    free = {"$lte": [{"$ifNull": ["$ExpiresAtUtc", clock.mongo_now()]}, clock.mongo_now()]}
    taken = {
        "Owner": owner,
        "LeaseGeneration": {"$add": [{"$ifNull": ["$LeaseGeneration", 0]}, 1]},
        "ExpiresAtUtc": clock.mongo_in(ttl_s),
        "StartedAtUtc": clock.mongo_now(),
    }
    return [{"$set": {field: {"$cond": [free, value, f"${field}"]} for field, value in taken.items()}}]
