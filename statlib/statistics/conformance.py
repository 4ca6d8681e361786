"""The kit for a domain of one's own: does a catalogue keep what the engine asks of it?

For application developers, in their tests. A family counts twice, by aggregation and by derivation; whatever history
its documents have, both must say the same. Here a history is played on a real database, and every disagreement is
named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import snapshot
from statlib.statistics.authoritative import PinnedReads, calculate
from statlib.statistics.catalogue import AnyCatalogue, Document
from statlib.statistics.counters import Counters, differences, plus
from statlib.statistics.documents import TrackingMode


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a domain promised and did not keep. ``step`` counts the history's changes from 1; 0 precedes them."""

    step: int
    family: str
    scope: str
    detail: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.family} {self.scope}: {self.detail}"


def findings(mongo: Mongo, catalogue: AnyCatalogue, project: UUID, changes: Iterable[Document]) -> tuple[Finding, ...]:
    """Play ``changes``, each the next state of a source document that is stored already, and compare at every step.

    The project and its documents must be stored in ``mongo``, a database for this purpose alone: documents are
    replaced past every guard. A scope that a change stales is counted anew, as a rebuild would; one that it moves
    must come out as counted. Stops at the first step that has findings.
    """
    check = _Check(mongo, catalogue, project)
    found = check.declarations()
    stored = check.counted()
    for step, change in enumerate(changes, start=1):
        if found:
            break
        effects = check.replace(change)
        counted = check.counted()
        for family, scopes in counted.items():
            for scope, truth in scopes.items():
                effect = effects[family]
                if effect.stale_family or scope in effect.stale_scopes:
                    continue
                derived = plus(stored[family][scope], effect.moves.get(scope, {}))
                found += _disagreements(step, family, scope, derived, truth)
        stored = counted
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Check:
    mongo: Mongo
    catalogue: AnyCatalogue
    project: UUID

    def context(self) -> Any:
        document = self.mongo.collection(self.catalogue.context_collection).find_one({"_id": self.project})
        if document is None:
            raise LookupError(f"project {self.project} is not stored in {self.catalogue.context_collection}")
        return self.catalogue.domain.context(document, TrackingMode.TRACKED)

    def declarations(self) -> list[Finding]:
        context, found = self.context(), []
        for name, family in self.catalogue.families.items():
            declared = family.declared_scopes(context)
            if len(set(declared)) != len(declared):
                found.append(Finding(0, name, "", "a scope is declared twice"))
            if family.name != name:
                found.append(Finding(0, name, "", f"it is registered as {name} and calls itself {family.name}"))
            for scope in declared:
                try:
                    json.dumps(family.parameters(context, scope), default=str)
                except (TypeError, ValueError) as error:
                    found.append(Finding(0, name, scope, f"its parameters are no JSON values: {error}"))
        return found

    def counted(self) -> dict[str, dict[str, Counters]]:
        context = self.context()
        with snapshot(self.mongo) as session:
            reads = PinnedReads(self.mongo, session)
            return {
                family: calculate(reads, self.catalogue, [family], self.project, context)[family]
                for family in self.catalogue.families
            }

    def replace(self, change: Document) -> Mapping[str, Any]:
        sources = self.mongo.collection(self.catalogue.source_collection)
        stored = sources.find_one_and_replace({"_id": change["_id"], "ProjectId": self.project}, dict(change))
        if stored is None:
            raise LookupError(f"document {change['_id']} is not stored in project {self.project}")
        context, domain = self.context(), self.catalogue.domain
        before, after = domain.evidence(stored), domain.evidence(change)
        return {name: family.derive(before, after, context) for name, family in self.catalogue.families.items()}


def _disagreements(step: int, family: str, scope: str, derived: Counters, counted: Counters) -> list[Finding]:
    return [
        Finding(step, family, scope, f"{counter} is {left} by derivation and {right} by aggregation")
        for counter, (left, right) in differences(derived, counted).items()
    ]
