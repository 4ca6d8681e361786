"""A unit of work: one transaction on one project, and the records that any such transaction may leave.

Who advances the projection revision writes a ledger entry for it: the ledger has no holes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pymongo import UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError

from statlib.mongo.connection import Mongo
from statlib.statistics import queries
from statlib.statistics.documents import CONTROL, DELTA, GUARD, OUTBOX, ROW, Delta, ProjectControl
from statlib.statistics.state import ProjectState

_DUPLICATE_KEY = 11000


class Overtaken(Exception):
    """Raised inside a transaction when a rival changed what it was decided by; the transaction is undone."""


@dataclass(frozen=True, slots=True)
class Unit:
    """``state`` was read in ``session``, so a rival that changed it since makes one of the two start over."""

    mongo: Mongo
    session: ClientSession
    state: ProjectState

    @property
    def control(self) -> ProjectControl:
        return self.state.control

    def advance(self, *, source: bool, records: int, client: bool) -> int:
        """Move the clocks by one each, by compare-and-set. Returns the projection revision that now holds.

        ``records``: ledger entries that the caller writes at the new projection revision; without any it stays.
        """
        projection = records > 0
        moved = {
            "SourceInvalidationRevision": int(source),
            "CommittedProjectionRevision": int(projection),
            "LedgerRows": records,
            "ClientInvalidationRevision": int(client),
            "Audit.Version": 1,
        }
        clocks = self.mongo.collection(CONTROL).update_one(
            {"_id": self.control.id, "Audit.Version": self.control.audit.version}, {"$inc": moved}, session=self.session
        )
        if clocks.matched_count != 1:
            raise Overtaken
        return self.control.committed_projection_revision + int(projection)

    def update_guards(self, updates: Mapping[str, Mapping[str, Any]]) -> None:
        """Per family an update of its guard, by compare-and-set of the version that was read."""
        writes = [
            UpdateOne({"_id": queries.guard_id(self.control.id, f), "Version": self.state.guards[f].version}, update)
            for f, update in updates.items()
        ]
        self._all(GUARD, writes)

    def update_rows(self, updates: list[UpdateOne]) -> None:
        self._all(ROW, updates)

    def _all(self, collection: str, writes: list[UpdateOne]) -> None:
        if not writes:
            return
        with _a_rivals_insert_overtakes():
            written = self.mongo.collection(collection).bulk_write(writes, session=self.session)
        if written.matched_count != len(writes):
            raise Overtaken

    def insert(self, collection: str, documents: list[dict[str, Any]]) -> None:
        if documents:
            with _a_rivals_insert_overtakes():
                self.mongo.collection(collection).insert_many(documents, session=self.session)

    def record(self, deltas: Iterable[Delta]) -> None:
        self.insert(DELTA, [delta.to_bson() for delta in deltas])

    def notify(self, families: Iterable[str]) -> None:
        """Coalesce the families' client-invalidation slots at the revision that ``advance`` moves to."""
        revision = self.control.client_invalidation_revision + 1
        slots = [
            UpdateOne(
                {"_id": queries.guard_id(self.control.id, family)},
                {"$max": {"ClientInvalidationRevision": revision}, "$set": {"QueuedAtUtc": self.state.now}},
                upsert=True,
            )
            for family in families
        ]
        if slots:
            with _a_rivals_insert_overtakes():
                self.mongo.collection(OUTBOX).bulk_write(slots, session=self.session)


@contextmanager
def _a_rivals_insert_overtakes() -> Iterator[None]:
    """A duplicate key ends the transaction: somebody committed the same receipt, ledger entry or slot first."""
    try:
        yield
    except BulkWriteError as error:
        if all(failure["code"] == _DUPLICATE_KEY for failure in error.details["writeErrors"]):
            raise Overtaken from error
        raise
