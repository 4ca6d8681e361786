"""Importing a search with its studies, and removing one with them: staged operations.

A search appears in its project with the transaction that ends its import, and disappears with the one that ends its
removal. In between its studies come or go a bounded number at a time; whoever counts meanwhile counts what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any
from uuid import UUID

from pymongo import ASCENDING
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError

from statlib.kernel.refusals import Refusal
from statlib.mongo.leases import release
from statlib.mongo.reasons import MongoReason
from statlib.passes.audit import server_time
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, STUDIES, Project, Search, Study
from statlib.review.edit_reasons import EditReason
from statlib.statistics.bounds import FENCE_CHUNK_DOCS_MAX
from statlib.statistics.catalogue import Document
from statlib.statistics.documents import FENCE, FenceId, FenceKind
from statlib.statistics.fences import Asked, Held, Progress, admit, chunk, finish, last_of, underway
from statlib.statistics.hosts import Host
from statlib.statistics.reasons import OperateReason

_EVERY_FAMILY = frozenset(REVIEW.families)


@dataclass(frozen=True, slots=True)
class Imported:
    """``inserted`` studies are new, ``present`` were of this search already; ``elsewhere`` ids belong to other studies,
    which stay as they are. ``complete``: the search is in its project now, or was.
    """

    search: UUID
    inserted: int
    present: int
    elsewhere: tuple[UUID, ...]
    complete: bool
    resumed: bool
    abandoned: Mapping[str, Any] | None

    def as_wire(self) -> dict[str, Any]:
        return {
            "search": str(self.search),
            "inserted": self.inserted,
            "present": self.present,
            "elsewhere": [str(study) for study in self.elsewhere],
            "complete": self.complete,
            "resumed": self.resumed,
            "abandoned": dict(self.abandoned) if self.abandoned is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Removed:
    search: UUID
    studies: int
    resumed: bool
    abandoned: Mapping[str, Any] | None

    def as_wire(self) -> dict[str, Any]:
        return {
            "search": str(self.search),
            "studies": self.studies,
            "resumed": self.resumed,
            "abandoned": dict(self.abandoned) if self.abandoned is not None else None,
        }


@dataclass(frozen=True, slots=True)
class _Add:
    """The search, once its studies are there."""

    search: Search

    def apply(self, context: Document) -> Mapping[str, Any]:
        known = Project.from_bson(context).searches
        if any(one.id == self.search.id for one in known):
            return {}
        return {"Searches": [one.to_bson() for one in (*known, self.search)]}


@dataclass(frozen=True, slots=True)
class _Drop:
    """The search, once its studies are gone."""

    search: UUID

    def apply(self, context: Document) -> Mapping[str, Any]:
        return {"Searches": [s.to_bson() for s in Project.from_bson(context).searches if s.id != self.search]}


def import_search(
    host: Host, project: UUID, search: Search, studies: Iterable[Study], *, complete: bool = True
) -> Imported:
    """Insert the studies, under the search's id whatever they carry, and then the search itself.

    Studies that are stored already stay as they are, so an interrupted import is completed by repeating it. With
    ``complete=False`` more pieces are to follow: the operation stays in force until one completes it.

    Refuses AlreadyThere, SearchBusy, ProjectNotFound, GateSkew, FenceHeld, LeaseLost. Every family is left Stale.
    A crash leaves whole transactions of studies, without their search, and the fence.
    """
    intent = {"search": str(search.id), "name": search.name, "source": search.source}
    require = partial(_require_new, host, project, search)
    asked = Asked(FenceKind.SEARCH_IMPORT, _EVERY_FAMILY, intent, require=require)
    held = admit(host, REVIEW, project, asked)
    inserted, present, elsewhere = 0, 0, list[UUID]()
    with _until_complete(held, complete=complete):
        for batch in _batches(studies):
            done = chunk(held, partial(_insert, held, search.id, batch))
            inserted, present = inserted + done["inserted"], present + done["present"]
            elsewhere += map(UUID, done["elsewhere"])
        if complete:
            finish(held, _Add(search.model_copy(update={"imported_at_utc": server_time(host.mongo)})))
    return Imported(
        search=search.id,
        inserted=inserted,
        present=present,
        elsewhere=tuple(elsewhere),
        complete=complete,
        resumed=held.resumed,
        abandoned=held.abandoned,
    )


def remove_search(host: Host, project: UUID, search: UUID) -> Removed:
    """Delete every study of the search, and then the search itself. What reviewers did on them is deleted with them.

    A search whose import was given up is removed the same way. Refuses SearchUnknown, SearchBusy, ProjectNotFound,
    GateSkew, FenceHeld, LeaseLost. Every family is left Stale. A crash leaves the search with the rest of its studies,
    and the fence; repeating the removal completes it.
    """
    intent = {"search": str(search)}
    require = partial(_require_known, host, project, search)
    try:
        held = admit(host, REVIEW, project, Asked(FenceKind.SEARCH_REMOVAL, _EVERY_FAMILY, intent, require=require))
    except Refusal as refusal:
        if refusal.reason is EditReason.SearchUnknown and (ended := _ended(host, project, search)) is not None:
            return ended
        raise
    progress: Progress = held.fence.progress or {"removed": 0, "ended": False}
    with underway(held):
        while not progress["ended"]:
            progress = chunk(held, partial(_delete, held, search, progress))
        finish(held, _Drop(search))
    return Removed(search, progress["removed"], held.resumed, held.abandoned)


def _ended(host: Host, project: UUID, search: UUID) -> Removed | None:
    """The removal that this repeats, if the project's last one was of this search and came to its end."""
    last = last_of(host.mongo, project, FenceKind.SEARCH_REMOVAL)
    if last is None or last.active or last.intent != {"search": str(search)} or not last.progress.get("ended"):
        return None
    return Removed(search, last.progress["removed"], resumed=True, abandoned=None)


@contextmanager
def _until_complete(held: Held, *, complete: bool) -> Iterator[None]:
    with underway(held):
        yield
    if not complete:
        release(held.host.mongo, held.lease)


def _batches(studies: Iterable[Study]) -> Iterator[list[Study]]:
    left = iter(studies)
    while batch := list(islice(left, FENCE_CHUNK_DOCS_MAX)):
        yield batch


def _insert(held: Held, search: UUID, batch: Sequence[Study], session: ClientSession) -> Progress:
    sources = held.host.mongo.collection(STUDIES)
    wanted = {study.id: study for study in batch}
    found = list(sources.find({"_id": {"$in": list(wanted)}}, {"ProjectId": 1, "SearchId": 1}, session=session))
    ours = [one["_id"] for one in found if (one["ProjectId"], one.get("SearchId")) == (held.project, search)]
    elsewhere = [one["_id"] for one in found if one["_id"] not in set(ours)]
    new = [
        study.model_copy(update={"project_id": held.project, "search_id": search}).to_bson()
        for study in wanted.values()
        if study.id not in {*ours, *elsewhere}
    ]
    if new:
        try:
            sources.insert_many(new, session=session)
        except BulkWriteError as error:  # another import inserted one of them in the same moment
            raise Refusal(MongoReason.Contended, f"search {search}") from error
    return {"inserted": len(new), "present": len(ours), "elsewhere": [str(study) for study in elsewhere]}


def _delete(held: Held, search: UUID, at: Progress, session: ClientSession) -> Progress:
    sources = held.host.mongo.collection(STUDIES)
    wanted: dict[str, Any] = {"ProjectId": held.project, "SearchId": search}
    if "after" in at:
        wanted["_id"] = {"$gt": at["after"]}
    found = sources.find(wanted, {"_id": 1}, session=session).sort("_id", ASCENDING).limit(FENCE_CHUNK_DOCS_MAX)
    ids = [document["_id"] for document in found]
    if not ids:
        return {**at, "ended": True}
    removed = sources.delete_many({"_id": {"$in": ids}}, session=session).deleted_count
    return {"after": ids[-1], "removed": at["removed"] + removed, "ended": len(ids) < FENCE_CHUNK_DOCS_MAX}


def _require_new(host: Host, project: UUID, search: Search, session: ClientSession) -> None:
    known = next((one for one in _project(host, project, session).searches if one.id == search.id), None)
    if known is not None and (known.name, known.source) != (search.name, search.source):
        raise Refusal(EditReason.AlreadyThere, f"search {search.id} is {known.name!r}")
    _require_idle(host, project, search.id, FenceKind.SEARCH_REMOVAL, session)


def _require_known(host: Host, project: UUID, search: UUID, session: ClientSession) -> None:
    """In its project, or with studies that an import which was given up has left."""
    if all(one.id != search for one in _project(host, project, session).searches):
        left = {"ProjectId": project, "SearchId": search}
        if host.mongo.collection(STUDIES).find_one(left, {"_id": 1}, session=session) is None:
            raise Refusal(EditReason.SearchUnknown, str(search))
    _require_idle(host, project, search, FenceKind.SEARCH_IMPORT, session)


def _require_idle(host: Host, project: UUID, search: UUID, other: FenceKind, session: ClientSession) -> None:
    """That the other operation is not about this search: interrupted or not, it has to end first."""
    identity = FenceId(project_id=project, kind=other).to_bson()
    busy = {"_id": identity, "Active": True, "Intent.search": str(search)}
    if host.mongo.collection(FENCE).find_one(busy, session=session) is not None:
        raise Refusal(EditReason.SearchBusy, f"search {search}: {other}")


def _project(host: Host, project: UUID, session: ClientSession) -> Project:
    found = host.mongo.collection(PROJECTS).find_one({"_id": project}, session=session)
    if found is None:
        raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
    return Project.from_bson(found)
