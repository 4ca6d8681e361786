"""The library whose lendings wait in their books: pending entries of a domain with two context groups and one family
that does not fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from statlib.statistics.catalogue import Catalogue, Encoded
from statlib.statistics.pending import FOLD_PROTOCOL, Entry, Intent, Transition
from tests.domain import LIBRARY, LOANS, SHELVES, VISITS, BookEvidence, BookFamily, LibraryContext

STOCK = "Stock"
FOLDING = (SHELVES, LOANS, VISITS)
NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
TRACKING_EPOCH = 3
CONTEXT = LibraryContext(shelves=(0, 1), visitors=("ann", "bob"), entitled=10)


class BookTransitions:
    """A lending moves all folding families; a visit that is noted by hand moves visits alone."""

    kinds: Mapping[str, frozenset[str]] = {"Lending": frozenset(FOLDING), "Visit": frozenset({VISITS})}
    groups: Mapping[str, str] = {SHELVES: "Building", LOANS: "People", VISITS: "People"}

    def context_digests(self, context: LibraryContext) -> Mapping[str, str]:
        return {"Building": repr(context.shelves), "People": repr((context.visitors, context.entitled))}

    def encode(
        self, before: BookEvidence, after: BookEvidence, context: LibraryContext, families: frozenset[str]
    ) -> Encoded:
        return Encoded((lending(before, after),)) if families else Encoded()

    def images(self, transition: Transition) -> tuple[BookEvidence, BookEvidence]:
        return _book(transition.payload["Before"]), _book(transition.payload["After"])


FOLDING_LIBRARY: Catalogue[LibraryContext, BookEvidence] = replace(
    LIBRARY, families={**LIBRARY.families, STOCK: BookFamily(STOCK)}, transitions=BookTransitions()
)


def lending(before: BookEvidence, after: BookEvidence, kind: str = "Lending") -> Transition:
    images = {"Before": before, "After": after}
    payload = {name: {"Shelf": book.shelf, "LentTo": book.lent_to} for name, book in images.items()}
    return Transition(kind=kind, payload=payload)


def lent(visitor: str | None = "ann", *, was: str | None = None, shelf: int = 0) -> Transition:
    """A book of ``shelf`` goes to ``visitor``; None: it comes back."""
    return lending(BookEvidence(shelf, was), BookEvidence(shelf, visitor))


def entry(*transitions: Transition, stales: tuple[Intent, ...] = (), number: int = 1, **changed: Any) -> Entry:
    given: dict[str, Any] = {
        "protocol_version": FOLD_PROTOCOL,
        "operation_namespace": "test.lending",
        "operation_id": f"lending:{UUID(int=number)}",
        "expected_source_revision": 0,
        "source_revision_before": 0,
        "source_revision_after": 1,
        "submission_digest": "digest",
        "created_at_utc": NOW,
        "context": dict(BookTransitions().context_digests(CONTEXT)),
        "catalogue_version": LIBRARY.version,
        "assumed_tracking_epoch": TRACKING_EPOCH,
        "transitions": list(transitions),
        "invalidations": list(stales),
    }
    return Entry(**given | changed)


def _book(stored: Mapping[str, Any]) -> BookEvidence:
    return BookEvidence(stored["Shelf"], stored["LentTo"])
