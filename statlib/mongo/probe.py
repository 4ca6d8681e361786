"""Asks a server, before anything relies on it, whether it does what the guarantees rest on.

Some servers speak MongoDB's protocol and quietly answer otherwise: a lease compared with ``$$NOW`` that matches
nothing, a snapshot that sees later writes. They are refused here, by name, and not met in the middle of a save.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import ConfigurationError, InvalidOperation, OperationFailure

from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason

OLDEST_VERSION = (6, 0)
TRANSACTION_LIFETIME_MAX_S = 10


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the probe found. ``transaction_lifetime_s`` is None where the user may not read it."""

    version: str
    set_name: str
    transaction_lifetime_s: int | None
    warnings: tuple[str, ...]


def probe(mongo: Mongo) -> ServerFacts:
    """Check the primary, and return what it is.

    Refuses ServerStandalone, ServerSharded, ServerTooOld, ServerTimeUnusable and SnapshotUnusable. Writes two
    documents to a collection of its own name and drops it; a probe that is killed leaves that collection, which
    nothing reads.
    """
    hello = mongo.client.admin.command("hello")
    if hello.get("msg") == "isdbgrid":
        raise Refusal(MongoReason.ServerSharded, "the address is a sharded cluster's router")
    if not (set_name := hello.get("setName")):
        raise Refusal(MongoReason.ServerStandalone, "the server belongs to no replica set")
    version = str(mongo.client.server_info()["version"])
    if _major_minor(version) < OLDEST_VERSION:
        raise Refusal(MongoReason.ServerTooOld, f"the server is MongoDB {version}")
    scratch = mongo.collection(f"statlibProbe{new_token()}")
    try:
        _check_snapshot(mongo, scratch)
        _check_time(scratch)
    finally:
        scratch.drop()
    lifetime_s = _transaction_lifetime_s(mongo)
    return ServerFacts(
        version=version, set_name=str(set_name), transaction_lifetime_s=lifetime_s, warnings=_warnings(lifetime_s)
    )


def _check_snapshot(mongo: Mongo, scratch: Collection[dict[str, Any]]) -> None:
    """A snapshot session must see what was majority-committed before its first read, and nothing after."""
    scratch.update_one({"_id": 1}, [{"$set": {"At": "$$NOW"}}], upsert=True)
    try:
        with mongo.client.start_session(snapshot=True) as session:
            before = [found["_id"] for found in scratch.find({}, session=session)]
            scratch.update_one({"_id": 2}, [{"$set": {"At": "$$NOW"}}], upsert=True)
            after = [found["_id"] for found in scratch.find({}, session=session)]
    except (OperationFailure, ConfigurationError, InvalidOperation) as error:
        raise Refusal(MongoReason.SnapshotUnusable, "a snapshot session was refused") from error
    if before != [1] or after != [1]:
        raise Refusal(MongoReason.SnapshotUnusable, "a snapshot session did not hold its snapshot")


def time_has_passed() -> Mapping[str, Any]:
    """Filter: the document's time is not after the server's."""
    return {"$expr": {"$lte": ["$At", "$$NOW"]}}


def time_is_to_come() -> Mapping[str, Any]:
    """Filter: the negation of ``time_has_passed``."""
    return {"$expr": {"$not": [{"$lte": ["$At", "$$NOW"]}]}}


def _check_time(scratch: Collection[dict[str, Any]]) -> None:
    """Both documents carry a time that has passed, so the predicate matches both and its negation neither."""
    try:
        matched, refuted = len(list(scratch.find(time_has_passed()))), len(list(scratch.find(time_is_to_come())))
    except OperationFailure as error:
        raise Refusal(MongoReason.ServerTimeUnusable, "a filter on $$NOW was refused") from error
    if (matched, refuted) != (2, 0):
        raise Refusal(
            MongoReason.ServerTimeUnusable, f"a filter on $$NOW matched {matched} of 2, its negation {refuted}"
        )


def _transaction_lifetime_s(mongo: Mongo) -> int | None:
    try:
        answer = mongo.client.admin.command("getParameter", 1, transactionLifetimeLimitSeconds=1)
    except OperationFailure:
        return None
    return int(answer["transactionLifetimeLimitSeconds"])


def _warnings(lifetime_s: int | None) -> tuple[str, ...]:
    if lifetime_s is None or lifetime_s <= TRANSACTION_LIFETIME_MAX_S:
        return ()
    return (
        f"transactionLifetimeLimitSeconds is {lifetime_s}: a transaction whose commit was lost blocks its documents "
        f"that long; set it to {TRANSACTION_LIFETIME_MAX_S}",
    )


def _major_minor(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
