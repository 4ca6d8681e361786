"""Collections, indexes and the fleet's first document; and how large it all is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pymongo import ASCENDING, IndexModel
from pymongo.errors import OperationFailure

from statlib.mongo.connection import Mongo
from statlib.passes.audit import AUDIT, REQUEST
from statlib.statistics.bounds import MEMBER_RETENTION_S, QUARANTINE_RETENTION_S
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import (
    CONTROL,
    DELTA,
    DELTA_SEAL,
    FENCE,
    FOLD_QUARANTINE,
    GLOBAL_CONTROL,
    GUARD,
    LEASE,
    MEMBER,
    OUTBOX,
    RECEIPT,
    RECEIPT_RETIREMENT,
    ROW,
    DeltaKind,
    GlobalControl,
    Mode,
)

COLLECTIONS = (
    GLOBAL_CONTROL,
    CONTROL,
    ROW,
    GUARD,
    FENCE,
    RECEIPT,
    RECEIPT_RETIREMENT,
    DELTA,
    DELTA_SEAL,
    OUTBOX,
    LEASE,
    MEMBER,
    FOLD_QUARANTINE,
    AUDIT,
    REQUEST,
)
_NAMESPACE_NOT_FOUND = 26


def _ascending(*fields: str) -> list[tuple[str, int]]:
    return [(name, ASCENDING) for name in fields]


INDEXES: dict[str, list[IndexModel]] = {
    ROW: [IndexModel(_ascending("ProjectId", "Family", "Scope", "Generation", "Token"), unique=True)],
    RECEIPT: [
        IndexModel(_ascending("ProjectId", "OperationNamespace", "OperationId"), unique=True),
        IndexModel(_ascending("ProjectId", "ObservedAtUtc", "OperationId")),
    ],
    DELTA: [
        IndexModel(_ascending("ProjectId", "Revision", "Record"), unique=True),
        IndexModel(  # the fold asks for an operation's record; the other kinds have no operation
            _ascending("ProjectId", "OperationNamespace", "OperationId"),
            partialFilterExpression={"Kind": DeltaKind.OPERATION.value},
        ),
    ],
    DELTA_SEAL: [IndexModel(_ascending("ProjectId", "LastRevision"), unique=True)],
    FOLD_QUARANTINE: [
        # By operation, which repeats are asked by; those without one, by document; and all of a project, counted.
        IndexModel(_ascending("ProjectId", "OperationNamespace", "OperationId", "StudyId")),
        IndexModel(_ascending("QuarantinedAtUtc"), expireAfterSeconds=QUARANTINE_RETENTION_S),
    ],
    MEMBER: [IndexModel(_ascending("RenewedAtUtc"), expireAfterSeconds=MEMBER_RETENTION_S)],
    AUDIT: [IndexModel(_ascending("Target", "ObservedAtUtc"))],
}


def initialise(mongo: Mongo, catalogue: AnyCatalogue, *, fleet: Mode = Mode.DISABLED) -> None:
    """Create what is missing: collections, indexes, the fleet's control. Changes nothing that exists; safe to repeat.

    A fleet starts closed. ``fleet=Mode.ENABLED`` starts it open where no source document exists yet: no save can have
    passed statistics by, so there is no grace to wait for.
    """
    existing = set(mongo.database.list_collection_names())
    for name in (*COLLECTIONS, catalogue.source_collection, catalogue.context_collection):
        if name not in existing:
            _create(mongo, name)
    for name, indexes in INDEXES.items():
        mongo.collection(name).create_indexes(indexes)
    mongo.collection(catalogue.source_collection).create_index(_ascending("ProjectId", "_id"))
    empty = mongo.collection(catalogue.source_collection).find_one({}, {"_id": 1}) is None
    control = GlobalControl(mode=fleet if empty else Mode.DISABLED, catalogue_version=catalogue.version).to_bson()
    identity = control.pop("_id")
    mongo.collection(GLOBAL_CONTROL).update_one({"_id": identity}, {"$setOnInsert": control}, upsert=True)


def _create(mongo: Mongo, name: str) -> None:
    """Ahead of its first write, because a transaction that has to create a collection meets its rivals' creations."""
    try:
        mongo.database.create_collection(name, check_exists=False)
    except OperationFailure as error:
        if error.code != 48:  # NamespaceExists: another process was first
            raise


@dataclass(frozen=True, slots=True)
class CollectionSize:
    """Documents, uncompressed bytes of them, and bytes on disk with indexes."""

    collection: str
    documents: int
    size_bytes: int
    storage_bytes: int


def sizes(mongo: Mongo, collections: Iterable[str]) -> tuple[CollectionSize, ...]:
    """How large each collection is; one that does not exist is empty."""
    return tuple(_size(mongo, name) for name in collections)


def _size(mongo: Mongo, name: str) -> CollectionSize:
    try:
        found = list(mongo.collection(name).aggregate([{"$collStats": {"storageStats": {}}}]))
    except OperationFailure as error:
        if error.code != _NAMESPACE_NOT_FOUND:
            raise
        found = []
    if not found:
        return CollectionSize(name, 0, 0, 0)
    stats = found[0]["storageStats"]
    stored = stats["storageSize"] + stats["totalIndexSize"]
    return CollectionSize(name, int(stats["count"]), int(stats["size"]), int(stored))
