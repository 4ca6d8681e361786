"""Puts a loaded review into the database, and orders its events for a replay.

Invariant: nothing that is already stored is overwritten. A load that was interrupted is completed by repeating it,
also while saves run on the studies that it stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

from pymongo import ReturnDocument, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError

from statlib.kernel.refusals import Fault, Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import transact
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, STUDIES, Project, Study
from statlib.review.loading.review import LoadedReview, LoadReason
from statlib.statistics.population import outdate_counts

BATCH_STUDIES_MAX = 1_000
_DUPLICATE_KEY = 11000


@dataclass(frozen=True, slots=True)
class StoredReview:
    """What a load found and added. ``studies_present`` were there before and stay as they are."""

    project_id: UUID
    project_inserted: bool
    studies_inserted: int
    studies_present: int

    @property
    def studies(self) -> int:
        return self.studies_inserted + self.studies_present


def store(review: LoadedReview, mongo: Mongo, *, before_studies: Callable[[Project], None]) -> StoredReview:
    """Insert the project, call ``before_studies`` with it as stored, insert the studies; all majority-committed.

    The callback writes what must exist before the first study does. It must be repeatable: it is called by every load,
    also of a project that is already there. Refuses ProjectConflict, with nothing written, where another provenance
    has the project's id. A crash leaves the project with some of its studies; loading again adds the rest.
    """
    project, inserted = _store_project(review.project, mongo)
    before_studies(project)
    added = sum(
        _store_studies(review.studies[first : first + BATCH_STUDIES_MAX], mongo)
        for first in range(0, len(review.studies), BATCH_STUDIES_MAX)
    )
    return StoredReview(project.id, inserted, added, len(review.studies) - added)


class Ordered(Protocol):
    """An event of a review: a decision, or an act on a session."""

    @property
    def seq(self) -> int: ...
    @property
    def study_id(self) -> UUID: ...


Event = TypeVar("Event", bound=Ordered)


def per_study_order(events: Iterable[Event]) -> dict[UUID, list[Event]]:
    """The events of each study in recorded order; studies in the order of their first event.

    Events of different studies are independent, so a driver may replay the studies at once, each in its own order.
    """
    by_study: dict[UUID, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.seq):
        by_study.setdefault(event.study_id, []).append(event)
    return by_study


def _store_project(project: Project, mongo: Mongo) -> tuple[Project, bool]:
    """(the project as stored, whether this call inserted it)"""
    found = mongo.collection(PROJECTS).find_one_and_update(
        {"_id": project.id}, {"$setOnInsert": _without_id(project)}, upsert=True, return_document=ReturnDocument.BEFORE
    )
    if found is None:
        return project, True
    stored = Project.from_bson(found)
    if stored.provenance != project.provenance:
        raise Refusal(
            LoadReason.ProjectConflict,
            f"project {project.name!r} ({project.id}) is stored with another provenance: {stored.provenance.source}",
        )
    return stored, False


def _store_studies(studies: Sequence[Study], mongo: Mongo) -> int:
    """Insert those that are not there yet, and outdate the project's counts with them; returns how many.

    One transaction: a load that is completed while statistics are served never leaves them short.
    """
    writes = [UpdateOne({"_id": study.id}, {"$setOnInsert": _without_id(study)}, upsert=True) for study in studies]

    def body(session: ClientSession) -> int:
        inserted = mongo.collection(STUDIES).bulk_write(writes, ordered=False, session=session).upserted_count
        if inserted:
            outdate_counts(mongo, REVIEW, session, studies[0].project_id)
        return inserted

    try:
        try:
            return transact(mongo, body)
        except BulkWriteError as error:
            if not _only_lost_races(error):
                raise
        # Another load inserted some of them in the same moment: the second time they are simply found.
        return transact(mongo, body)
    except BulkWriteError as error:
        raise Fault("not all studies could be stored", remedy="Load again: what was stored stays.") from error


def _only_lost_races(error: BulkWriteError) -> bool:
    return all(failure["code"] == _DUPLICATE_KEY for failure in error.details["writeErrors"])


def _without_id(document: Project | Study) -> dict[str, Any]:
    fields = document.to_bson()
    del fields["_id"]
    return fields
