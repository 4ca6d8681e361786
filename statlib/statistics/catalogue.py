"""What the engine asks of a domain: its source documents, its context and its families.

A domain registers one ``Catalogue``. A second domain needs another one and no change to the engine.

Two calculations of a family must agree on every history: ``aggregation`` with ``collect`` counts the source on the
server, ``derive`` says in Python what one document's change adds to those counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from statlib.kernel.digests import digest
from statlib.kernel.refusals import Refusal
from statlib.statistics.counters import Counters
from statlib.statistics.documents import FenceKind, TrackingMode
from statlib.statistics.pending import Intent, Transition
from statlib.statistics.reasons import OperateReason

CONFIGURATION_SCHEMA = "statlib.configuration.v2"

Document = Mapping[str, Any]
Pipeline = list[dict[str, Any]]
NamedT = TypeVar("NamedT")
ContextT = TypeVar("ContextT")
EvidenceT = TypeVar("EvidenceT")
ContextT_co = TypeVar("ContextT_co", covariant=True)
EvidenceT_co = TypeVar("EvidenceT_co", covariant=True)
ContextT_contra = TypeVar("ContextT_contra", contravariant=True)
EvidenceT_contra = TypeVar("EvidenceT_contra", contravariant=True)


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

    def parameters(self, context: ContextT_contra, scope: str) -> Any:
        """JSON values of everything in the context that changes what the scope counts. A row carries their digest, and
        is not served under others; an edit that changes them stales the scope."""
        ...

    def aggregation(self, project: UUID, context: ContextT_contra) -> Pipeline:
        """One pipeline over the source collection that counts all declared scopes on the server."""
        ...

    def collect(self, groups: Iterable[Document], context: ContextT_contra) -> Mapping[str, Counters]:
        """Counters per scope of what ``aggregation`` returned; keys are built here, and only here.

        Scopes with nothing to count may be absent; scopes that are not declared are ignored."""
        ...

    def derive(self, before: EvidenceT_contra, after: EvidenceT_contra, context: ContextT_contra) -> Effect:
        """What the change from ``before`` to ``after`` does. Pure; equal evidence has no effect."""
        ...


class SharedPass(Protocol[ContextT_contra]):
    """One aggregation that feeds several families at once, for less than their own ones cost together."""

    @property
    def families(self) -> frozenset[str]: ...

    def aggregation(self, project: UUID, context: ContextT_contra, families: frozenset[str]) -> Pipeline:
        """As a family's, for those of ``families``."""
        ...

    def collect(
        self, groups: Iterable[Document], context: ContextT_contra, families: frozenset[str]
    ) -> Mapping[str, Mapping[str, Counters]]:
        """As a family's, per family."""
        ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """One change as it waits in its document: typed transitions, and intents for what these cannot say."""

    transitions: tuple[Transition, ...] = ()
    intents: tuple[Intent, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.transitions or self.intents)


class Transitions(Protocol[ContextT_contra, EvidenceT]):
    """How a domain's changes wait in their documents until they are folded.

    What ``encode`` writes and ``images`` reads must give every family the very effect that the whole change would have.
    """

    @property
    def kinds(self) -> Mapping[str, frozenset[str]]:
        """Every kind of transition, and the families that it moves."""
        ...

    @property
    def groups(self) -> Mapping[str, str]:
        """The families that fold, and of each the group that shares its context digest."""
        ...

    def context_digests(self, context: ContextT_contra) -> Mapping[str, str]:
        """Per group, of everything in the context that its families' moves depend on."""
        ...

    def encode(
        self, before: EvidenceT, after: EvidenceT, context: ContextT_contra, families: frozenset[str]
    ) -> Encoded:
        """The change, as far as it concerns ``families``. Pure; empty where it moves and stales nothing of theirs."""
        ...

    def images(self, transition: Transition) -> tuple[EvidenceT, EvidenceT]:
        """What the kind's families must see before and after. Raises KeyError, TypeError or ValueError where the
        payload is none of its kind."""
        ...


class Rewrite(Protocol):
    """What a source-visibility operation makes of every source document of a project."""

    def fields(self, context: Document, intent: Mapping[str, Any]) -> Mapping[str, Any]:
        """Aggregation expressions of top-level fields, over the document as it is. Applied twice they say the same as
        once, and they leave alone what a save under the new context writes: saves go on meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class Configuration(Generic[ContextT]):
    """What the rows of one project must have been calculated under, scope by scope."""

    families: Mapping[str, Family[ContextT, Any]]
    context: ContextT
    _known: dict[tuple[str, str], str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _of_scopes: dict[tuple[str, str], str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _declared: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def declared_scopes(self, family: str) -> tuple[str, ...]:
        """Refuses FamilyUnknown."""
        declared = self._declared.get(family)
        if declared is None:
            declared = self._declared[family] = _named(self.families, family).declared_scopes(self.context)
        return declared

    def declared(self, asked: Mapping[str, Sequence[str] | None]) -> dict[str, tuple[str, ...]]:
        """The scopes asked for, None resolved to all of the family's. Refuses FamilyUnknown, ScopeUnknown."""
        scopes: dict[str, tuple[str, ...]] = {}
        for family, wanted in asked.items():
            known = self.declared_scopes(family)
            if unknown := set(wanted or ()).difference(known):
                raise Refusal(OperateReason.ScopeUnknown, f"{family}: {', '.join(sorted(unknown))}")
            scopes[family] = known if wanted is None else tuple(wanted)
        return scopes

    def digest(self, family: str, scope: str) -> str:
        """Calculated once per family and parameters: of 172 scopes in a bundle all but a dozen share theirs, and their
        digests had been a third of what reading it took this process."""
        known = self._of_scopes.get((family, scope))
        if known is None:
            known = self._of_scopes[family, scope] = self._calculated(family, scope)
        return known

    def _calculated(self, family: str, scope: str) -> str:
        parameters = self.families[family].parameters(self.context, scope)
        key = family, repr(parameters)  # tells true from 1, which are equal and hash alike
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = digest([CONFIGURATION_SCHEMA, family, parameters])
        return known


@dataclass(frozen=True, slots=True)
class Catalogue(Generic[ContextT, EvidenceT]):
    """A domain as the engine sees it.

    ``source_collection`` holds one document per aggregate with ``ProjectId`` and ``Audit.Version``;
    ``context_collection`` one document per project (its ``_id``), from which every calculation takes its parameters.
    Raising ``version`` makes rows of another version unservable until a backfill republishes them. ``rewrites`` are the
    operations that hide the source while they rewrite it. Without ``transitions`` the domain's saves do not fold.
    """

    source_collection: str
    context_collection: str
    version: int
    families: Mapping[str, Family[ContextT, EvidenceT]]
    domain: Domain[ContextT, EvidenceT]
    passes: tuple[SharedPass[ContextT], ...] = ()
    rewrites: Mapping[FenceKind, Rewrite] = field(default_factory=dict)
    transitions: Transitions[ContextT, EvidenceT] | None = None

    @property
    def folding(self) -> frozenset[str]:
        """The families whose saves fold."""
        return frozenset(self.transitions.groups) if self.transitions else frozenset()

    def configuration(self, context: ContextT) -> Configuration[ContextT]:
        return Configuration(self.families, context)

    def family(self, name: str) -> Family[ContextT, EvidenceT]:
        """Refuses FamilyUnknown, naming those there are."""
        return _named(self.families, name)


def _named(families: Mapping[str, NamedT], name: str) -> NamedT:
    try:
        return families[name]
    except KeyError as error:
        known = ", ".join(sorted(families))
        raise Refusal(OperateReason.FamilyUnknown, f"no family {name!r}; there are: {known}") from error


class Domain(Protocol[ContextT_co, EvidenceT_co]):
    """How source documents become what families calculate with."""

    def context(self, project: Document, tracking: TrackingMode) -> ContextT_co:
        """The parameters of every calculation in one project, under the fleet's reviewer-tracking mode. Pure, and
        nobody changes what it gives: reads share it while the document stays the same."""
        ...

    def evidence(self, source: Document) -> EvidenceT_co:
        """The statistics-relevant part of a source document; two equal ones mean that nothing counted changed."""
        ...


AnyCatalogue = Catalogue[Any, Any]
AnyTransitions = Transitions[Any, Any]
