"""The transactional arm: a save and everything that statistics keep of it commit together, or not at all.

One transaction holds the guarded source write, a receipt per operation, the moved and staled rows with their guards,
the ledger entries, the clocks and the outbox slots. Whatever else depends on the same state (publication, openings,
fences) writes one of these documents too, so the server makes one of any two rivals start over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError

from statlib.statistics import queries
from statlib.statistics.catalogue import AnyCatalogue, Document
from statlib.statistics.documents import RECEIPT, Receipt
from statlib.statistics.effects import Operation, Operations, record_change
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Cause, Committed, SourceChange
from statlib.statistics.state import read_state
from statlib.statistics.unit import Overtaken, Unit


class Preempted(Overtaken):
    """A further operation of this submission has been done by itself since: under this envelope nothing can be saved
    any more, however often it is tried."""


@dataclass
class Progress:
    """Which document the transaction was at: names the cause when it is aborted."""

    cause: Cause = Cause.STATISTICS


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one submission: the source as it was loaded, and what is to become of it. ``rebased``: others have
    written it since it was opened, and the attempt may stand on that only under the opening that was met."""

    envelope: Envelope
    change: SourceChange
    source: Document
    digest: str
    rebased: bool

    @property
    def before_revision(self) -> int:
        return int(self.source["Audit"]["Version"])


def commit(
    host: Host, catalogue: AnyCatalogue, session: ClientSession, attempt: Attempt, progress: Progress
) -> Committed:
    """The body of the transaction. Raises Overtaken where a rival got there first."""
    envelope = attempt.envelope
    state = read_state(host.mongo, catalogue, session, envelope.project, tuple(catalogue.families))
    if state is None:
        raise Overtaken
    if attempt.rebased and state.opening != envelope.opening:
        raise Overtaken  # this rebase was decided under an opening that has ended since

    unit = Unit(host.mongo, session, state)
    write = attempt.change.apply(attempt.source, state.context_document, envelope)
    operations = Operations(Operation(envelope.namespace, envelope.operation_id), write.further)
    after = {**attempt.source, **write.fields}
    record_change(unit, host, catalogue, operations, before=attempt.source, after=after)
    progress.cause = Cause.SOURCE
    _write_source(unit, catalogue, attempt, write.fields)
    progress.cause = Cause.STATISTICS
    leave_receipts(unit, _receipts(attempt, operations, state.now))
    return Committed(revision_after=attempt.before_revision + 1, further=write.further, leaves_receipt=True)


def _write_source(unit: Unit, catalogue: AnyCatalogue, attempt: Attempt, fields: Mapping[str, Any]) -> None:
    written = unit.mongo.collection(catalogue.source_collection).update_one(
        queries.source_guard(attempt.envelope, attempt.before_revision),
        queries.source_update(fields, unit.mongo.clock.mongo_now()),
        session=unit.session,
    )
    if written.matched_count != 1:
        raise Overtaken


def leave_receipts(unit: Unit, receipts: list[Receipt]) -> None:
    """The first is of the submission itself, the others of its further operations. Raises Overtaken, or Preempted."""
    try:
        unit.insert(RECEIPT, [receipt.to_bson() for receipt in receipts])
    except Overtaken as overtaken:
        if isinstance(error := overtaken.__cause__, BulkWriteError) and error.details["writeErrors"][0]["index"] > 0:
            raise Preempted from overtaken
        raise


def _receipts(attempt: Attempt, operations: Operations, observed_at: datetime) -> list[Receipt]:
    """One per operation of every committed save, whether it moved anything or not: what a repeat is recognised by."""
    envelope, at = attempt.envelope, attempt.before_revision
    return [
        Receipt(
            project_id=envelope.project,
            operation_namespace=operation.namespace,
            operation_id=operation.operation_id,
            expected_source_revision=envelope.expected,
            committed_source_before_revision=at,
            committed_source_after_revision=at + 1,
            source_digest=attempt.digest,
            source_aggregate_id=envelope.aggregate,
            has_trusted_source_identity=True,
            created_at_utc=envelope.created_at,
            observed_at_utc=observed_at,
        )
        for operation in operations.all
    ]
