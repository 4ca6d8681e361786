"""Telling clients what to read again: coalesced outbox slots, delivered at least once.

A slot belongs to a family of a project and holds the newest client revision; what comes between two deliveries is
delivered as one. A slot is owed while its revision is above the one that was last taken. Whoever delivers claims the
project's slots for longer than one attempt can take; if that process dies, another repeats. A receiver tells
repeats by the revision, which only rises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from pymongo import UpdateOne

from statlib.kernel import telemetry
from statlib.kernel.identifiers import new_token
from statlib.mongo.connection import Mongo
from statlib.passes.audit import server_time
from statlib.passes.delivery import Receiver
from statlib.statistics.documents import OUTBOX

CLAIM_MARGIN_S = 30.0  # beyond one attempt's timeout
BACK_OFF_S, BACK_OFF_MAX_S = 1.0, 60.0  # after a failed delivery; doubles from the first to the second


class Outcome(Enum):
    TAKEN = "taken"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Change:
    """What a receiver is told: these families of this project are to be read again.

    ``revisions`` are client revisions; ``queued_at`` is the oldest change's server time.
    """

    project: UUID
    revisions: Mapping[str, int]
    queued_at: datetime

    @property
    def client_revision(self) -> int:
        return max(self.revisions.values())

    @property
    def key(self) -> str:
        return f"{self.project}:{self.client_revision}"

    def to_wire(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "project": str(self.project),
            "families": sorted(self.revisions),
            "clientRevision": self.client_revision,
            "queuedAt": self.queued_at.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class Round:
    """One look at the outbox: projects told, projects whose delivery failed, with the last failure."""

    taken: int
    failed: int
    failure: str = ""


def dispatch_due(mongo: Mongo, receiver: Receiver, *, timeout_s: float) -> Round:
    """Deliver everything that is owed and due, the longest waiting project first; each at most once per round."""
    taken = failed = 0
    failure = ""
    for project in _due(mongo):
        change, claim = _claim(mongo, project, timeout_s)
        if change is None:
            continue  # another dispatcher is at it
        failure_now = receiver.send(json.dumps(change.to_wire()), key=change.key, timeout_s=timeout_s)
        telemetry.count("outbox.deliveries", outcome=Outcome.FAILED if failure_now else Outcome.TAKEN)
        if failure_now:
            failed, failure = failed + 1, failure_now
            _put_off(mongo, change, claim, failure_now)
            continue
        taken += 1
        lag_ms = (server_time(mongo) - change.queued_at).total_seconds() * 1000
        telemetry.record("outbox.lag", lag_ms, unit="ms")
        _settle(mongo, change, claim)
    return Round(taken, failed, failure)


def owed(mongo: Mongo) -> int:
    """How many slots wait for a receiver."""
    return mongo.collection(OUTBOX).count_documents({"$expr": _OWED})


_OWED = {"$gt": ["$ClientInvalidationRevision", {"$ifNull": ["$DispatchedRevision", -1]}]}


def _is_due(mongo: Mongo) -> dict[str, Any]:
    now = mongo.clock.mongo_now()
    waited = {"$lte": [{"$ifNull": ["$NextAttemptAtUtc", now]}, now]}
    free = {"$lte": [{"$ifNull": ["$ClaimedUntilUtc", now]}, now]}
    return {"$expr": {"$and": [_OWED, waited, free]}}


def _due(mongo: Mongo) -> list[UUID]:
    pipeline = [
        {"$match": _is_due(mongo)},
        {"$group": {"_id": "$_id.ProjectId", "Oldest": {"$min": "$QueuedAtUtc"}}},
        {"$sort": {"Oldest": 1}},
    ]
    return [found["_id"] for found in mongo.collection(OUTBOX).aggregate(pipeline)]


def _claim(mongo: Mongo, project: UUID, timeout_s: float) -> tuple[Change | None, str]:
    claim = new_token()
    until = mongo.clock.mongo_in(timeout_s + CLAIM_MARGIN_S)
    slots = mongo.collection(OUTBOX)
    slots.update_many(
        {"_id.ProjectId": project, **_is_due(mongo)}, [{"$set": {"ClaimedUntilUtc": until, "Claim": claim}}]
    )
    claimed = list(slots.find({"_id.ProjectId": project, "Claim": claim}))
    if not claimed:
        return None, claim
    revisions = {slot["_id"]["Family"]: int(slot["ClientInvalidationRevision"]) for slot in claimed}
    return Change(project, revisions, min(slot["QueuedAtUtc"] for slot in claimed)), claim


def _settle(mongo: Mongo, change: Change, claim: str) -> None:
    """Up to the revision that was told, and not to what came since."""
    _write(mongo, change, claim, {"Attempts": 0, "LastFailure": ""}, told=True)


def _put_off(mongo: Mongo, change: Change, claim: str, failure: str) -> None:
    attempts = {"$add": [{"$ifNull": ["$Attempts", 0]}, 1]}
    wait_s = {"$min": [BACK_OFF_MAX_S, {"$multiply": [BACK_OFF_S, {"$pow": [2, {"$ifNull": ["$Attempts", 0]}]}]}]}
    later = {"$add": [mongo.clock.mongo_now(), {"$toLong": {"$multiply": [wait_s, 1000]}}]}
    fields = {"Attempts": attempts, "NextAttemptAtUtc": later, "LastFailure": {"$literal": failure}}
    _write(mongo, change, claim, fields, told=False)


def _write(mongo: Mongo, change: Change, claim: str, fields: Mapping[str, Any], *, told: bool) -> None:
    mongo.collection(OUTBOX).bulk_write(
        [
            UpdateOne(
                {"_id": {"ProjectId": change.project, "Family": family}, "Claim": claim},
                [
                    {"$set": {**fields, **({"DispatchedRevision": revision} if told else {})}},
                    {"$unset": ["Claim", "ClaimedUntilUtc", *(["NextAttemptAtUtc"] if told else [])]},
                ],
            )
            for family, revision in change.revisions.items()
        ]
    )
