"""What travels of data backfills. A field that is None is not known, and is shown as such: never as nought or done."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from statlib.admin.wire import Request, Wire
from statlib.backfills.retention import Kept

Position = tuple[Any, ...]


class ControlRequest(Request):
    """``generation``: act only if that is still the current one."""

    generation: Annotated[int, Field(ge=0, lt=2**63)] | None = None


class ValidateRequest(Request):
    pass


class Moved(Wire):
    """The state that a control left, or found."""

    stable_id: str
    lifecycle: str
    generation: int
    bound: Position | None
    checkpoint: Position | None
    claimed: bool | None
    attempts: int | None
    next_eligible_at_utc: datetime | None
    failure_kind: str | None
    diagnostic: str | None


class Backfill(Moved):
    """One row, and what this service makes of it. ``known``: it has the definition; ``gating``: it waits for it."""

    metadata: dict[str, Any]
    known: bool
    required: bool
    gating: bool
    eligible: bool
    claim_owner: str | None
    claim_expires_at_utc: datetime | None
    diagnosed_at_utc: datetime | None
    batch_rows: int | None
    pace: dict[str, Any] | None
    batches: int
    rows_selected: int
    rows_changed: int
    rows_total: int | None
    execution_ms: int
    validation_ms: int
    validated_through: Position | None
    validation_outcome: str | None
    validation_diagnostic: str | None
    validation_at_utc: datetime | None
    explicit_disposition: str | None
    explicit_outcome: str | None
    explicit_diagnostic: str | None
    explicit_lifecycle: str | None
    explicit_request_id: str | None
    explicit_at_utc: datetime | None
    registered_at_utc: datetime
    started_at_utc: datetime | None
    advanced_at_utc: datetime | None
    changed_at_utc: datetime
    completed_at_utc: datetime | None
    observed_at_utc: datetime
    audit_id: int | None


class Validation(Wire):
    """``outcome``: success, failure or current-state, and nothing else."""

    outcome: str
    disposition: str
    lifecycle: str
    generation: int
    reason: str
    diagnostic: str | None
    request_id: str


class Preview(Wire):
    """What a start would meet. ``rows_estimated`` is the planner's guess; the sample shows keys and lengths only."""

    stable_id: str
    source: str
    rows_estimated: int | None
    bytes_total: int | None
    index: str | None
    waiting_locks: int
    sample_rows: int
    sample_changed: int
    plan: tuple[str, ...]
    prerequisite_met: bool


class Control(Wire):
    """One control attempt, as the audit has it."""

    audit_id: int
    principal: str
    authority: str
    action: str
    stable_id: str
    request_id: str
    run_id: str
    outcome: str
    reason: str | None
    before: dict[str, Any]
    after: dict[str, Any]
    generation: int | None
    observed_at: datetime


class ControlPage(Wire):
    entries: tuple[Control, ...]
    next: int | None


class RetentionRequest(Request):
    records: Kept


class Pruned(Wire):
    """``more``: the pass reached its cap, so another one may find more."""

    records: Kept
    removed: int
    more: bool
    before: datetime
