"""What the engine asks of a domain: its source documents, its context and its families.

A domain registers one ``Catalogue``. A second domain needs another one and no change to the engine.

Two calculations of a family must agree on every history: ``calculate`` counts the source on the server,
``derive`` says in Python what one document's change adds to those counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.statistics.counters import Counters
from statlib.statistics.reasons import OperateReason

Document = Mapping[str, Any]
ContextT = TypeVar("ContextT")
EvidenceT = TypeVar("EvidenceT")
EvidenceT_co = TypeVar("EvidenceT_co", covariant=True)
ContextT_contra = TypeVar("ContextT_contra", contravariant=True)
EvidenceT_contra = TypeVar("EvidenceT_contra", contravariant=True)


class SnapshotReads(Protocol):
    """Reads of one pinned moment."""

    def aggregate(self, collection: str, pipeline: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class Effect:
    """What one change does to a family: counters to add per scope, scopes to stale, or the whole family."""

    moves: Mapping[str, Counters] = field(default_factory=dict)
    stale_scopes: frozenset[str] = frozenset()
    stale_family: bool = False

    @property
    def touches(self) -> bool:
        return bool(self.moves) or bool(self.stale_scopes) or self.stale_family


class Family(Protocol[ContextT_contra, EvidenceT_contra]):
    """One family of counters."""

    @property
    def name(self) -> str: ...

    def declared_scopes(self, context: ContextT_contra) -> tuple[str, ...]:
        """The scopes that readers may ask for and that a backfill publishes."""
        ...

    def calculate(self, reads: SnapshotReads, project: UUID, context: ContextT_contra) -> Mapping[str, Counters]:
        """All declared scopes, counted on the server by one aggregation. Scopes with nothing to count may be absent."""
        ...

    def derive(self, before: EvidenceT_contra, after: EvidenceT_contra, context: ContextT_contra) -> Effect:
        """What the change from ``before`` to ``after`` does. Pure; equal evidence has no effect."""
        ...


@dataclass(frozen=True, slots=True)
class Catalogue(Generic[ContextT, EvidenceT]):
    """A domain as the engine sees it.

    ``source_collection`` holds one document per aggregate with ``ProjectId`` and ``Audit.Version``;
    ``context_collection`` one document per project (its ``_id``), from which every calculation takes its parameters.
    Raising ``version`` makes rows of another version unservable until a backfill republishes them.
    """

    source_collection: str
    context_collection: str
    version: int
    families: Mapping[str, Family[ContextT, EvidenceT]]
    domain: Domain[ContextT, EvidenceT]

    def family(self, name: str) -> Family[ContextT, EvidenceT]:
        """Refuses FamilyUnknown, naming those there are."""
        try:
            return self.families[name]
        except KeyError as error:
            known = ", ".join(sorted(self.families))
            raise Refusal(OperateReason.FamilyUnknown, f"no family {name!r}; there are: {known}") from error


class Domain(Protocol[ContextT, EvidenceT_co]):
    """How source documents become what families calculate with."""

    def context(self, project: Document) -> ContextT:
        """The parameters of every calculation in one project."""
        ...

    def configuration_digest(self, context: ContextT) -> str:
        """Of everything in the context that changes a counter; rows carry the one they were calculated under."""
        ...

    def evidence(self, source: Document) -> EvidenceT_co:
        """The statistics-relevant part of a source document; two equal ones mean that nothing counted changed."""
        ...


AnyCatalogue = Catalogue[Any, Any]
