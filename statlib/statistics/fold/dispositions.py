"""What becomes of the entries of one batch. Pure: everything is decided by what one snapshot holds.

An entry is *set aside* when applying it could break something: its operation is known already, or nobody here can read
it. Every other one is *consumed*, which leaves its receipt, and per family either applied or discarded. A family that
anything in the batch stales loses all of the batch's moves, since its rebuild counts the source afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from statlib.statistics.catalogue import Effect
from statlib.statistics.derivation import Consumer, derive
from statlib.statistics.fold.batch import Taken
from statlib.statistics.moves import StaleCause
from statlib.statistics.pending import Entry, Overflow, Poison, Underivable, parse_entry

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored of a batch's operations already: the digest in a receipt, a ledger record, a quarantine record;
    and of a document and namespace the revision up to which receipts were retired."""

    receipts: Mapping[Key, str] = field(default_factory=dict)
    deltas: frozenset[Key] = frozenset()
    quarantined: frozenset[Key] = frozenset()
    retired: Mapping[tuple[UUID, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Consumed:
    """An entry that leaves its receipt, and what it does to each family that it says anything certain about."""

    aggregate: UUID
    entry: Entry
    effects: Mapping[str, Effect]


@dataclass(frozen=True, slots=True)
class SetAside:
    """What goes into quarantine. ``key`` is two empty strings where no operation can be told; ``digest`` where there is
    one to read."""

    aggregate: UUID
    reason: Poison
    key: Key = ("", "")
    digest: str | None = None
    revisions: tuple[int, int] | None = None
    entry: Any = None


@dataclass(frozen=True, slots=True)
class Dispositions:
    """``staled``: families that no entry of the batch moves, and why."""

    consumed: tuple[Consumed, ...]
    aside: tuple[SetAside, ...]
    staled: Mapping[str, StaleCause]


def dispose(batch: Sequence[Taken], known: Known, at: Consumer) -> Dispositions:
    """Decide for every entry and every overflow of the batch."""
    decided = _Deciding(known, at)
    for taken in batch:
        for raw in taken.pending.entries:
            decided.entry(taken.aggregate, raw)
        if taken.pending.overflow is not None:
            decided.overflow(taken.aggregate, taken.pending.overflow)
    return Dispositions(tuple(decided.consumed), tuple(decided.aside), decided.staled)


def keys_of(batch: Iterable[Taken]) -> list[Key]:
    """The operations that can be told of a batch's entries, each once."""
    keys = (key_of(raw) for taken in batch for raw in taken.pending.entries)
    return sorted({key for key in keys if key is not None})


def key_of(raw: Any) -> Key | None:
    """Namespace and operation id of a stored entry, whatever else can be made of it."""
    if not isinstance(raw, Mapping):
        return None
    namespace, operation = raw.get("OperationNamespace"), raw.get("OperationId")
    return (namespace, operation) if isinstance(namespace, str) and isinstance(operation, str) else None


def dropped(aggregate: UUID, overflow: Overflow) -> list[SetAside]:
    """The records of an overflow: each drop by name, and the range of those that have none."""
    aside = [
        SetAside(aggregate, Poison.OVERFLOWED, (one.operation_namespace, one.operation_id), one.submission_digest)
        for one in overflow.dropped
    ]
    lower, upper = overflow.unrecorded_from_revision, overflow.unrecorded_to_revision
    if lower is not None and upper is not None:
        aside.append(SetAside(aggregate, Poison.UNRECORDED_DROPS, revisions=(lower, upper)))
    return aside


def put_aside(aggregate: UUID, raw: Any, reason: Poison) -> SetAside:
    """The record of one stored entry."""
    digest = raw.get("SubmissionDigest") if isinstance(raw, Mapping) else None
    return SetAside(
        aggregate,
        reason,
        key=key_of(raw) or ("", ""),
        digest=digest if isinstance(digest, str) else None,
        entry=raw,
    )


def touched(raw: Any, at: Consumer) -> frozenset[str]:
    """Every family that a stored entry could do anything to: all of them, where it cannot be read."""
    try:
        derived = derive(parse_entry(raw), at, at.catalogue.folding)
    except Underivable:
        return at.catalogue.folding
    return derived.mismatched | frozenset(derived.effects)


def require_unknown(known: Known, aggregate: UUID, entry: Entry) -> None:
    """Raises Underivable where something is stored of this operation of ``aggregate`` already."""
    if (received := known.receipts.get(entry.key)) is not None:
        same = received == entry.submission_digest
        raise Underivable(Poison.DUPLICATE_RECEIPT if same else Poison.CONFLICTING_RECEIPT)
    if entry.key in known.deltas:
        raise Underivable(Poison.DUPLICATE_DELTA)
    if entry.expected_source_revision <= known.retired.get((aggregate, entry.operation_namespace), -1):
        raise Underivable(Poison.RETIRED_SOURCE_REVISION)
    if entry.key in known.quarantined:
        raise Underivable(Poison.QUARANTINE_EXISTS)


class _Deciding:
    """One batch in the course of being decided. An operation that comes twice is known the second time."""

    def __init__(self, known: Known, at: Consumer) -> None:
        self.consumed: list[Consumed] = []
        self.aside: list[SetAside] = []
        self.staled: dict[str, StaleCause] = {}
        self._receipts = dict(known.receipts)
        self._known, self._at = replace(known, receipts=self._receipts), at

    def entry(self, aggregate: UUID, raw: Any) -> None:
        try:
            entry = parse_entry(raw)
            require_unknown(self._known, aggregate, entry)
            derived = derive(entry, self._at, self._at.catalogue.folding)
        except Underivable as poison:
            self.aside.append(put_aside(aggregate, raw, poison.reason))
            self._stale(touched(raw, self._at), StaleCause.POISONED)
            return
        self._receipts[entry.key] = entry.submission_digest
        self.consumed.append(Consumed(aggregate, entry, derived.effects))
        self._stale(derived.mismatched, StaleCause.CONTEXT_CHANGED)

    def overflow(self, aggregate: UUID, overflow: Overflow) -> None:
        self.aside += dropped(aggregate, overflow)
        self._stale(self._at.catalogue.folding, StaleCause.OVERFLOWED)

    def _stale(self, families: Iterable[str], cause: StaleCause) -> None:
        for family in families:
            self.staled.setdefault(family, cause)
