"""The index by which pending entries are found: a partial one, over the documents that have any.

It is built by an operator, in a quiet hour, and never by a start-up: although it holds next to nothing, its build scans
the whole source collection. Fold mode is not enabled before it is there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from pymongo import ASCENDING
from pymongo.errors import OperationFailure

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.statistics.catalogue import AnyCatalogue, Pipeline
from statlib.statistics.pending import OLDEST, PENDING
from statlib.statistics.reasons import OperateReason

PENDING_INDEX = "IX_Study_PendingStatistics"
KEYS: dict[str, int] = {"ProjectId": ASCENDING, OLDEST: ASCENDING}
PARTIAL: dict[str, Any] = {OLDEST: {"$exists": True}}
_CONFLICTS = frozenset({85, 86})  # IndexOptionsConflict, IndexKeySpecsConflict
_NAMESPACE_NOT_FOUND = 26


class IndexState(StrEnum):
    ABSENT = "Absent"
    BUILDING = "Building"
    READY = "Ready"


@dataclass(frozen=True, slots=True)
class PendingIndex:
    """``built``: by this very call, in so many ``seconds``."""

    state: IndexState
    built: bool = False
    seconds: float = 0.0


def index_state(mongo: Mongo, catalogue: AnyCatalogue) -> IndexState:
    """How the index stands, by the server's list of indexes. One of its name that is another index is none.

    The plain list does not tell an index that is being built from one that is there, so the build ids are asked for.
    """
    command = {"listIndexes": catalogue.source_collection, "includeBuildUUIDs": True}
    try:
        found = mongo.database.command(command)["cursor"]["firstBatch"]
    except OperationFailure as error:
        if error.code != _NAMESPACE_NOT_FOUND:
            raise
        return IndexState.ABSENT
    for entry in found:
        spec = entry.get("spec", entry)
        if spec["name"] == PENDING_INDEX and _is_ours(spec):
            return IndexState.BUILDING if "buildUUID" in entry else IndexState.READY
    return IndexState.ABSENT


def build_pending_index(mongo: Mongo, catalogue: AnyCatalogue) -> PendingIndex:
    """Build the index if it is not there; it is ready when this returns, on a majority of the voting members.

    Safe to repeat: one that is there is left alone, one that is being built is waited for. A caller that dies leaves
    the build to the server. Refuses PendingIndexConflict.
    """
    before = index_state(mongo, catalogue)
    if before is IndexState.READY:
        return PendingIndex(before)
    command = {
        "createIndexes": catalogue.source_collection,
        "indexes": [{"name": PENDING_INDEX, "key": KEYS, "partialFilterExpression": PARTIAL}],
        "commitQuorum": "votingMembers",
        "comment": "statlib: pending statistics",
    }
    began = time.monotonic()
    try:
        mongo.database.command(command)
    except OperationFailure as error:
        if error.code in _CONFLICTS:
            raise Refusal(OperateReason.PendingIndexConflict, PENDING_INDEX) from error
        raise
    took_s = round(time.monotonic() - began, 3)
    return PendingIndex(index_state(mongo, catalogue), built=before is IndexState.ABSENT, seconds=took_s)


def _is_ours(spec: Mapping[str, Any]) -> bool:
    return list(spec["key"].items()) == list(KEYS.items()) and spec.get("partialFilterExpression") == PARTIAL


def pending_totals(project: UUID) -> Pipeline:
    """On the source collection, with the index as its hint: how much is pending in a project; nothing if nothing is.

    An entry list that is none counts as empty: such a set is poison, and counted as a document."""
    entries = f"${PENDING}.Entries"
    return [
        {"$match": {"ProjectId": project, OLDEST: {"$exists": True}}},
        {
            "$group": {
                "_id": None,
                "Studies": {"$sum": 1},
                "Entries": {"$sum": {"$cond": [{"$isArray": entries}, {"$size": entries}, 0]}},
                "Overflowed": {"$sum": {"$cond": [{"$eq": [{"$type": f"${PENDING}.Overflow"}, "object"]}, 1, 0]}},
                "Oldest": {"$min": f"${OLDEST}"},
            }
        },
    ]
