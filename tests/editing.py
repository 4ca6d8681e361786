"""Edits and operations of the library, the tests' second domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pymongo.client_session import ClientSession

from statlib.passes.audit import Action
from statlib.statistics.catalogue import Document
from statlib.statistics.documents import FenceKind
from statlib.statistics.edits import Edited, edit
from statlib.statistics.fences import Asked, Held, Progress, admit, chunk
from statlib.statistics.rewrites import Rewritten, rewrite
from tests.domain import BOOKS, FAMILIES, LIBRARY, Library

STAGED = FenceKind.BULK_STUDY_UPDATE
HIDING = FenceKind.INCLUSION_RECALCULATION


@dataclass(frozen=True)
class Set:
    """Set fields of the library's document."""

    fields: Mapping[str, Any]

    def apply(self, context: Document) -> Mapping[str, Any]:
        return self.fields


class Label:
    """Writes on every book how many its visitors may take; the count of lent books does not depend on it."""

    def fields(self, context: Document, intent: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"Label": {"$concat": ["entitled to ", {"$toString": {"$literal": context["Entitled"]}}]}}


LABELLING = replace(LIBRARY, rewrites={HIDING: Label()})


def edit_library(of: Library, action: Action | None = None, **fields: Any) -> Edited:
    return edit(of.host, LIBRARY, of.project, Set(fields), action=action)


def label(of: Library, entitled: int) -> Rewritten:
    """Change the entitlement, and every book's label with it."""
    return rewrite(
        of.host, LABELLING, of.project, HIDING, intent={"entitled": entitled}, change=Set({"Entitled": entitled})
    )


def begin(of: Library, intent: str = "one", families: tuple[str, ...] = FAMILIES) -> Held:
    return admit(of.host, LIBRARY, of.project, Asked(STAGED, frozenset(families), {"what": intent}))


def lend_all(held: Held, of: Library, first: int, last: int, visitor: str | None = "ann") -> Progress:
    """Lend some of the books in one step of a staged operation."""

    def body(session: ClientSession) -> Progress:
        of.mongo.collection(BOOKS).update_many(
            {"_id": {"$in": list(of.books[first:last])}},
            {"$set": {"LentTo": visitor}, "$inc": {"Audit.Version": 1}},
            session=session,
        )
        return {"lent": last}

    return chunk(held, body)


def assert_right(of: Library, *, served: bool | None = None) -> None:
    """Every counter that a reader is given is the naive count."""
    bundle = of.read()
    assert bundle.values == {family: of.truth(family) for family in FAMILIES}
    if served is not None:
        assert (bundle.reason is None) == served, bundle.reason
