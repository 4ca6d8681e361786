"""Rewriting a project's source documents behind a source-visibility fence, from the edit that asks for it to its end.

The edit, the token and the intent commit together. Then every document is visited in bounded transactions, in the order
of their ids; the last one clears the token. Whoever takes an interrupted rewrite over completes it: between two steps
the source is half old and half new, so there is no other way back to values that are right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pymongo import ASCENDING
from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Fault, Refusal
from statlib.statistics.bounds import FENCE_CHUNK_DOCS_MAX
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import FenceKind
from statlib.statistics.edits import ContextChange, Edited, Requirement
from statlib.statistics.fences import Asked, Held, Progress, admit, chunk, finish, take_over_interrupted, underway
from statlib.statistics.hosts import Host
from statlib.statistics.reasons import OperateReason

_REWRITTEN = "__Rewritten"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """``visited`` documents, of which ``changed`` were not already so. ``edited`` is None where an interrupted rewrite
    of the same intent was completed: its edit had committed with it."""

    kind: FenceKind
    visited: int
    changed: int
    edited: Edited | None = None
    resumed: bool = False

    def as_wire(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "visited": self.visited,
            "changed": self.changed,
            "resumed": self.resumed,
            "edited": self.edited.as_wire() if self.edited else None,
        }


def rewrite(
    host: Host,
    catalogue: AnyCatalogue,
    project: UUID,
    kind: FenceKind,
    *,
    intent: Mapping[str, Any],
    change: ContextChange | None = None,
    families: frozenset[str] = frozenset(),
    require: Requirement | None = None,
) -> Rewritten:
    """Edit the project and rewrite its documents accordingly; ``families`` are those that the rewrite itself moves.

    An interrupted rewrite is completed first, and if it was this one, that is all there is to do. Refuses as ``admit``
    and ``chunk`` do. A crash leaves the token with its intent; repeating the call completes it.
    """
    while True:
        held = admit(host, catalogue, project, Asked(kind, families, intent, change, require))
        done = _carry_out(held)
        if not held.foreign:
            return done


def complete(host: Host, catalogue: AnyCatalogue, project: UUID, kind: FenceKind) -> Rewritten:
    """Complete an interrupted rewrite. Refuses FenceUnknown, FenceHeld."""
    return _carry_out(take_over_interrupted(host, catalogue, project, kind))


def _carry_out(held: Held) -> Rewritten:
    progress: Progress = held.fence.progress or {"visited": 0, "changed": 0, "ended": False}
    with underway(held):
        while not progress["ended"]:
            progress = chunk(held, lambda session, at=progress: _step(held, session, at))  # type: ignore[misc]
        finish(held)
    kind = held.fence.id.kind
    return Rewritten(kind, progress["visited"], progress["changed"], held.edited, held.resumed)


def _step(held: Held, session: ClientSession, at: Progress) -> Progress:
    """Visit the next documents. The update is the server's, of the document as it then is: no save is lost to it."""
    mongo, catalogue = held.host.mongo, held.catalogue
    sources = mongo.collection(catalogue.source_collection)
    wanted: dict[str, Any] = {"ProjectId": held.project}
    if "after" in at:
        wanted["_id"] = {"$gt": at["after"]}
    found = sources.find(wanted, {"_id": 1}, session=session).sort("_id", ASCENDING).limit(FENCE_CHUNK_DOCS_MAX)
    ids = [document["_id"] for document in found]
    if not ids:
        return {**at, "ended": True}
    context = mongo.collection(catalogue.context_collection).find_one({"_id": held.project}, session=session)
    if context is None:
        raise Refusal(OperateReason.ProjectNotFound, f"project {held.project}")
    fields = _rewriting(held).fields(context, held.fence.intent)
    changed = sources.update_many({"_id": {"$in": ids}}, _stages(fields, mongo.clock.mongo_now()), session=session)
    return {
        "after": ids[-1],
        "visited": at["visited"] + len(ids),
        "changed": at["changed"] + changed.modified_count,
        "ended": len(ids) < FENCE_CHUNK_DOCS_MAX,
    }


def _rewriting(held: Held) -> Any:
    kind = held.fence.id.kind
    try:
        return held.catalogue.rewrites[kind]
    except KeyError as error:
        raise Fault(f"this domain has no rewrite for {kind}") from error


def _stages(fields: Mapping[str, Any], now: Any) -> list[dict[str, Any]]:
    """Set the fields to what their expressions say; a document that already is so is left alone, version and all."""
    differs = {"$or": [{"$ne": [f"${name}", f"${_REWRITTEN}.{name}"]} for name in fields]}
    version = {"$ifNull": ["$Audit.Version", 0]}
    return [
        {"$set": {_REWRITTEN: dict(fields)}},
        {
            "$set": {
                "Audit.Version": {"$cond": [differs, {"$add": [version, 1]}, "$Audit.Version"]},
                "Audit.LastModified": {"$cond": [differs, now, "$Audit.LastModified"]},
            }
        },
        {"$set": {name: f"${_REWRITTEN}.{name}" for name in fields}},
        {"$unset": _REWRITTEN},
    ]
