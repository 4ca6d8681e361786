"""A second, tiny domain: a library whose books stand on shelves and are lent to visitors.

The engine must need nothing of the review domain, so everything that wants many scopes or several families is tested
with this one. Its truth is counted naively, in Python.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo
from statlib.statistics import hosts, modes, storage
from statlib.statistics.attempts import save
from statlib.statistics.backfill import Backfilled, backfill
from statlib.statistics.catalogue import AnyCatalogue, Catalogue, Document, Effect, Pipeline
from statlib.statistics.counters import Counters, minus
from statlib.statistics.documents import (
    CONTROL,
    DELTA,
    GLOBAL_CONTROL,
    GLOBAL_ID,
    GUARD,
    LEASE,
    ROW,
    Mode,
    TrackingMode,
)
from statlib.statistics.envelopes import Envelope
from statlib.statistics.outcomes import Saved, SourceWrite
from statlib.statistics.reader import ALL, Bundle, Request, read_bundle
from statlib.statistics.reasons import SaveReason
from statlib.statistics.rebuild import Rebuilt, rebuild
from statlib.statistics.sources import load
from tests.reviews import action, host_of, settings_for

BOOKS = "tdBook"
LIBRARIES = "tdLibrary"

SHELVES = "Shelves"
LOANS = "Loans"
VISITS = "Visits"
FAMILIES = (SHELVES, LOANS, VISITS)
ENTITLED = 10  # books; a project's setting, and so part of the configuration digest


@dataclass(frozen=True, slots=True)
class LibraryContext:
    shelves: tuple[int, ...]
    visitors: tuple[str, ...]
    entitled: int


@dataclass(frozen=True, slots=True)
class BookEvidence:
    shelf: int
    lent_to: str | None


class LibraryDomain:
    def context(self, project: Document, tracking: TrackingMode) -> LibraryContext:
        return LibraryContext(tuple(project["Shelves"]), tuple(project["Visitors"]), project["Entitled"])

    def evidence(self, source: Document) -> BookEvidence:
        return BookEvidence(source["Shelf"], source["LentTo"])


@dataclass(frozen=True, slots=True)
class BookFamily:
    """Counts books per scope. A scope's counters: ``Books`` and ``Lent``, or ``Lent`` alone for loans and visits."""

    name: str

    def declared_scopes(self, context: LibraryContext) -> tuple[str, ...]:
        if self.name == SHELVES:
            return tuple(f"shelf/{shelf}" for shelf in context.shelves)
        if self.name == VISITS:
            return tuple(f"visitor/{visitor}" for visitor in context.visitors)
        return ("project",)

    def parameters(self, context: LibraryContext, scope: str) -> Any:
        return context.entitled

    def aggregation(self, project: UUID, context: LibraryContext) -> Pipeline:
        return [
            {"$match": {"ProjectId": project}},
            {"$group": {"_id": {"shelf": "$Shelf", "lentTo": "$LentTo"}, "Books": {"$sum": 1}}},
        ]

    def collect(self, groups: Iterable[Document], context: LibraryContext) -> Mapping[str, Counters]:
        grouped: dict[str, dict[str, int]] = {}
        for group in groups:
            evidence = BookEvidence(group["_id"]["shelf"], group["_id"]["lentTo"])
            for scope, counters in self.counters(evidence).items():
                into = grouped.setdefault(scope, {})
                for key, value in counters.items():
                    into[key] = into.get(key, 0) + value * group["Books"]
        return grouped

    def derive(self, before: BookEvidence, after: BookEvidence, context: LibraryContext) -> Effect:
        old, new = self.counters(before), self.counters(after)
        scopes = {*old, *new} & set(self.declared_scopes(context))
        moves = {scope: minus(new.get(scope, {}), old.get(scope, {})) for scope in scopes}
        return Effect(moves={scope: change for scope, change in moves.items() if change})

    def counters(self, book: BookEvidence) -> dict[str, dict[str, int]]:
        lent = int(book.lent_to is not None)
        if self.name == SHELVES:
            return {f"shelf/{book.shelf}": {"Books": 1, "Lent": lent}}
        if self.name == VISITS:
            return {f"visitor/{book.lent_to}": {"Lent": 1}} if lent else {}
        return {"project": {"Lent": lent}}


@dataclass(frozen=True, slots=True)
class BookPass:
    """All families of books count the same groups, so that one walk feeds them."""

    families: frozenset[str] = frozenset(FAMILIES)

    def aggregation(self, project: UUID, context: LibraryContext, families: frozenset[str]) -> Pipeline:
        return BookFamily(SHELVES).aggregation(project, context)

    def collect(
        self, groups: Iterable[Document], context: LibraryContext, families: frozenset[str]
    ) -> Mapping[str, Mapping[str, Counters]]:
        found = list(groups)
        return {family: BookFamily(family).collect(found, context) for family in families}


def library_catalogue(version: int = 1) -> Catalogue[LibraryContext, BookEvidence]:
    return Catalogue(
        source_collection=BOOKS,
        context_collection=LIBRARIES,
        version=version,
        families={name: BookFamily(name) for name in FAMILIES},
        domain=LibraryDomain(),
    )


LIBRARY = library_catalogue()
LIBRARY_IN_ONE_WALK = replace(LIBRARY, passes=(BookPass(),))


@dataclass(frozen=True, slots=True)
class Lending:
    """Lend a book to a visitor, or take it back (None)."""

    visitor: str | None

    @property
    def intent(self) -> Any:
        return self.visitor

    def apply(self, source: Document, context: Document, envelope: Envelope) -> SourceWrite:
        return SourceWrite(fields={"LentTo": self.visitor})


@dataclass(frozen=True)
class Library:
    """A project of this domain, as one process sees it."""

    mongo: Mongo
    host: hosts.Host
    project: UUID
    books: tuple[UUID, ...]
    actor: UUID = field(default_factory=uuid4)

    def lend(self, book: UUID, visitor: str | None = "ann") -> Saved:
        loaded = load(self.mongo, LIBRARY, self.project, book)
        envelope = Envelope(
            namespace="test.lending",
            stream=f"lending:{book}:{self.actor}",
            project=self.project,
            aggregate=book,
            actor=self.actor,
            stage=None,
            expected=loaded.version,
            opening=loaded.opening,
            created_at=loaded.now,
            loaded=loaded,
        )
        return save(self.host, LIBRARY, envelope, Lending(visitor))

    def lend_surely(self, book: UUID, visitor: str | None = "ann") -> Saved:
        """Lend, again where rivals exhausted an attempt or changed the book: each of those wrote nothing."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                return self.lend(book, visitor)
            except Refusal as refusal:
                if refusal.reason not in {SaveReason.AttemptsExhausted, SaveReason.VersionStale}:
                    raise
        raise AssertionError(f"{book} could not be saved")

    def read(self, *requests: Request, catalogue: AnyCatalogue | None = None) -> Bundle:
        return read_bundle(
            self.host, catalogue or LIBRARY, self.project, requests or [(name, ALL) for name in FAMILIES]
        )

    def rebuild(self, family: str = SHELVES, **options: Any) -> Rebuilt:
        return rebuild(self.host, LIBRARY, self.project, family, **options)

    def backfill(self, family: str = SHELVES, *, force: bool = False) -> Backfilled:
        return backfill(self.host, LIBRARY, self.project, family, force=force)

    def backfill_all(self) -> None:
        for family in FAMILIES:
            self.backfill(family)

    def gate(self, *, enabled: bool) -> None:
        modes.set_narrow_gate(self.mongo, LIBRARY, self.project, enabled=enabled, action=action())

    def fleet(self, mode: Mode) -> None:
        modes.set_fleet_mode(self.mongo, LIBRARY, mode, action())

    def pass_grace(self) -> None:
        self.mongo.clock.advance(self.mongo.settings.statistics.opening_grace_s)

    def context(self) -> LibraryContext:
        return LibraryDomain().context(self._one(LIBRARIES, {"_id": self.project}), TrackingMode.TRACKED)

    def truth(self, family: str) -> dict[str, dict[str, int]]:
        """Naive counters of every declared scope, zeros left out."""
        context, of = self.context(), BookFamily(family)
        counted: dict[str, dict[str, int]] = {scope: {} for scope in of.declared_scopes(context)}
        for book in self.mongo.collection(BOOKS).find({"ProjectId": self.project}):
            for scope, counters in of.counters(LIBRARY.domain.evidence(book)).items():
                if scope in counted:
                    for key, value in counters.items():
                        counted[scope][key] = counted[scope].get(key, 0) + value
        return {scope: {key: value for key, value in of_.items() if value} for scope, of_ in counted.items()}

    def control(self) -> dict[str, Any]:
        return self._one(CONTROL, {"_id": self.project})

    def global_control(self) -> dict[str, Any]:
        return self._one(GLOBAL_CONTROL, {})

    def guard(self, family: str = SHELVES) -> dict[str, Any]:
        return self._one(GUARD, {"_id.ProjectId": self.project, "_id.Family": family})

    def rows(self, family: str = SHELVES) -> dict[str, dict[str, Any]]:
        found = self.mongo.collection(ROW).find({"ProjectId": self.project, "Family": family, "IsPublished": True})
        return {row["Scope"]: row for row in found}

    def all_rows(self) -> list[dict[str, Any]]:
        return list(self.mongo.collection(ROW).find({"ProjectId": self.project}))

    def deltas(self) -> list[dict[str, Any]]:
        return list(self.mongo.collection(DELTA).find({"ProjectId": self.project}))

    def set_control(self, **fields: Any) -> None:
        self.mongo.collection(CONTROL).update_one({"_id": self.project}, {"$set": fields})

    def set_fleet(self, **fields: Any) -> None:
        self.mongo.collection(GLOBAL_CONTROL).update_one({"_id": GLOBAL_ID}, {"$set": fields})

    def set_guard(self, family: str = SHELVES, **fields: Any) -> None:
        self.mongo.collection(GUARD).update_one({"_id.ProjectId": self.project, "_id.Family": family}, {"$set": fields})

    def set_row(self, scope: str, of: str = SHELVES, **fields: Any) -> None:
        self.mongo.collection(ROW).update_one(
            {"ProjectId": self.project, "Family": of, "Scope": scope, "IsPublished": True}, {"$set": fields}
        )

    def set_context(self, **fields: Any) -> None:
        self.mongo.collection(LIBRARIES).update_one({"_id": self.project}, {"$set": fields})

    def statistics(self, *, without: tuple[str, ...] = (LEASE, "pmProjectStatisticsFleetMember")) -> dict[str, Any]:
        """Everything stored, for comparing before with after."""
        return {
            name: sorted(self.mongo.collection(name).find(), key=lambda document: str(document["_id"]))
            for name in (*storage.COLLECTIONS, BOOKS, LIBRARIES)
            if name not in without
        }

    def _one(self, collection: str, wanted: dict[str, Any]) -> dict[str, Any]:
        found = self.mongo.collection(collection).find_one(wanted)
        assert found is not None
        return found


def insert_library(
    mongo: Mongo, project: UUID, *, shelves: int, books: int, visitors: tuple[str, ...], create: bool
) -> tuple[UUID, ...]:
    """The project document, its control if it is to be born under statistics, and then its books, in turn per shelf."""
    document = {"_id": project, "Shelves": list(range(shelves)), "Visitors": list(visitors), "Entitled": ENTITLED}
    mongo.collection(LIBRARIES).insert_one(document)
    if create:
        modes.create_under_statistics(mongo, LIBRARY, project)
    ids = tuple(uuid4() for _ in range(books))
    if ids:
        mongo.collection(BOOKS).insert_many(
            [
                {
                    "_id": id_,
                    "ProjectId": project,
                    "Shelf": n % max(shelves, 1),
                    "LentTo": None,
                    "Audit": {"Version": 0},
                }
                for n, id_ in enumerate(ids)
            ]
        )
    return ids


def library_settings(base: Settings, *projects: UUID, **chosen: Any) -> Settings:
    return settings_for(base, *projects, **{"families": FAMILIES, **chosen})


@contextmanager
def library(
    base: Settings,
    *,
    shelves: int = 3,
    books: int = 6,
    visitors: tuple[str, ...] = ("ann", "bob"),
    under_statistics: bool = True,
) -> Iterator[Library]:
    """A fresh library on a host that includes it, in a fleet that was opened long ago. Nothing is backfilled yet."""
    project = uuid4()
    with host_of(library_settings(base, project)) as host:
        mongo = host.mongo
        storage.initialise(mongo, LIBRARY)
        modes.set_fleet_mode(mongo, LIBRARY, Mode.ENABLED, action())
        mongo.clock.advance(mongo.settings.statistics.opening_grace_s)
        ids = insert_library(mongo, project, shelves=shelves, books=books, visitors=visitors, create=under_statistics)
        yield Library(mongo, host, project, ids)


@contextmanager
def served_library(base: Settings, **options: Any) -> Iterator[Library]:
    """A library whose every family is Fresh."""
    with library(base, **options) as opened:
        opened.backfill_all()
        yield opened
