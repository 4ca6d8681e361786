"""From a pending entry to what it does to each family: the one pure function of fold, reader and rebuild.

Whoever consumes an entry asks it of the context of its own snapshot. An entry that was written under another context
moves nothing of the groups that changed: their families are stale by it, all of them, since a saver under an old
context could not know what it touched under the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from statlib.statistics.catalogue import AnyCatalogue, AnyTransitions, Effect
from statlib.statistics.counters import Counters, plus
from statlib.statistics.documents import SOURCE_VERSION
from statlib.statistics.pending import Entry, Intent, Poison, Transition, Underivable

NO_EFFECT = Effect()


@dataclass(frozen=True, slots=True)
class Consumer:
    """What an entry is held against: the context of one snapshot, its digests and its tracking epoch."""

    catalogue: AnyCatalogue
    context: Any
    tracking_epoch: int
    digests: Mapping[str, str]

    @classmethod
    def of(cls, catalogue: AnyCatalogue, context: Any, tracking_epoch: int) -> Consumer:
        digests = catalogue.transitions.context_digests(context) if catalogue.transitions else {}
        return cls(catalogue, context, tracking_epoch, digests)


@dataclass(frozen=True, slots=True)
class Derived:
    """``effects`` of the families asked for, where they are any; ``mismatched`` are those of them that the entry says
    nothing certain about, since it was written under another context."""

    effects: Mapping[str, Effect]
    mismatched: frozenset[str]


def derive(entry: Entry, at: Consumer, families: Iterable[str]) -> Derived:
    """What ``entry`` does to ``families``; others are not looked at. Raises Underivable, whatever the families."""
    transitions = at.catalogue.transitions
    if transitions is None:
        raise Underivable(Poison.UNKNOWN_KIND)
    if any(transition.kind not in transitions.kinds for transition in entry.transitions):
        raise Underivable(Poison.UNKNOWN_KIND)
    asked = at.catalogue.folding.intersection(families)
    mismatched = _mismatched(transitions, entry, at, asked)
    effects: dict[str, Effect] = {}
    for transition in entry.transitions:
        concerned = transitions.kinds[transition.kind] & asked - mismatched
        if concerned:
            _add(effects, _of_transition(transitions, transition, at, concerned))
    for intent in entry.invalidations:
        if intent.family in asked - mismatched:
            _add(effects, {intent.family: _of_intent(intent)})
    return Derived(effects, mismatched)


def _mismatched(transitions: AnyTransitions, entry: Entry, at: Consumer, families: frozenset[str]) -> frozenset[str]:
    if (
        entry.assumed_tracking_epoch != at.tracking_epoch
        or entry.catalogue_version != at.catalogue.version
        or entry.source_version != SOURCE_VERSION
    ):
        return families
    groups = transitions.groups
    return frozenset(f for f in families if entry.context.get(groups[f]) != at.digests[groups[f]])


def _of_transition(
    transitions: AnyTransitions, transition: Transition, at: Consumer, families: frozenset[str]
) -> dict[str, Effect]:
    try:
        before, after = transitions.images(transition)
        derived = {family: at.catalogue.families[family].derive(before, after, at.context) for family in families}
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # an entry must not stop what follows it
        raise Underivable(Poison.UNDESERIALIZABLE) from error
    return {family: effect for family, effect in derived.items() if effect.touches}


def _of_intent(intent: Intent) -> Effect:
    if intent.scope is None:
        return Effect(stale_family=True)
    return Effect(stale_scopes=frozenset({intent.scope}))


def _add(effects: dict[str, Effect], more: Mapping[str, Effect]) -> None:
    for family, effect in more.items():
        effects[family] = together(effects.get(family, NO_EFFECT), effect)


def together(one: Effect, other: Effect) -> Effect:
    """Both, one after the other: moves add up, whatever staled stays staled."""
    if not one.touches:
        return other
    moves: dict[str, Counters] = dict(one.moves)
    for scope, change in other.moves.items():
        moves[scope] = plus(moves.get(scope, {}), change)
    return Effect(moves, one.stale_scopes | other.stale_scopes, one.stale_family or other.stale_family)
