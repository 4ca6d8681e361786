"""What one attempt reads before it writes, in one command at majority read concern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.statistics import queries
from statlib.statistics.catalogue import AnyCatalogue, Document
from statlib.statistics.documents import GlobalControl, ProjectControl, Receipt
from statlib.statistics.envelopes import Envelope, Opening
from statlib.statistics.idempotency import Evidence
from statlib.statistics.reasons import OperateReason, SaveReason


@dataclass(frozen=True, slots=True)
class ReceiptTrail:
    """Receipts of a stream and its siblings, and the revision up to which such were retired (-1: none were)."""

    receipts: tuple[Receipt, ...]
    retired_through: int

    def receipt_of(self, envelope: Envelope) -> Receipt | None:
        return next((r for r in self.receipts if r.operation_id == envelope.operation_id), None)

    def evidence(self, envelope: Envelope, submission_digest: str) -> Evidence:
        own = self.receipt_of(envelope)
        if own is not None:
            return Evidence.SAME if own.source_digest == submission_digest else Evidence.OTHER
        if envelope.expected <= self.retired_through:
            return Evidence.RETIRED
        # At the same revision only a sibling can be: of two doings opened side by side, the one that was saved stands.
        if any(r.expected_source_revision >= envelope.expected for r in self.receipts):
            return Evidence.SUPERSEDED
        return Evidence.NONE


@dataclass(frozen=True, slots=True)
class Loaded:
    """One moment of a source document and of what governs it. ``read_at`` is monotonic seconds, for the deadline;
    ``now`` the server's time. ``trail`` is None where receipts were not looked up."""

    source: Document
    fleet: GlobalControl
    control: ProjectControl | None
    context: Document
    trail: ReceiptTrail | None
    now: datetime
    read_at: float

    @property
    def version(self) -> int:
        return int(self.source["Audit"]["Version"])

    @property
    def opening(self) -> Opening:
        return Opening(self.fleet.mode_epoch, self.control.opening_count if self.control else None)


def load(mongo: Mongo, catalogue: AnyCatalogue, project: UUID, aggregate: UUID) -> Loaded:
    """Read a source document and what governs it. Refuses SourceNotFound, ProjectNotFound."""
    return _load(mongo, catalogue, project, aggregate, ())


def load_again(mongo: Mongo, catalogue: AnyCatalogue, envelope: Envelope) -> Loaded:
    """``load``, with the receipts of the envelope's streams: for retries and redeliveries."""
    return _load(mongo, catalogue, envelope.project, envelope.aggregate, queries.with_receipts(envelope))


def _load(
    mongo: Mongo, catalogue: AnyCatalogue, project: UUID, aggregate: UUID, further: Sequence[dict[str, Any]]
) -> Loaded:
    read_at = mongo.clock.monotonic()  # before the read: the deadline must not start late
    pipeline = [*queries.load_source(catalogue, project, aggregate, mongo.clock.mongo_now()), *further]
    found = list(mongo.collection(catalogue.source_collection).aggregate(pipeline))
    if not found:
        raise Refusal(SaveReason.SourceNotFound, f"{aggregate} in project {project}")
    document = found[0]
    if not document["Context"]:
        raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
    return Loaded(
        source=document["Source"],
        fleet=fleet_of(document),
        control=ProjectControl.from_bson(document["Control"][0]) if document["Control"] else None,
        context=document["Context"][0],
        trail=_trail(document) if further else None,
        now=document["Now"],
        read_at=read_at,
    )


def fleet_of(document: Mapping[str, Any]) -> GlobalControl:
    """The fleet's control, or a closed one before any was written."""
    return GlobalControl.from_bson(document["Fleet"][0]) if document["Fleet"] else GlobalControl()


def _trail(document: Mapping[str, Any]) -> ReceiptTrail:
    retired = document["Retirement"]
    return ReceiptTrail(
        receipts=tuple(Receipt.from_bson(receipt) for receipt in document["Receipts"]),
        retired_through=int(retired[0]["RetiredThroughSourceRevision"]) if retired else -1,
    )
