"""What is stored of a batch's operations already, in the batch's own snapshot: one find per collection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.mongo.connection import Mongo
from statlib.statistics.documents import DELTA, FOLD_QUARANTINE, RECEIPT, RECEIPT_RETIREMENT, DeltaKind
from statlib.statistics.fold.batch import Taken
from statlib.statistics.fold.dispositions import Key, Known, keys_of

_KEY = {"_id": 0, "OperationNamespace": 1, "OperationId": 1, "SourceDigest": 1}
_ANY: Mapping[str, Any] = {}
_OF_OPERATIONS = {"Kind": DeltaKind.OPERATION.value}  # what the ledger's index by operation holds


def known_of(mongo: Mongo, session: ClientSession, project: UUID, batch: Sequence[Taken]) -> Known:
    keys = keys_of(batch)
    if not keys:
        return Known()

    def found(collection: str, of: Mapping[str, Any] = _ANY) -> list[dict[str, Any]]:
        return list(mongo.collection(collection).find(_operations(project, keys, of), _KEY, session=session))

    streams = [
        {"ProjectId": project, "SourceAggregateId": taken.aggregate, "OperationNamespace": namespace}
        for taken in batch
        for namespace in sorted({namespace for namespace, _ in keys})
    ]
    retired = mongo.collection(RECEIPT_RETIREMENT).find({"_id": {"$in": streams}}, session=session)
    return Known(
        receipts={_key(receipt): receipt["SourceDigest"] for receipt in found(RECEIPT)},
        deltas=frozenset(map(_key, found(DELTA, _OF_OPERATIONS))),
        quarantined=frozenset(map(_key, found(FOLD_QUARANTINE))),
        retired={
            (row["_id"]["SourceAggregateId"], row["_id"]["OperationNamespace"]): int(
                row["RetiredThroughSourceRevision"]
            )
            for row in retired
        },
    )


def _operations(project: UUID, keys: Iterable[Key], of: Mapping[str, Any]) -> dict[str, Any]:
    """Filter for the records of these operations, for the indexes that begin with project, namespace and id."""
    by_namespace: defaultdict[str, list[str]] = defaultdict(list)
    for namespace, operation in keys:
        by_namespace[namespace].append(operation)
    branches = [
        {"ProjectId": project, "OperationNamespace": namespace, "OperationId": {"$in": ids}, **of}
        for namespace, ids in sorted(by_namespace.items())
    ]
    return branches[0] if len(branches) == 1 else {"$or": branches}


def _key(document: dict[str, Any]) -> Key:
    return document["OperationNamespace"], document["OperationId"]
