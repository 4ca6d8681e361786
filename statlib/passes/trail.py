"""The audit trail, read a page at a time, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo import DESCENDING

from statlib.mongo.connection import Mongo
from statlib.passes.audit import AUDIT, AuditRecord, Outcome


@dataclass(frozen=True, slots=True)
class Place:
    """A record's place in the trail; the page after it begins strictly below."""

    at: datetime
    id: ObjectId


@dataclass(frozen=True, slots=True)
class Placed:
    place: Place
    record: AuditRecord


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records; None or empty asks for any."""

    since: datetime | None = None
    until: datetime | None = None
    target: str | None = None
    principal: str | None = None
    run: str | None = None
    request_id: str | None = None
    outcome: Outcome | None = None

    def as_filter(self) -> dict[str, Any]:
        named = {
            "Target": self.target,
            "Principal": self.principal,
            "RunId": self.run,
            "RequestId": self.request_id,
            "Outcome": self.outcome.value if self.outcome else None,
        }
        window = {"$gte": self.since, "$lt": self.until}
        chosen: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
        if bounds := {key: value for key, value in window.items() if value is not None}:
            chosen["ObservedAtUtc"] = bounds
        return chosen


def audit_page(mongo: Mongo, wanted: Wanted, *, after: Place | None, limit: int) -> tuple[Placed, ...]:
    """At most ``limit`` records in the order (observed, id), newest first, strictly past ``after``.

    A record that is written while one pages is missed or met, never met twice.
    """
    chosen = wanted.as_filter()
    if after is not None:
        later = {"$or": [{"ObservedAtUtc": {"$lt": after.at}}, {"ObservedAtUtc": after.at, "_id": {"$lt": after.id}}]}
        chosen = {"$and": [chosen, later]}
    order = [("ObservedAtUtc", DESCENDING), ("_id", DESCENDING)]
    return tuple(
        Placed(Place(document["ObservedAtUtc"], document["_id"]), AuditRecord.from_bson(document))
        for document in mongo.collection(AUDIT).find(chosen).sort(order).limit(limit)
    )
