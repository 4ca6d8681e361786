"""Pending entries: what saves left in their own document, for the fold to carry into rows.

One document's set is ``PendingStatistics``: the entries, or a note of what no longer fitted (``Overflow``), and
``OldestAtUtc``, by which the partial index finds it. Everything here is pure.

Invariants: a set is always written whole, with its oldest time recomputed, so that no entry is outside the index. An
operation that is not in the entries is in the overflow, by name or by its revision's being in the unrecorded range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import bson
from pydantic import Field, ValidationError, ValidationInfo, field_validator

from statlib.kernel.digests import digest
from statlib.mongo.documents import Stored, UtcTime
from statlib.statistics.bounds import (
    OVERFLOW_RECORDED_MAX,
    PENDING_ENTRIES_MAX,
    PENDING_SET_BYTES_MAX,
)
from statlib.statistics.documents import SOURCE_VERSION

PENDING = "PendingStatistics"
FOLD_SEQUENCE = "StatisticsFoldSequence"
OLDEST = f"{PENDING}.OldestAtUtc"

FOLD_PROTOCOL = 1
"""Raised by every change that gives an entry a meaning which earlier releases would not see."""

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_CODEC = bson.codec_options.CodecOptions[dict[str, Any]](
    uuid_representation=bson.binary.UuidRepresentation.STANDARD, tz_aware=True
)


def accepts(protocol: int) -> bool:
    """Whether this release derives entries of that protocol."""
    return protocol == FOLD_PROTOCOL


class Poison(StrEnum):
    """Why an entry, or what became of one, is kept in quarantine instead of being folded."""

    DUPLICATE_RECEIPT = "DuplicateReceipt"
    CONFLICTING_RECEIPT = "ConflictingReceipt"
    DUPLICATE_DELTA = "DuplicateDelta"
    RETIRED_SOURCE_REVISION = "RetiredSourceRevision"
    UNKNOWN_PROTOCOL = "UnknownProtocol"
    UNKNOWN_KIND = "UnknownKind"
    UNDESERIALIZABLE = "Undeserializable"
    QUARANTINE_EXISTS = "QuarantineExists"
    OVERFLOWED = "Overflowed"
    UNRECORDED_DROPS = "UnrecordedDrops"
    LIVELOCKED = "Livelocked"


class Underivable(Exception):
    """An entry that this release cannot turn into moves: poison for the fold, a fallback for the reader."""

    def __init__(self, reason: Poison) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Transition(Stored):
    """One typed change; ``kind`` says which families it moves, and only the domain reads ``payload``."""

    kind: str
    payload: dict[str, Any]


class Intent(Stored):
    """Something that the transitions cannot say: a scope, or with None a whole family, that is to be staled."""

    family: str
    scope: str | None = None


class Entry(Stored):
    """What one committed operation still has to do to stored rows.

    ``context`` is a digest per group of families, of what the saver classified under; ``assumed_tracking_epoch`` the
    tracking epoch that it met. ``created_at_utc`` serves ages and order, and never decides what is right.
    """

    protocol_version: int
    operation_namespace: str
    operation_id: str
    expected_source_revision: int
    source_revision_before: int
    source_revision_after: int
    submission_digest: str
    created_at_utc: UtcTime
    context: dict[str, str]
    catalogue_version: int
    source_version: int = SOURCE_VERSION
    assumed_tracking_epoch: int
    transitions: list[Transition] = Field(default_factory=list)
    invalidations: list[Intent] = Field(default_factory=list)
    trigger_reason: str = ""

    @field_validator("submission_digest")
    @classmethod
    def _of_a_claim(cls, submitted: str, info: ValidationInfo) -> str:
        """A claim submits nothing but itself, and is stored by the server, which makes no digests: that of its id."""
        return submitted or digest(info.data.get("operation_id", ""))

    @property
    def key(self) -> tuple[str, str]:
        return self.operation_namespace, self.operation_id


def parse_entry(raw: Any) -> Entry:
    """Raises Underivable, UNKNOWN_PROTOCOL before anything else is looked at."""
    if isinstance(raw, Mapping) and isinstance(protocol := raw.get("ProtocolVersion"), int) and not accepts(protocol):
        raise Underivable(Poison.UNKNOWN_PROTOCOL)
    try:
        return Entry.from_bson(raw)
    except (ValidationError, TypeError) as error:
        raise Underivable(Poison.UNDESERIALIZABLE) from error


class Dropped(Stored):
    """An operation whose entry no longer fitted."""

    operation_namespace: str
    operation_id: str
    submission_digest: str


class Overflow(Stored):
    """What a full set could not take. The unrecorded ones are known by their revisions alone, both ends included."""

    overflowed_at_utc: UtcTime
    dropped: list[Dropped] = Field(default_factory=list)
    unrecorded_count: int = 0
    unrecorded_from_revision: int | None = None
    unrecorded_to_revision: int | None = None

    def with_unrecorded(self, before: int, after: int, count: int = 1) -> Overflow:
        lower, upper = self.unrecorded_from_revision, self.unrecorded_to_revision
        return self.model_copy(
            update={
                "unrecorded_count": self.unrecorded_count + count,
                "unrecorded_from_revision": before if lower is None else min(lower, before),
                "unrecorded_to_revision": after if upper is None else max(upper, after),
            }
        )

    def hides(self, revision: int) -> bool:
        """Whether an operation that expected ``revision`` may be one of the unrecorded.

        It committed at that revision or, rebased, at a later one: only what expected a revision after all of them is
        certainly not among them.
        """
        return self.unrecorded_to_revision is not None and revision <= self.unrecorded_to_revision


class _StoredSet(Stored):
    oldest_at_utc: UtcTime
    entries: list[Any]
    overflow: Overflow | None = None


@dataclass(frozen=True, slots=True)
class PendingSet:
    """The set of one document. ``entries`` stay as they are stored, whatever this release makes of them."""

    entries: tuple[Any, ...] = ()
    overflow: Overflow | None = None
    oldest: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.entries) or self.overflow is not None


def pending_of(source: Mapping[str, Any]) -> PendingSet:
    """The pending set of a source document. One that makes no sense counts as drops that nobody recorded, up to the
    document's version: nothing that it may have held is taken for absent."""
    stored = source.get(PENDING)
    if stored is None:
        return PendingSet()
    if (sound := _sound(stored)) is not None:
        return sound
    try:
        found = _StoredSet.from_bson(stored)
    except ValidationError:
        dropped = Overflow(overflowed_at_utc=source["Audit"].get("LastModified") or _LONG_AGO)
        return PendingSet((), dropped.with_unrecorded(0, int(source["Audit"]["Version"])))
    return PendingSet(tuple(found.entries), found.overflow, found.oldest_at_utc)


def _sound(stored: Any) -> PendingSet | None:
    """A set as writers leave it, without the validation that its parts need no more: a read may meet a hundred."""
    if not isinstance(stored, Mapping) or stored.get("Overflow") is not None:
        return None
    entries, oldest = stored.get("Entries"), stored.get("OldestAtUtc")
    if not isinstance(entries, list) or not isinstance(oldest, datetime) or oldest.tzinfo is None:
        return None
    return PendingSet(tuple(entries), None, oldest)


def appended(pending: PendingSet, entries: Sequence[Entry], now: datetime) -> dict[str, Any]:
    """The stored form of the set with these entries of one write, all of them or none; what does not fit is dropped,
    on record. ``now``: the time of a drop."""
    if pending.overflow is None and len(pending.entries) + len(entries) <= PENDING_ENTRIES_MAX:
        grown = stored(replace(pending, entries=(*pending.entries, *(entry.to_bson() for entry in entries))))
        if encoded_size(grown) <= PENDING_SET_BYTES_MAX:
            return grown
    overflow = pending.overflow or Overflow(overflowed_at_utc=now)
    for entry in entries:
        overflow = _dropping(overflow, entry)
    return stored(replace(pending, overflow=overflow))


def _dropping(overflow: Overflow, entry: Entry) -> Overflow:
    if len(overflow.dropped) >= OVERFLOW_RECORDED_MAX:
        return overflow.with_unrecorded(entry.source_revision_before, entry.source_revision_after)
    dropped = Dropped(
        operation_namespace=entry.operation_namespace,
        operation_id=entry.operation_id,
        submission_digest=entry.submission_digest,
    )
    return overflow.model_copy(update={"dropped": [*overflow.dropped, dropped]})


def stored(pending: PendingSet) -> dict[str, Any]:
    """The whole sub-document. ``OldestAtUtc`` is the oldest time in it; of an entry without one, that of the set as it
    was found."""
    times = [time for raw in pending.entries if isinstance(time := _created(raw), datetime)]
    if pending.overflow is not None:
        times.append(pending.overflow.overflowed_at_utc)
    if pending.oldest is not None and len(times) < len(pending.entries) + (pending.overflow is not None):
        times.append(pending.oldest)
    return {
        "OldestAtUtc": min(times),
        "Entries": list(pending.entries),
        "Overflow": None if pending.overflow is None else pending.overflow.to_bson(),
    }


def _created(raw: Any) -> Any:
    return raw.get("CreatedAtUtc") if isinstance(raw, Mapping) else None


def encoded_size(document: Mapping[str, Any]) -> int:
    """Bytes of the document as it is stored."""
    return len(bson.encode(document, codec_options=_CODEC))


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Which operations were pending at a moment: two readings with one fingerprint overlaid the same ones."""

    entries: int
    overflow: bool
    sha256: str


def fingerprint(sets: Iterable[PendingSet]) -> Fingerprint:
    ids: list[str] = []
    overflow = False
    for pending in sets:
        ids += [_named(raw) for raw in pending.entries]
        overflow = overflow or pending.overflow is not None
    return Fingerprint(len(ids), overflow, hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest())


def _named(raw: Any) -> str:
    if isinstance(raw, Mapping):
        return f"{raw.get('OperationNamespace')} {raw.get('OperationId')}"
    return repr(raw)
