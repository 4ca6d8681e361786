"""The engine's MongoDB filters, updates and pipelines: named pure functions, each predicate written once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from statlib.statistics.catalogue import AnyCatalogue, Pipeline
from statlib.statistics.documents import (
    CONTROL,
    DELTA,
    FOLD_QUARANTINE,
    GLOBAL_CONTROL,
    GLOBAL_ID,
    GUARD,
    MEMBER,
    RECEIPT,
    RECEIPT_RETIREMENT,
    ROW,
    Guard,
    Row,
)
from statlib.statistics.envelopes import Envelope
from statlib.statistics.pending import OLDEST, PENDING
from statlib.statistics.served_rows import SERVED_FIELDS

# Not the project: making 172 UUIDs took a seventh of reading a bundle. No tag either, which is a stage more per row.
_SERVED_ROW = {"$project": {"_id": 0, **dict.fromkeys(SERVED_FIELDS, 1)}}

PENDING_SET = "pending"
"""The ``Kind`` of a document with a pending set, in a bundle's answer."""


def guard_id(project: UUID, family: str) -> dict[str, Any]:
    return {"ProjectId": project, "Family": family}


def fold_lease_id(project: UUID) -> dict[str, Any]:
    """Apart from the families' leases: a rebuild holds it besides theirs."""
    return {"ProjectId": project, "Scope": "fold"}


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams of operations in one namespace, by name."""

    namespace: str
    names: tuple[str, ...]


def retirement_id(project: UUID, aggregate: UUID, namespace: str) -> dict[str, Any]:
    return {"ProjectId": project, "SourceAggregateId": aggregate, "OperationNamespace": namespace}


def one(collection: str, document_id: Any, as_: str) -> dict[str, Any]:
    """A look-up of one document by a constant id, as an array of at most one."""
    return {"$lookup": {"from": collection, "pipeline": [{"$match": {"_id": document_id}}], "as": as_}}


def load_source(catalogue: AnyCatalogue, project: UUID, aggregate: UUID, now: Any) -> Pipeline:
    """A source document with everything that a save decides by, as one command."""
    return [
        {"$match": {"_id": aggregate, "ProjectId": project}},
        {"$project": {"Source": "$$ROOT", "Now": now}},
        one(GLOBAL_CONTROL, GLOBAL_ID, "Fleet"),
        one(CONTROL, project, "Control"),
        one(catalogue.context_collection, project, "Context"),
    ]


def with_trail(project: UUID, aggregate: UUID, streams: Streams) -> Pipeline:
    """Stages that add what is kept of these streams outside the document, and what was retired of them."""
    of_streams = [
        {
            "ProjectId": project,
            "OperationNamespace": streams.namespace,
            "OperationId": {"$gte": f"{name}:", "$lt": f"{name};"},  # ';' follows ':'
        }
        for name in streams.names
    ]
    return _kept(project, aggregate, of_streams, (streams.namespace,))


def trail_of_operations(project: UUID, aggregate: UUID, keys: Sequence[tuple[str, str]]) -> Pipeline:
    """On the source collection: the same of operations by (namespace, id)."""
    named = [{"ProjectId": project, "OperationNamespace": space, "OperationId": id_} for space, id_ in keys]
    namespaces = tuple(dict.fromkeys(space for space, _ in keys))
    return [{"$match": {"_id": aggregate}}, {"$project": {"_id": 1}}, *_kept(project, aggregate, named, namespaces)]


def _kept(project: UUID, aggregate: UUID, operations: list[dict[str, Any]], namespaces: Sequence[str]) -> Pipeline:
    """In quarantine also what has no name: that of this document may be any operation of it."""
    nameless = {"ProjectId": project, "OperationNamespace": "", "OperationId": "", "StudyId": aggregate}
    retired = {"$in": [retirement_id(project, aggregate, namespace) for namespace in namespaces]}
    return [
        _joined(RECEIPT, _any(operations), "Receipts"),
        _joined(FOLD_QUARANTINE, _any([*operations, nameless]), "Quarantine"),
        _joined(RECEIPT_RETIREMENT, {"_id": retired}, "Retirement"),
    ]


def _joined(collection: str, match: dict[str, Any], as_: str) -> dict[str, Any]:
    return {"$lookup": {"from": collection, "pipeline": [{"$match": match}], "as": as_}}


def _any(branches: list[dict[str, Any]]) -> dict[str, Any]:
    return branches[0] if len(branches) == 1 else {"$or": branches}


def project_state(catalogue: AnyCatalogue, project: UUID, families: Iterable[str], now: Any) -> Pipeline:
    """On the control collection: a project's control, guards and context, and the fleet's control.

    For transactions and rebuilds; the reader has its own, one-command form.
    """
    guards = [guard_id(project, family) for family in families]
    return [
        {"$match": {"_id": project}},
        {"$project": {"Control": "$$ROOT", "Now": now}},
        one(GLOBAL_CONTROL, GLOBAL_ID, "Fleet"),
        one(catalogue.context_collection, project, "Context"),
        {"$lookup": {"from": GUARD, "pipeline": [{"$match": {"_id": {"$in": guards}}}], "as": "Guards"}},
        {"$lookup": {"from": DELTA, "pipeline": oldest_delta(project), "as": "Ledger"}},
    ]


def oldest_delta(project: UUID) -> Pipeline:
    """On the ledger, by its index: when the project's first row was observed, if there is one."""
    return [
        {"$match": {"ProjectId": project}},
        {"$sort": {"Revision": 1, "Record": 1}},
        {"$limit": 1},
        {"$project": {"_id": 0, "ObservedAtUtc": 1}},
    ]


def visible_rows(project: UUID, scopes: Mapping[str, Sequence[str] | None]) -> dict[str, Any]:
    """Filter for published rows: per family its scopes, or None for all of them.

    One scope has one published row, since each publication deletes the one before it.
    """
    whole = [family for family, wanted in scopes.items() if wanted is None]
    branches: list[dict[str, Any]] = [{"Family": {"$in": whole}}] if whole else []
    branches += [{"Family": f, "Scope": {"$in": list(wanted)}} for f, wanted in scopes.items() if wanted is not None]
    chosen = branches[0] if len(branches) == 1 else {"$or": branches}
    return {"ProjectId": project, **chosen, "IsPublished": True}


def _tagged(kind: str) -> dict[str, Any]:
    return {"$project": {"_id": 0, "Kind": kind, "Document": "$$ROOT"}}


def pending_sets(project: UUID, documents_max: int) -> Pipeline:
    """On the source collection, by its partial index: what is pending in a project, of as many documents, each under
    its ``Kind``.

    The audit says up to which version a set that makes no sense may have held anything.
    """
    fields = dict.fromkeys((PENDING, "Audit.Version", "Audit.LastModified"), 1)
    return [
        {"$match": {"ProjectId": project, OLDEST: {"$exists": True}}},
        {"$limit": documents_max},
        {"$project": {"_id": 0, **fields}},
        _tagged(PENDING_SET),
    ]


def bundle(
    catalogue: AnyCatalogue,
    project: UUID,
    scopes: Mapping[str, Sequence[str] | None],
    *,
    live_since: Mapping[str, Any],
    now: Any,
    pending_max: int | None,
) -> Pipeline:
    """On the global control: everything that a bundle read needs, as streams with constant predicates: each document
    under its ``Kind``, but the rows bare. ``pending_max``: pending sets that are asked for; None: their index need not
    exist.

    Streams, not look-ups: there is no 16 MiB limit on the whole, and each uses its index.
    """

    def stream(collection: str, match: Mapping[str, Any], projection: Mapping[str, Any]) -> dict[str, Any]:
        return {"$unionWith": {"coll": collection, "pipeline": [{"$match": dict(match)}, dict(projection)]}}

    guards = [guard_id(project, family) for family in scopes]
    streams = [
        {"$match": {"_id": GLOBAL_ID}},
        {"$project": {"_id": 0, "Kind": "fleet", "Document": "$$ROOT", "Now": now}},
        stream(CONTROL, {"_id": project}, _tagged("control")),
        stream(catalogue.context_collection, {"_id": project}, _tagged("context")),
        stream(GUARD, {"_id": {"$in": guards}}, _tagged("guard")),
        stream(ROW, visible_rows(project, scopes), _SERVED_ROW),
        stream(MEMBER, live_since, _tagged("member")),
    ]
    if pending_max is not None:
        found = pending_sets(project, pending_max)
        streams.append({"$unionWith": {"coll": catalogue.source_collection, "pipeline": found}})
    return streams


def row_key(project: UUID, family: str, scope: str, guard: Guard) -> dict[str, Any]:
    """The row of a scope that the guard makes visible, whether it is published or not."""
    return {
        "ProjectId": project,
        "Family": family,
        "Scope": scope,
        "Generation": guard.visible_generation,
        "Token": guard.visible_token,
    }


def row_as_read(row: Row) -> dict[str, Any]:
    """The row, if nobody changed it since: its last revision moves with every change."""
    return {
        "ProjectId": row.project_id,
        "Family": row.family,
        "Scope": row.scope,
        "Generation": row.generation,
        "Token": row.token,
        "State": row.state.value,
        "LastChangedRevision": row.last_changed_revision,
    }


def source_guard(envelope: Envelope, version: int) -> dict[str, Any]:
    """The compare half of every source write's compare-and-set."""
    return {"_id": envelope.aggregate, "ProjectId": envelope.project, "Audit.Version": version}


def before_deadline(read_at: datetime, deadline_s: float, now: Any) -> dict[str, Any]:
    """Holds while the server's time is within ``deadline_s`` of ``read_at`` (the server's time of the read).

    The process's own check cannot see that it was frozen after it; the server can.
    """
    return {"$expr": {"$lte": [now, {"$add": [read_at, round(deadline_s * 1000)]}]}}


def source_update(fields: Mapping[str, Any], now: Any) -> Pipeline:
    """The set half: the writer's fields, and the version moved by one. What is not named stays as it is."""
    literal = {name: {"$literal": value} for name, value in fields.items()}
    return [{"$set": {**literal, "Audit.Version": {"$add": ["$Audit.Version", 1]}, "Audit.LastModified": now}}]


def stale_family() -> dict[str, Any]:
    """Update of a guard that makes every row of the family unservable, whatever its state: the epoch always moves."""
    return {"$set": {"State": "Stale", "Candidate": None}, "$inc": {"FamilyWriteEpoch": 1, "Version": 1}}
