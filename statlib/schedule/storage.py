"""Collections and indexes of schedules."""

from __future__ import annotations

from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import OperationFailure

from statlib.mongo.connection import Mongo
from statlib.passes.audit import AUDIT, REQUEST
from statlib.schedule.documents import RUN, SCHEDULE, SLOT, HookState
from statlib.schedule.states import OPEN

INDEXES: dict[str, list[IndexModel]] = {
    SLOT: [
        IndexModel([("Schedule", ASCENDING), ("SlotAtUtc", DESCENDING)], name="slot", unique=True),
        # The server itself keeps a schedule to one slot that waits or runs, whatever a scheduler believes.
        IndexModel(
            [("Schedule", ASCENDING)],
            name="open",
            unique=True,
            partialFilterExpression={"State": {"$in": sorted(OPEN)}},
        ),
    ],
    RUN: [
        IndexModel([("Schedule", ASCENDING), ("SlotAtUtc", DESCENDING), ("Attempt", DESCENDING)], unique=True),
        IndexModel([("Hook", ASCENDING)], name="owed", partialFilterExpression={"Hook": HookState.OWED.value}),
    ],
}
_NAMESPACE_EXISTS = 48


def initialise(mongo: Mongo) -> None:
    """Create what is missing; changes nothing that exists, and is safe to repeat."""
    existing = set(mongo.database.list_collection_names())
    for name in (SCHEDULE, SLOT, RUN, AUDIT, REQUEST):
        if name not in existing:
            _create(mongo, name)
    for name, indexes in INDEXES.items():
        mongo.collection(name).create_indexes(indexes)


def _create(mongo: Mongo, name: str) -> None:
    try:
        mongo.database.create_collection(name, check_exists=False)
    except OperationFailure as error:
        if error.code != _NAMESPACE_EXISTS:  # another scheduler was first
            raise
