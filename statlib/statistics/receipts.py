"""Receipts of a time window: what evidence counts confirmed saves by."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from pymongo import ASCENDING

from statlib.mongo.connection import Mongo
from statlib.statistics.documents import RECEIPT, Receipt


def receipts_between(
    mongo: Mongo, project: UUID, since: datetime, until: datetime, *, after: tuple[datetime, str] | None, limit: int
) -> Iterator[Receipt]:
    """At most ``limit`` receipts observed in [since, until), in the order (observed, operation id), strictly past
    ``after`` (the last of the page before)."""
    wanted: dict[str, object] = {"ProjectId": project, "ObservedAtUtc": {"$gte": since, "$lt": until}}
    if after is not None:
        at, operation = after
        wanted["$or"] = [{"ObservedAtUtc": {"$gt": at}}, {"ObservedAtUtc": at, "OperationId": {"$gt": operation}}]
    order = [("ObservedAtUtc", ASCENDING), ("OperationId", ASCENDING)]
    for document in mongo.collection(RECEIPT).find(wanted).sort(order).limit(limit):
        yield Receipt.from_bson(document)
