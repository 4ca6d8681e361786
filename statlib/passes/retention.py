"""Retention of audit and request records: explicit, bounded, audited, and never a loop.

One pass removes at most ``RETENTION_PASS_MAX`` records older than the retention that the settings state, together
with its own audit record. No TTL index does this: a record of what operators did must not vanish unasked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pymongo import ASCENDING
from pymongo.client_session import ClientSession

from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import transact
from statlib.passes.audit import AUDIT, REQUEST, Action, accept, server_time
from statlib.passes.bounds import RETENTION_PASS_MAX
from statlib.passes.operations import forget_dead


class Records(StrEnum):
    """What a pass prunes. Old requests also take with them what dead processes left of theirs."""

    AUDIT = "audit"
    REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class Pruned:
    """``removed`` records older than ``before``; ``more``: the cap was reached, so another pass may find more."""

    records: Records
    removed: int
    more: bool
    before: datetime

    def as_outcome(self) -> dict[str, Any]:
        return {
            "records": self.records.value,
            "removed": self.removed,
            "more": self.more,
            "before": self.before.isoformat(),
        }


def prune(mongo: Mongo, records: Records, action: Action) -> Pruned:
    """One pass, in one transaction with its audit record. A crash leaves nothing half done."""
    admin = mongo.settings.admin
    kept_s = admin.audit_retention_s if records is Records.AUDIT else admin.request_retention_s
    now = server_time(mongo)
    before = now - timedelta(seconds=kept_s)
    collection = AUDIT if records is Records.AUDIT else REQUEST

    def body(session: ClientSession) -> Pruned:
        old = {"ObservedAtUtc": {"$lt": before}}
        found = list(
            mongo.collection(collection)
            .find(old, {"_id": 1}, session=session)
            .sort("ObservedAtUtc", ASCENDING)
            .limit(RETENTION_PASS_MAX + 1)
        )
        chosen = [document["_id"] for document in found[:RETENTION_PASS_MAX]]
        removed = 0
        if chosen:
            gone = mongo.collection(collection).delete_many({"_id": {"$in": chosen}, **old}, session=session)
            removed = gone.deleted_count
        if records is Records.REQUESTS:
            forget_dead(mongo, session, before=before, cap=RETENTION_PASS_MAX)
        pruned = Pruned(records, removed, len(found) > RETENTION_PASS_MAX, before)
        accept(mongo, session, action, before={}, after=pruned.as_outcome(), now=now)
        return pruned

    return transact(mongo, body)
