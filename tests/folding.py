"""Projects whose saves fold, and looks at what is pending in them."""

from __future__ import annotations

from uuid import UUID

from pymongo import ASCENDING

from statlib.mongo.connection import Mongo
from statlib.review.documents import STUDIES
from statlib.statistics.documents import CONTROL, FOLD_STORAGE_OFFSET, GLOBAL_CONTROL, STORAGE_VERSION, FoldMode
from statlib.statistics.pending import FOLD_PROTOCOL, OLDEST, PendingSet, pending_of


def fold_on(mongo: Mongo, project: UUID) -> None:
    """Put a project into fold mode without staling anything: for projects whose rows are fresh and exact already."""
    mongo.collection(STUDIES).create_index(
        [("ProjectId", ASCENDING), (OLDEST, ASCENDING)],
        name="IX_Study_PendingStatistics",
        partialFilterExpression={OLDEST: {"$exists": True}},
    )
    _set(mongo, project, FoldMode.ENABLED)


def fold_off(mongo: Mongo, project: UUID) -> None:
    """As a finished disabling leaves a project, whatever is pending."""
    _set(mongo, project, FoldMode.DISABLED)


def _set(mongo: Mongo, project: UUID, mode: FoldMode) -> None:
    tripwire = 0 if mode is FoldMode.DISABLED else FOLD_STORAGE_OFFSET + FOLD_PROTOCOL
    fields = {
        "FoldMode": mode.value,
        "FoldProtocolVersion": FOLD_PROTOCOL,
        "FoldEverEnabled": True,
        "StorageVersion": STORAGE_VERSION + tripwire,
    }
    done = mongo.collection(CONTROL).update_one({"_id": project}, {"$set": fields, "$inc": {"Audit.Version": 1}})
    assert done.matched_count == 1


def pending(mongo: Mongo, project: UUID) -> dict[UUID, PendingSet]:
    """The pending sets of a project's studies, by study; those that have none are left out."""
    return {
        study["_id"]: found
        for study in mongo.collection(STUDIES).find({"ProjectId": project})
        if (found := pending_of(study))
    }


def heartbeat(mongo: Mongo, protocol: int = FOLD_PROTOCOL) -> None:
    """As a fold worker of that protocol has just left it."""
    beat = {"RenewedAtUtc": mongo.clock.mongo_now(), "Host": "a fold worker"}
    done = mongo.collection(GLOBAL_CONTROL).update_one({}, [{"$set": {f"FoldWorkerHeartbeats.{protocol}": beat}}])
    assert done.matched_count == 1
