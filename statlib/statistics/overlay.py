"""The overlay: stored counters plus what is still pending, so that a read sees every save that it follows.

Pure. Whatever it cannot add exactly it refuses, by family and with a name, and the reader counts the source instead. It
only ever adds reasons not to serve: a row that is not current stays unserved, whatever is pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Protocol

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions

from statlib.statistics.bounds import (
    COUNTER_BYTES_MAX,
    COUNTER_KEYS_MAX,
    OVERLAY_AGE_MAX_S,
    OVERLAY_ENTRIES_MAX,
    OVERLAY_STUDIES_MAX,
    PENDING_SETS_KEPT_MAX,
)
from statlib.statistics.contexts import Itself
from statlib.statistics.counters import Counters, fit
from statlib.statistics.derivation import Consumer, derive
from statlib.statistics.pending import Entry, Fingerprint, PendingSet, Underivable, fingerprint, parse_entry, pending_of

Scope = tuple[str, str]  # a family's, and its name
_CODEC: CodecOptions[Mapping[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD, tz_aware=True)


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
    server's time of the read.

    ``documents`` are as ``queries.pending_sets`` brings them, undecoded: nearly all of them were read before.
    """

    documents: tuple[bytes, ...]
    now: datetime

    @cached_property
    def sets(self) -> tuple[PendingSet, ...]:
        return tuple(map(_set_of, self.documents))

    @cached_property
    def fingerprint(self) -> Fingerprint:
        return fingerprint(self.sets)


NOTHING_PENDING = fingerprint(())


@dataclass(frozen=True, slots=True)
class Overlaid:
    """``counters`` of the requested scopes that something pending moves, in the place of the stored ones; ``refused``:
    requested families that must not be served from storage."""

    counters: Mapping[Scope, Counters] = field(default_factory=dict)
    refused: Mapping[str, OverlayRefusal] = field(default_factory=dict)


def overlay(
    pending: Pending,
    at: Consumer,
    rows: Mapping[Scope, Valued],
    scopes: Mapping[str, Sequence[str]],
) -> Overlaid:
    """``scopes`` per family are those requested: nothing else is derived, and nothing else is refused. Each has its row
    in ``rows``. An entry of another context refuses the families of its group, all of those requested."""
    families = at.catalogue.folding.intersection(scopes)
    if not families or not pending.documents:
        return Overlaid()
    if (whole := _refusal_of_all(pending)) is not None:
        return Overlaid(refused=dict.fromkeys(families, whole))
    sums = _Sums((family, scope) for family in families for scope in scopes[family])
    held_against = Itself(at)
    try:
        for document in pending.documents:
            for contribution in _contributions(held_against, document, families):
                sums.add(contribution)
    except Underivable as error:
        return Overlaid(refused=dict.fromkeys(families, OverlayRefusal(error.reason.value)))
    return _added(sums, rows)


@lru_cache(maxsize=PENDING_SETS_KEPT_MAX)
def _set_of(document: bytes) -> PendingSet:
    return pending_of(bson.decode(document, codec_options=_CODEC)["Document"])


@dataclass(frozen=True, slots=True)
class _Contribution:
    """What one entry does to the families asked for: ``moves`` per scope, in a form that is quickly added up."""

    moves: tuple[tuple[Scope, tuple[tuple[str, int], ...]], ...]
    stale_families: tuple[str, ...]
    stale_scopes: tuple[Scope, ...]
    refused: Mapping[str, OverlayRefusal]


@lru_cache(maxsize=PENDING_SETS_KEPT_MAX)
def _contributions(at: Itself[Consumer], document: bytes, families: frozenset[str]) -> tuple[_Contribution, ...]:
    """Of each entry of a set. Remembered by the document's bytes: a set waits through many reads, and decoding and
    deriving it takes twenty times as long as adding it up."""
    return tuple(_contribution(at.one, parse_entry(raw), families) for raw in _set_of(document).entries)


def _contribution(at: Consumer, entry: Entry, families: frozenset[str]) -> _Contribution:
    derived = derive(entry, at, families)
    tracked = entry.assumed_tracking_epoch == at.tracking_epoch
    why = OverlayRefusal.CONTEXT_CHANGED if tracked else OverlayRefusal.TRACKING_MODE_CHANGED
    effects = derived.effects.items()
    return _Contribution(
        moves=tuple(((family, s), tuple(change.items())) for family, of in effects for s, change in of.moves.items()),
        stale_families=tuple(family for family, of in effects if of.stale_family),
        stale_scopes=tuple((family, scope) for family, of in effects for scope in of.stale_scopes),
        refused=dict.fromkeys(derived.mismatched, why),
    )


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

    def __init__(self, requested: Iterable[Scope]) -> None:
        self.requested = frozenset(requested)
        self.families = frozenset(family for family, _ in self.requested)
        self.moves: dict[Scope, dict[str, int]] = {}
        self.refused: dict[str, OverlayRefusal] = {}

    def add(self, of: _Contribution) -> None:
        if of.refused:
            self.refused = {**of.refused, **self.refused}
        for family in self.families.intersection(of.stale_families):
            self.refused.setdefault(family, OverlayRefusal.INTENT)
        for family, _ in self.requested.intersection(of.stale_scopes):
            self.refused.setdefault(family, OverlayRefusal.INTENT)
        for scope, change in of.moves:
            if scope in self.requested:
                total = self.moves.get(scope)
                if total is None:
                    self.moves[scope] = dict(change)
                else:
                    _add_to(total, change)


def _added(sums: _Sums, rows: Mapping[Scope, Valued]) -> Overlaid:
    """The fold's own addition: a key that reaches zero stays."""
    refused = sums.refused
    counters: dict[Scope, Counters] = {}
    for key, change in sums.moves.items():
        if key[0] in refused:
            continue
        total = dict(rows[key].values)
        _add_to(total, change.items())
        if len(total) > COUNTER_KEYS_MAX or not fit(total, COUNTER_BYTES_MAX):
            refused[key[0]] = OverlayRefusal.CAPACITY
        elif min(total.values(), default=0) < 0:
            refused[key[0]] = OverlayRefusal.NEGATIVE_COUNTER
        else:
            counters[key] = total
    return Overlaid(counters, refused)


def _add_to(total: dict[str, int], change: Iterable[tuple[str, int]]) -> None:
    for counter, by in change:
        total[counter] = total.get(counter, 0) + by
