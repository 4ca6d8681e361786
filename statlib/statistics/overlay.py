"""The overlay: stored counters plus what is still pending, so that a read sees every save that it follows.

Pure. Whatever it cannot add exactly it refuses, by family and with a name, and the reader counts the source instead. It
only ever adds reasons not to serve: a row that is not current stays unserved, whatever is pending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

from statlib.statistics.bounds import (
    COUNTER_KEYS_MAX,
    OVERLAY_AGE_MAX_S,
    OVERLAY_ENTRIES_MAX,
    OVERLAY_STUDIES_MAX,
)
from statlib.statistics.catalogue import Effect
from statlib.statistics.counters import Counters
from statlib.statistics.derivation import Consumer, Derived, derive
from statlib.statistics.pending import Fingerprint, PendingSet, Underivable, fingerprint, parse_entry, pending_of


class OverlayRefusal(StrEnum):
    """Why what is pending cannot be added to stored counters: the detail of PendingOverlayUnavailable.

    The first six are of everything that folds, the others of one family.
    """

    TOO_MANY = "TooMany"
    OVERFLOW = "Overflow"
    TOO_OLD = "TooOld"
    UNKNOWN_PROTOCOL = "UnknownProtocol"
    UNKNOWN_KIND = "UnknownKind"
    UNDESERIALIZABLE = "Undeserializable"
    TRACKING_MODE_CHANGED = "TrackingModeChanged"
    CONTEXT_CHANGED = "ContextChanged"  # an entry was written under another context, or for other counters
    INTENT = "Intent"
    NEGATIVE_COUNTER = "NegativeCounter"
    CAPACITY = "Capacity"


INVARIANT_VIOLATIONS = frozenset({OverlayRefusal.NEGATIVE_COUNTER, OverlayRefusal.CAPACITY})
"""Refusals that no history of saves and folds leads to."""


class Valued(Protocol):
    """A selected row, as far as the overlay asks."""

    @property
    def values(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Pending:
    """What was pending in a project at one moment, or the first of it (one document beyond the cap). ``now``: the
    server's time of the read."""

    sets: tuple[PendingSet, ...]
    now: datetime

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, Any]], now: datetime) -> Pending:
        return cls(tuple(map(pending_of, documents)), now)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        return fingerprint(self.sets)


NOTHING_PENDING = fingerprint(())


@dataclass(frozen=True, slots=True)
class Overlaid:
    """``counters`` of the requested scopes that something pending moves, in the place of the stored ones; ``refused``:
    requested families that must not be served from storage."""

    counters: Mapping[tuple[str, str], Counters] = field(default_factory=dict)
    refused: Mapping[str, OverlayRefusal] = field(default_factory=dict)


def overlay(
    pending: Pending,
    at: Consumer,
    rows: Mapping[tuple[str, str], Valued],
    scopes: Mapping[str, Sequence[str]],
) -> Overlaid:
    """``scopes`` per family are those requested: nothing else is derived, and nothing else is refused. Each has its row
    in ``rows``. An entry of another context refuses the families of its group, all of those requested."""
    families = at.catalogue.folding.intersection(scopes)
    if not families or not pending.sets:
        return Overlaid()
    if (whole := _refusal_of_all(pending)) is not None:
        return Overlaid(refused=dict.fromkeys(families, whole))
    sums = _Sums({family: frozenset(scopes[family]) for family in families})
    for entry in (parsed for found in pending.sets for parsed in found.entries):
        try:
            parsed = parse_entry(entry)
            derived = derive(parsed, at, families)
        except Underivable as error:
            return Overlaid(refused=dict.fromkeys(families, OverlayRefusal(error.reason.value)))
        tracked = parsed.assumed_tracking_epoch == at.tracking_epoch
        sums.add(derived, OverlayRefusal.CONTEXT_CHANGED if tracked else OverlayRefusal.TRACKING_MODE_CHANGED)
    return _added(sums, rows)


def _refusal_of_all(pending: Pending) -> OverlayRefusal | None:
    sets = pending.sets
    if len(sets) > OVERLAY_STUDIES_MAX or sum(len(found.entries) for found in sets) > OVERLAY_ENTRIES_MAX:
        return OverlayRefusal.TOO_MANY
    if any(found.overflow is not None for found in sets):
        return OverlayRefusal.OVERFLOW
    youngest_of_too_old = pending.now - timedelta(seconds=OVERLAY_AGE_MAX_S)
    if any(found.oldest is not None and found.oldest < youngest_of_too_old for found in sets):
        return OverlayRefusal.TOO_OLD
    return None


class _Sums:
    """What all entries together add to each requested scope, and the first refusal of each family."""

    def __init__(self, requested: Mapping[str, frozenset[str]]) -> None:
        self.requested = requested
        self.moves: dict[tuple[str, str], dict[str, int]] = {}
        self.refused: dict[str, OverlayRefusal] = {}

    def add(self, derived: Derived, of_mismatch: OverlayRefusal) -> None:
        for family in derived.mismatched:
            self.refused.setdefault(family, of_mismatch)
        for family, effect in derived.effects.items():
            requested = self.requested[family]
            if _stales(effect, requested):
                self.refused.setdefault(family, OverlayRefusal.INTENT)
            for scope, change in effect.moves.items():
                if scope in requested:
                    _add_to(self.moves.setdefault((family, scope), {}), change)


def _stales(effect: Effect, requested: Collection[str]) -> bool:
    """Whether it says of a requested scope that it changes, and not by how much."""
    return (effect.stale_family and bool(requested)) or not effect.stale_scopes.isdisjoint(requested)


def _added(sums: _Sums, rows: Mapping[tuple[str, str], Valued]) -> Overlaid:
    """The fold's own addition: a key that reaches zero stays."""
    refused = sums.refused
    counters: dict[tuple[str, str], Counters] = {}
    for key, change in sums.moves.items():
        if key[0] in refused:
            continue
        total = dict(rows[key].values)
        _add_to(total, change)
        if len(total) > COUNTER_KEYS_MAX:
            refused[key[0]] = OverlayRefusal.CAPACITY
        elif min(total.values(), default=0) < 0:
            refused[key[0]] = OverlayRefusal.NEGATIVE_COUNTER
        else:
            counters[key] = total
    return Overlaid(counters, refused)


def _add_to(total: dict[str, int], change: Counters) -> None:
    for counter, by in change.items():
        total[counter] = total.get(counter, 0) + by
