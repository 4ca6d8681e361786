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
from statlib.statistics.documents import GlobalControl, ProjectControl, Quarantined, Receipt
from statlib.statistics.envelopes import Envelope, Opening
from statlib.statistics.pending import FOLD_SEQUENCE, PendingSet, pending_of
from statlib.statistics.reasons import OperateReason, SaveReason
from statlib.statistics.trail import Key, Trail, trail_of


@dataclass(frozen=True, slots=True)
class Loaded:
    """One moment of a source document and of what governs it. ``read_at`` is monotonic seconds, for the deadline;
    ``now`` the server's time. ``trail`` is None where it was not looked up."""

    source: Document
    fleet: GlobalControl
    control: ProjectControl | None
    context: Document
    trail: Trail | None
    now: datetime
    read_at: float

    @property
    def version(self) -> int:
        return int(self.source["Audit"]["Version"])

    @property
    def fold_sequence(self) -> int:
        """How often the document was folded."""
        return int(self.source.get(FOLD_SEQUENCE, 0))

    @property
    def pending(self) -> PendingSet:
        return pending_of(self.source)

    @property
    def opening(self) -> Opening:
        return Opening(self.fleet.mode_epoch, self.control.opening_count if self.control else None)


def load(mongo: Mongo, catalogue: AnyCatalogue, project: UUID, aggregate: UUID) -> Loaded:
    """Read a source document and what governs it. Refuses SourceNotFound, ProjectNotFound."""
    return _load(mongo, catalogue, project, aggregate, ())


def load_again(mongo: Mongo, catalogue: AnyCatalogue, envelope: Envelope) -> Loaded:
    """``load``, with the trail of the envelope's streams: for retries and redeliveries."""
    streams = queries.Streams(envelope.namespace, (envelope.stream, *envelope.siblings))
    return load_with_trail(mongo, catalogue, envelope.project, envelope.aggregate, streams)


def load_with_trail(
    mongo: Mongo, catalogue: AnyCatalogue, project: UUID, aggregate: UUID, streams: queries.Streams
) -> Loaded:
    """``load``, with the trail of these streams. The document is read first: what leaves it meanwhile is met after."""
    return _load(mongo, catalogue, project, aggregate, queries.with_trail(project, aggregate, streams))


def further_trail(
    mongo: Mongo, catalogue: AnyCatalogue, envelope: Envelope, pending: PendingSet, keys: Sequence[Key]
) -> Trail:
    """The trail of operations that only the write names, beyond those of its envelope. ``pending`` was read before."""
    pipeline = queries.trail_of_operations(envelope.project, envelope.aggregate, keys)
    found = list(mongo.collection(catalogue.source_collection).aggregate(pipeline))
    return _trail(found[0], pending) if found else trail_of(pending)


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
    source = document["Source"]
    return Loaded(
        source=source,
        fleet=fleet_of(document),
        control=ProjectControl.from_bson(document["Control"][0]) if document["Control"] else None,
        context=document["Context"][0],
        trail=_trail(document, pending_of(source)) if further else None,
        now=document["Now"],
        read_at=read_at,
    )


def fleet_of(document: Mapping[str, Any]) -> GlobalControl:
    """The fleet's control, or a closed one before any was written."""
    return GlobalControl.from_bson(document["Fleet"][0]) if document["Fleet"] else GlobalControl()


def _trail(document: Mapping[str, Any], pending: PendingSet) -> Trail:
    return trail_of(
        pending,
        [Receipt.from_bson(receipt) for receipt in document["Receipts"]],
        [Quarantined.from_bson(one) for one in document["Quarantine"]],
        document["Retirement"],
    )
