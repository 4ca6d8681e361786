"""Which documents one fold transaction takes: whole pending sets, the oldest first, within both bounds of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pymongo import ASCENDING
from pymongo.client_session import ClientSession

from statlib.kernel.clock import Clock
from statlib.mongo.connection import Mongo
from statlib.statistics.bounds import FOLD_BATCH_DOCS_MAX, FOLD_BATCH_ENTRIES_MAX, FOLD_SWEEP_AGE_S
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.pending import FOLD_SEQUENCE, OLDEST, PENDING, PendingSet, pending_of

INDEX: list[tuple[str, int]] = [("ProjectId", ASCENDING), (OLDEST, ASCENDING)]
PROJECTION = {"Audit": 1, FOLD_SEQUENCE: 1, PENDING: 1}


@dataclass(frozen=True, slots=True)
class Selection:
    """``min_age_s``: a document whose newest entry is younger is left to its savers, until its set has waited for
    ``FOLD_SWEEP_AGE_S``. ``until``: only sets that were begun by then. ``skipped`` are left out altogether."""

    project: UUID
    docs_max: int = FOLD_BATCH_DOCS_MAX
    min_age_s: float = 0.0
    until: datetime | None = None
    skipped: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class Taken:
    """The whole pending set of one source document, at the document's ``version``. ``raw`` as it is stored."""

    aggregate: UUID
    version: int
    pending: PendingSet
    raw: Any = None

    @property
    def malformed(self) -> bool:
        """Whether nothing can be made of what is stored; its set is then a note of unrecorded drops."""
        return bool(self.pending) and self.pending.oldest is None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Taken:
        return cls(document["_id"], int(document["Audit"]["Version"]), pending_of(document), document.get(PENDING))


def read(mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession, selection: Selection) -> list[Taken]:
    """The next batch, in the caller's snapshot. The hint keeps the server from any other index, whose scan would walk
    the whole project."""
    found = (
        mongo.collection(catalogue.source_collection)
        .find(due(selection, mongo.clock), PROJECTION, session=session, hint=INDEX)
        .sort(OLDEST, ASCENDING)
        .limit(selection.docs_max)
    )
    return take(map(Taken.of, found))


def anything(mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession | None, selection: Selection) -> bool:
    """Whether ``selection`` finds anything, in the caller's snapshot if it has one."""
    documents = mongo.collection(catalogue.source_collection)
    return documents.find_one(due(selection, mongo.clock), {"_id": 1}, session=session, hint=INDEX) is not None


def take(sets: Iterable[Taken]) -> list[Taken]:
    """As many whole sets, in their order, as have ``FOLD_BATCH_ENTRIES_MAX`` entries at most. The first is taken in any
    case: a set is not divided."""
    taken: list[Taken] = []
    entries = 0
    for one in sets:
        entries += len(one.pending.entries)
        if taken and entries > FOLD_BATCH_ENTRIES_MAX:
            break
        taken.append(one)
    return taken


def due(selection: Selection, clock: Clock) -> dict[str, Any]:
    """Filter for the source documents that ``selection`` asks for, by the server's time."""
    wanted: dict[str, Any] = {
        "ProjectId": selection.project,
        OLDEST: {"$exists": True} if selection.until is None else {"$exists": True, "$lte": selection.until},
    }
    if selection.skipped:
        wanted["_id"] = {"$nin": sorted(selection.skipped)}
    if selection.min_age_s > 0:
        quiet = {"$lte": [{"$max": f"${PENDING}.Entries.CreatedAtUtc"}, clock.mongo_in(-selection.min_age_s)]}
        waiting = {"$lte": [f"${OLDEST}", clock.mongo_in(-FOLD_SWEEP_AGE_S)]}
        wanted["$expr"] = {"$or": [quiet, waiting]}
    return wanted
