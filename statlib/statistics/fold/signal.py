"""Which projects are due for a turn: a look at the partial index, a few times a second, and no bus.

The look takes the oldest entry of each project from the index alone. What ends fold mode is due without any entry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pymongo.errors import OperationFailure

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.statistics.bounds import FOLD_SWEEP_AGE_S, FOLD_SWEEP_PROJECTS_MAX, FOLD_WRITER_GRACE_S
from statlib.statistics.catalogue import AnyCatalogue, Pipeline
from statlib.statistics.documents import CONTROL, FoldMode
from statlib.statistics.fold.batch import INDEX
from statlib.statistics.pending import OLDEST
from statlib.statistics.reasons import OperateReason

_ANY_TIME = {"$gte": datetime.min.replace(tzinfo=UTC)}  # which the index answers without a look at any document
_ANYTHING = {"$exists": True}  # also what is no time, at the price of that look
_NO_SUCH_INDEX = 2  # BadValue: what a hint at a missing index answers


def due(mongo: Mongo, catalogue: AnyCatalogue, projects: Collection[UUID], *, older_than_s: float) -> list[UUID]:
    """Those of ``projects`` in which anything has been pending for so long, the longest waiting first.

    Without the index nothing can be pending: fold mode is not enabled before it is there. ``sweep`` asks for it.
    """
    try:
        return _found(mongo, catalogue, oldest_of(projects, mongo.clock.mongo_in(-older_than_s)))
    except OperationFailure as error:
        if error.code != _NO_SUCH_INDEX:
            raise
        return []


def _found(mongo: Mongo, catalogue: AnyCatalogue, pipeline: Pipeline) -> list[UUID]:
    found = mongo.collection(catalogue.source_collection).aggregate(pipeline, hint=dict(INDEX))
    return [project["_id"] for project in found]


def oldest_of(projects: Collection[UUID], before: Any, pending: Mapping[str, Any] = _ANY_TIME) -> Pipeline:
    """Per project its oldest pending time, if that is at ``before`` at the latest: the oldest project first."""
    waited = {"$or": [{"$lte": ["$Oldest", before]}, {"$ne": [{"$type": "$Oldest"}, "date"]}]}
    return [
        {"$match": {"ProjectId": {"$in": sorted(projects)}, OLDEST: dict(pending)}},
        {"$group": {"_id": "$ProjectId", "Oldest": {"$min": f"${OLDEST}"}}},
        {"$match": {"$expr": waited}},
        {"$sort": {"Oldest": 1}},
        {"$limit": FOLD_SWEEP_PROJECTS_MAX},
    ]


def ending(mongo: Mongo, projects: Collection[UUID]) -> list[UUID]:
    """Those whose fold mode was disabled long enough ago to be ended."""
    over = {"$lte": ["$FoldDisablingSinceUtc", mongo.clock.mongo_in(-FOLD_WRITER_GRACE_S)]}
    wanted = {"_id": {"$in": sorted(projects)}, "FoldMode": FoldMode.DISABLING.value, "$expr": over}
    return [control["_id"] for control in mongo.collection(CONTROL).find(wanted, {"_id": 1})]


def sweep(mongo: Mongo, catalogue: AnyCatalogue, projects: Collection[UUID]) -> list[UUID]:
    """What should not be there: projects with anything older than ``FOLD_SWEEP_AGE_S``; and those that are ending.

    Refuses PendingIndexMissing where a project folds, or has folded, and its entries cannot be found.
    """
    folding = {"_id": {"$in": sorted(projects)}, "FoldEverEnabled": True}
    if mongo.collection(CONTROL).find_one(folding, {"_id": 1}) is None:
        return []
    names = mongo.collection(catalogue.source_collection).index_information().values()
    if not any(index["key"] == INDEX for index in names):
        raise Refusal(OperateReason.PendingIndexMissing, f"of {catalogue.source_collection}")
    before = mongo.clock.mongo_in(-FOLD_SWEEP_AGE_S)
    forgotten = _found(mongo, catalogue, oldest_of(projects, before, _ANYTHING))
    return list(dict.fromkeys([*forgotten, *ending(mongo, projects)]))
