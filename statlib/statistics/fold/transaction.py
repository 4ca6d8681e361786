"""One batch of pending sets carried over, all of it or nothing.

Invariants: the transaction proves its lease by writing it. Documents are written last of all, because whoever saves one
of them waits for this transaction once it has touched it. A set leaves its document in the very transaction that leaves
a receipt or a quarantine record of each of its operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from pymongo import UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from statlib.kernel.refusals import Refusal
from statlib.mongo.leases import Lease, fence
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import transact
from statlib.statistics.bounds import FOLD_LEASE_TTL_S
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.derivation import Consumer
from statlib.statistics.documents import CONTROL, FOLD_QUARANTINE, RECEIPT, Receipt
from statlib.statistics.effects import Contribution, Operation, Planned, record_effects
from statlib.statistics.fold import batch, disabling
from statlib.statistics.fold.batch import Selection, Taken
from statlib.statistics.fold.dispositions import Consumed, Dispositions, dispose
from statlib.statistics.fold.evidence import known_of
from statlib.statistics.fold.quarantine import Caps, Intake, held, take_in
from statlib.statistics.hosts import Host
from statlib.statistics.moves import StaleCause
from statlib.statistics.pending import FOLD_SEQUENCE, PENDING, Poison
from statlib.statistics.state import ProjectState, require_state
from statlib.statistics.unit import Overtaken, Unit

_WRITE_CONFLICT = 112


@dataclass(frozen=True, slots=True)
class Fold:
    """On what, and by whose right, a batch is folded. ``lease`` is the project's fold lease; every commit renews it."""

    host: Host
    catalogue: AnyCatalogue
    project: UUID
    lease: Lease
    lease_ttl_s: float = FOLD_LEASE_TTL_S
    caps: Caps = field(default_factory=Caps)


class End(StrEnum):
    """How a batch ended. Whatever it was, entries are either carried over for good, or pending as before."""

    FOLDED = "Folded"
    NOTHING_DUE = "NothingDue"
    FOREIGN = "Foreign"  # the project's stored versions are not those of this release: its entries are left alone
    ABORTED = "Aborted"
    LEASE_LOST = "LeaseLost"


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch did. ``documents`` that it took; ``lags_s`` from each consumed entry's save to the
    commit; ``held_up`` says that writing them is what aborted it;
    ``disabled`` that fold mode ended with it."""

    end: End
    documents: tuple[UUID, ...] = ()
    lags_s: tuple[float, ...] = ()
    discarded: Mapping[str, StaleCause] = field(default_factory=dict)
    quarantined: tuple[Poison, ...] = ()
    held_up: bool = False
    disabled: bool = False
    incomplete: bool = False

    @property
    def entries(self) -> int:
        return len(self.lags_s)


def fold_batch(fold: Fold, selection: Selection) -> Batch:
    """Try once. Raises PyMongoError where the server cannot be reached."""
    attempt = _Attempt(fold, selection)
    try:
        done = transact(fold.host.mongo, attempt.body, reruns_max=0)
    except Overtaken:
        return attempt.aborted(held_up=attempt.at_documents)
    except Refusal as refusal:
        if refusal.reason is MongoReason.LeaseLost:
            return attempt.ended(End.LEASE_LOST)
        if refusal.reason is MongoReason.Contended:
            conflict = isinstance(error := refusal.__cause__, OperationFailure) and error.code == _WRITE_CONFLICT
            return attempt.aborted(held_up=conflict and attempt.at_documents)
        if refusal.reason is MongoReason.CommitOutcomeUnknown:
            return attempt.aborted(held_up=False)  # the next batch reads what became of it
        raise
    took_s = fold.host.mongo.clock.monotonic() - attempt.read_at
    return replace(done, lags_s=tuple(lag + took_s for lag in done.lags_s))


@dataclass
class _Attempt:
    fold: Fold
    selection: Selection
    documents: tuple[UUID, ...] = ()
    at_documents: bool = False
    read_at: float = 0.0

    def ended(self, end: End) -> Batch:
        return Batch(end, self.documents)

    def aborted(self, *, held_up: bool) -> Batch:
        return Batch(End.ABORTED, self.documents, held_up=held_up)

    def body(self, session: ClientSession) -> Batch:
        fold, mongo = self.fold, self.fold.host.mongo
        fence(mongo, session, fold.lease, ttl_s=fold.lease_ttl_s)
        self.read_at = mongo.clock.monotonic()
        state = require_state(mongo, fold.catalogue, session, fold.project, tuple(fold.catalogue.families))
        if not state.versions_match:
            return self.ended(End.FOREIGN)
        unit = Unit(mongo, session, state)
        taken = batch.read(mongo, fold.catalogue, session, self.selection)
        if not taken:
            return Batch(End.NOTHING_DUE, disabled=disabling.finalise(unit, fold.catalogue))
        self.documents = tuple(one.aggregate for one in taken)
        return self._carry(unit, taken)

    def _carry(self, unit: Unit, taken: Sequence[Taken]) -> Batch:
        fold, state = self.fold, unit.state
        at = Consumer.of(fold.catalogue, state.context, state.fleet.reviewer_tracking_epoch)
        decided = dispose(taken, known_of(unit.mongo, unit.session, fold.project, taken), at)
        intake = self._intake(unit, decided)
        staled = dict(decided.staled)
        if intake.disables:
            staled = dict.fromkeys(fold.catalogue.folding, StaleCause.QUARANTINE_FULL) | staled
        plans = record_effects(unit, fold.host, fold.catalogue, _contributions(decided.consumed), staled)
        unit.insert(RECEIPT, [_receipt(one, state).to_bson() for one in decided.consumed])
        unit.insert(FOLD_QUARANTINE, [record.to_bson() for record in intake.records])
        set_control(unit, intake.control_fields(state.control, state.now))
        self.at_documents = True
        self._remove(unit, taken)
        return Batch(
            End.FOLDED,
            self.documents,
            lags_s=tuple((state.now - one.entry.created_at_utc).total_seconds() for one in decided.consumed),
            discarded=_discarded(plans),
            quarantined=tuple(one.reason for one in decided.aside),
            incomplete=intake.incomplete,
        )

    def _intake(self, unit: Unit, decided: Dispositions) -> Intake:
        if not decided.aside:
            return Intake()
        caps = self.fold.caps
        already = held(unit.mongo, unit.session, self.fold.project, caps)
        return take_in(decided.aside, already, unit.control, unit.state.now, caps)

    def _remove(self, unit: Unit, taken: Iterable[Taken]) -> None:
        removals = [
            UpdateOne(
                {"_id": one.aggregate, "ProjectId": self.fold.project, "Audit.Version": one.version},
                {"$unset": {PENDING: ""}, "$inc": {"Audit.Version": 1, FOLD_SEQUENCE: 1}},
            )
            for one in taken
        ]
        documents = unit.mongo.collection(self.fold.catalogue.source_collection)
        if documents.bulk_write(removals, session=unit.session).matched_count != len(removals):
            raise Overtaken


def set_control(unit: Unit, fields: Mapping[str, Any]) -> None:
    """Further fields of the control, in a transaction that has advanced its clocks, and so compared it, already."""
    if fields:
        unit.mongo.collection(CONTROL).update_one(
            {"_id": unit.control.id}, {"$set": dict(fields)}, session=unit.session
        )


def _contributions(consumed: Iterable[Consumed]) -> list[Contribution]:
    return [
        Contribution(Operation(one.entry.operation_namespace, one.entry.operation_id), one.effects) for one in consumed
    ]


def _receipt(one: Consumed, state: ProjectState) -> Receipt:
    entry = one.entry
    return Receipt(
        project_id=state.control.id,
        operation_namespace=entry.operation_namespace,
        operation_id=entry.operation_id,
        expected_source_revision=entry.expected_source_revision,
        committed_source_before_revision=entry.source_revision_before,
        committed_source_after_revision=entry.source_revision_after,
        source_digest=entry.submission_digest,
        source_aggregate_id=one.aggregate,
        has_trusted_source_identity=True,
        created_at_utc=entry.created_at_utc,
        observed_at_utc=state.now,
    )


def _discarded(plans: Mapping[str, Planned]) -> dict[str, StaleCause]:
    return {f: cause for f, planned in plans.items() if (cause := planned.moves.stale_family) is not None}
