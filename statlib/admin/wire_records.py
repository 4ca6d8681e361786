"""What travels of audit, operations, retention and of why a bundle is not served. JSON names are camelCase."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from bson import ObjectId
from bson.errors import InvalidId

from statlib.admin.reasons import AdminReason
from statlib.admin.wire import Request, Wire, require_storable
from statlib.kernel.refusals import Refusal
from statlib.passes.audit import Outcome
from statlib.passes.operations import OperationUnderWay
from statlib.passes.retention import Records
from statlib.passes.trail import Place, Placed
from statlib.statistics.why import Gate as StatisticsGate
from statlib.statistics.why import Why as StatisticsWhy


class Gate(Wire):
    """``closed`` counts the scopes behind it, ``scopes`` names the first of them; ``detail`` says what closes it."""

    gate: str
    family: str | None
    passed: bool
    closed: int
    scopes: tuple[str, ...]
    kind: str
    remedy: str
    detail: str | None = None

    @classmethod
    def of(cls, gate: StatisticsGate) -> Self:
        return cls(
            gate=gate.reason.name,
            family=gate.family,
            passed=gate.passed,
            closed=gate.closed,
            scopes=gate.scopes,
            kind=gate.reason.kind.value,
            remedy=gate.reason.remedy,
            detail=gate.detail,
        )


class Why(Wire):
    """``served``: from storage. ``reason``: the gate that a read would name otherwise."""

    project: UUID
    served: bool
    reason: str | None
    remedy: str | None
    families: tuple[str, ...]
    scopes: int
    gates: tuple[Gate, ...]

    @classmethod
    def of(cls, why: StatisticsWhy) -> Self:
        return cls(
            project=why.project,
            served=why.reason is None,
            reason=why.reason.name if why.reason else None,
            remedy=why.reason.remedy if why.reason else None,
            families=why.families,
            scopes=why.scopes,
            gates=tuple(Gate.of(gate) for gate in why.gates),
        )


class AuditEntry(Wire):
    """One control attempt. ``after`` holds the resulting state, or what a refusal found."""

    id: str
    principal: str
    authority: str
    action: str
    target: str
    request_id: str
    run_id: str
    payload: dict[str, Any]
    outcome: Outcome
    reason: str | None
    before: dict[str, Any]
    after: dict[str, Any]
    generation: int | None
    observed_at_utc: datetime

    @classmethod
    def of(cls, placed: Placed) -> Self:
        record = placed.record
        return cls(
            id=str(placed.place.id),
            principal=record.principal,
            authority=record.authority,
            action=record.action,
            target=record.target,
            request_id=record.request_id,
            run_id=record.run_id,
            payload=record.payload,
            outcome=record.outcome,
            reason=record.reason,
            before=record.before,
            after=record.after,
            generation=record.generation,
            observed_at_utc=record.observed_at_utc,
        )


class AuditPage(Wire):
    """Newest first. ``next`` is what to send as ``after`` for the following page; None at the end."""

    entries: tuple[AuditEntry, ...]
    next: str | None

    @classmethod
    def of(cls, page: Sequence[Placed], limit: int) -> Self:
        last = page[-1].place if len(page) == limit else None
        return cls(
            entries=tuple(AuditEntry.of(placed) for placed in page),
            next=f"{last.at.isoformat()}|{last.id}" if last else None,
        )


def parse_place(cursor: str) -> Place:
    """The place that an ``AuditPage`` named. Refuses RequestInvalid."""
    at, _, identity = cursor.partition("|")
    try:
        return Place(require_storable(datetime.fromisoformat(at)), ObjectId(identity))
    except (ValueError, InvalidId) as error:
        raise Refusal(AdminReason.RequestInvalid, "after: not a cursor of this route") from error


class Operation(Wire):
    """A long operation that is being carried out."""

    action: str
    principal: str
    target: str
    request_id: str
    run_id: str
    started_at_utc: datetime
    cancel_requested_at_utc: datetime | None

    @classmethod
    def of(cls, found: OperationUnderWay) -> Self:
        return cls(
            action=found.action,
            principal=found.id.principal,
            target=found.id.target,
            request_id=found.id.request_id,
            run_id=found.run_id,
            started_at_utc=found.started_at_utc,
            cancel_requested_at_utc=found.cancel_requested_at_utc,
        )


class CancelRequest(Request):
    """Nothing to say: the path names the request."""


class Cancelled(Wire):
    """``asked``: operations that were told to stop. ``ended``: whether they had stopped when this was answered."""

    request_id: str
    asked: int
    ended: bool = False


class RetentionRequest(Request):
    records: Records


class Pruned(Wire):
    """``more``: the pass reached its cap, so another one may find more."""

    records: Records
    removed: int
    more: bool
    before: datetime
