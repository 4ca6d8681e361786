"""The trail of an operation: everything that could still show that it was done, in one place.

What a save leaves goes from its document's pending entries, or from the drops of a full set, to a receipt or into
quarantine, in one transaction each time. So whoever reads the document first and the others after it meets every
operation at least once. What went without a name (unrecorded drops, an entry that nobody could read, receipts that
were retired) is known by revisions alone: for those, meeting nothing proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from statlib.statistics.documents import Quarantined, Receipt
from statlib.statistics.envelopes import Envelope
from statlib.statistics.idempotency import Evidence
from statlib.statistics.pending import PendingSet

Key = tuple[str, str]
"""Namespace and id of an operation."""

NOTHING = -1
EVERYTHING = 2**63 - 1


class Kept(StrEnum):
    """Where an operation was met."""

    PENDING = "Pending"
    DROPPED = "Dropped"
    RECEIPT = "Receipt"
    QUARANTINE = "Quarantine"


@dataclass(frozen=True, slots=True)
class Trace:
    """One operation that was done. ``digest`` is None where its record cannot be read so far, ``revision_after`` where
    it does not say."""

    namespace: str
    operation_id: str
    kept: Kept
    digest: str | None
    revision_after: int | None = None

    @property
    def key(self) -> Key:
        return self.namespace, self.operation_id

    @property
    def leaves_receipt(self) -> bool:
        return self.kept in {Kept.PENDING, Kept.RECEIPT}

    def expected_in(self, streams: Iterable[str]) -> int:
        """The revision that it was opened at, if it is of one of these streams; NOTHING if not."""
        stream, _, expected = self.operation_id.rpartition(":")
        return int(expected) if stream in streams and expected.isdigit() else NOTHING


@dataclass(frozen=True, slots=True)
class Trail:
    """``retired_through``: receipts of operations that expected such a revision or an earlier one may be gone;
    ``hidden_through``: such operations may have been kept without a name. NOTHING: none."""

    traces: tuple[Trace, ...] = ()
    retired_through: int = NOTHING
    hidden_through: int = NOTHING

    def of(self, key: Key) -> Trace | None:
        return next((trace for trace in self.traces if trace.key == key), None)

    def any_of(self, keys: Collection[Key]) -> bool:
        return any(trace.key in keys for trace in self.traces)

    def evidence(self, envelope: Envelope, submission_digest: str) -> Evidence:
        own = self.of((envelope.namespace, envelope.operation_id))
        if own is not None:
            if own.digest is None:
                return Evidence.HIDDEN
            return Evidence.SAME if own.digest == submission_digest else Evidence.OTHER
        if envelope.expected <= self.retired_through:
            return Evidence.RETIRED
        if envelope.expected <= self.hidden_through:
            return Evidence.HIDDEN
        # At the same revision only a sibling can be: of two doings opened side by side, the one that was saved stands.
        if self.latest_of(envelope.namespace, (envelope.stream, *envelope.siblings)) >= envelope.expected:
            return Evidence.SUPERSEDED
        return Evidence.NONE

    def latest_of(self, namespace: str, streams: Collection[str]) -> int:
        """The latest revision that an operation of these streams was opened at; NOTHING if none was done."""
        opened_at = (trace.expected_in(streams) for trace in self.traces if trace.namespace == namespace)
        return max(opened_at, default=NOTHING)


def trail_of(
    pending: PendingSet,
    receipts: Iterable[Receipt] = (),
    quarantined: Iterable[Quarantined] = (),
    retired: Sequence[Mapping[str, Any]] = (),
) -> Trail:
    """From what the document holds and what was read after it. ``retired`` are retirement documents."""
    in_document, unreadable = _pending(pending)
    records = list(quarantined)
    hidden = [EVERYTHING] if unreadable else []
    if pending.overflow is not None and pending.overflow.unrecorded_to_revision is not None:
        hidden.append(pending.overflow.unrecorded_to_revision)
    hidden += [EVERYTHING if one.to_revision is None else one.to_revision for one in records if not one.operation_id]
    return Trail(
        traces=(
            *in_document,
            *(_of_receipt(receipt) for receipt in receipts),
            *(_of_quarantine(one) for one in records if one.operation_id),
        ),
        retired_through=max((int(one["RetiredThroughSourceRevision"]) for one in retired), default=NOTHING),
        hidden_through=max(hidden, default=NOTHING),
    )


def _pending(pending: PendingSet) -> tuple[list[Trace], bool]:
    """What is named in the set, and whether it holds an entry without a name."""
    named = [trace for raw in pending.entries if (trace := _of_entry(raw)) is not None]
    unreadable = len(named) < len(pending.entries)
    dropped = pending.overflow.dropped if pending.overflow else []
    named += [Trace(one.operation_namespace, one.operation_id, Kept.DROPPED, one.submission_digest) for one in dropped]
    return named, unreadable


def _of_entry(raw: Any) -> Trace | None:
    """By the three fields alone that every protocol's entries have: whatever else is in it, it was done."""
    if not isinstance(raw, Mapping):
        return None
    namespace, operation_id = raw.get("OperationNamespace"), raw.get("OperationId")
    if not (isinstance(namespace, str) and isinstance(operation_id, str)):
        return None
    digest, after = raw.get("SubmissionDigest"), raw.get("SourceRevisionAfter")
    return Trace(
        namespace,
        operation_id,
        Kept.PENDING,
        digest if isinstance(digest, str) else None,
        int(after) if isinstance(after, int) else None,
    )


def _of_receipt(receipt: Receipt) -> Trace:
    return Trace(
        receipt.operation_namespace,
        receipt.operation_id,
        Kept.RECEIPT,
        receipt.source_digest,
        receipt.committed_source_after_revision,
    )


def _of_quarantine(one: Quarantined) -> Trace:
    return Trace(one.operation_namespace, one.operation_id, Kept.QUARANTINE, one.submission_digest, one.to_revision)
