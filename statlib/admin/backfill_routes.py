"""The routes of data backfills: reads, the five actions, and nothing else. Each needs ``deployment-operator``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Path, Query

from statlib.admin import backfill_wire as wire
from statlib.admin.actions import once
from statlib.admin.asking import RequestId, TheBackfills, TheRequest
from statlib.admin.principals import Capability
from statlib.admin.rules import Rules, System
from statlib.backfills import trail
from statlib.backfills.audit import BackfillRecords
from statlib.backfills.controls import control
from statlib.backfills.explicit import validate
from statlib.backfills.lifecycle import Operator
from statlib.backfills.preview import preview
from statlib.backfills.read_model import list_backfills, show_backfill
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.service import Backfills
from statlib.kernel.cancellation import CancelReason, cancellable_by

PREFIX = "/api/admin/backfills"
OPERATORS = (Capability.DEPLOYMENT_OPERATOR,)
AUDIT_PAGE_MAX = 200
_CONTROL_REFUSES = (
    BackfillReason.BackfillUnknown,
    BackfillReason.BackfillConflict,
    BackfillReason.GenerationConflict,
    BackfillReason.DefinitionUnknown,
    BackfillReason.StateUninterpretable,
    BackfillReason.ClaimTooShort,
)

rules = Rules(System.BACKFILLS)
StableId = Annotated[str, Path(min_length=1, max_length=63, pattern=r"^[a-z][a-z0-9-]*$")]
Audited = Annotated[str, Path(min_length=1, max_length=63, pattern=r"^[a-z][a-z0-9:-]*$")]  # records:… were pruned


@rules.route("GET", PREFIX, needs=OPERATORS, answers=list[wire.Backfill], refuses=(BackfillReason.ClaimTooShort,))
def get_backfills(at: TheRequest, backfills: TheBackfills) -> list[wire.Backfill]:
    """Every data backfill as PostgreSQL has it now."""
    del at
    return [wire.Backfill.model_validate(one) for one in list_backfills(backfills.postgres, backfills.registry)]


@rules.route(
    "GET",
    f"{PREFIX}/{{stable_id}}",
    needs=OPERATORS,
    answers=wire.Backfill,
    refuses=(BackfillReason.BackfillUnknown, BackfillReason.ClaimTooShort),
)
def get_backfill(stable_id: StableId, at: TheRequest, backfills: TheBackfills) -> wire.Backfill:
    """One data backfill, with its diagnostics."""
    del at
    return wire.Backfill.model_validate(show_backfill(backfills.postgres, backfills.registry, stable_id))


@rules.route(
    "GET",
    f"{PREFIX}/{{stable_id}}/audit",
    needs=OPERATORS,
    answers=wire.ControlPage,
    refuses=(BackfillReason.ClaimTooShort,),
)
def get_backfill_audit(
    stable_id: Audited,
    at: TheRequest,
    backfills: TheBackfills,
    before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    limit: Annotated[int, Query(ge=1, le=AUDIT_PAGE_MAX)] = AUDIT_PAGE_MAX,
) -> wire.ControlPage:
    """Control attempts, newest first; the next page begins below ``next``."""
    del at
    found = trail.page(backfills.postgres, stable_id, before=before, limit=limit)
    entries = tuple(wire.Control.model_validate(dict(one)) for one in found)
    return wire.ControlPage(entries=entries, next=entries[-1].audit_id if len(entries) == limit else None)


@rules.route(
    "GET",
    f"{PREFIX}/{{stable_id}}/preview",
    needs=OPERATORS,
    answers=wire.Preview,
    refuses=(BackfillReason.DefinitionUnknown, BackfillReason.BoundExceeded, BackfillReason.ClaimTooShort),
)
def get_backfill_preview(stable_id: StableId, at: TheRequest, backfills: TheBackfills) -> wire.Preview:
    """What a start would meet; measured, and rolled back."""
    del at
    found = preview(backfills.postgres, backfills.registry.get(stable_id))
    return wire.Preview.model_validate({name: getattr(found, name) for name in found.__dataclass_fields__})


@rules.route(
    "POST", f"{PREFIX}/{{stable_id}}/start", needs=OPERATORS, answers=wire.Moved, refuses=_CONTROL_REFUSES
)  # fmt: skip
def post_backfill_start(
    stable_id: StableId, asked: wire.ControlRequest, at: TheRequest, backfills: TheBackfills, request_id: RequestId
) -> Mapping[str, Any]:
    """From pending: capture the bound, once and for all, and let workers in."""
    return _control(Operator.START, stable_id, asked, at, backfills, request_id)


@rules.route(
    "POST", f"{PREFIX}/{{stable_id}}/pause", needs=OPERATORS, answers=wire.Moved, refuses=_CONTROL_REFUSES
)  # fmt: skip
def post_backfill_pause(
    stable_id: StableId, asked: wire.ControlRequest, at: TheRequest, backfills: TheBackfills, request_id: RequestId
) -> Mapping[str, Any]:
    """Interrupt safely: what is in flight commits before this, or not at all."""
    return _control(Operator.PAUSE, stable_id, asked, at, backfills, request_id)


@rules.route(
    "POST", f"{PREFIX}/{{stable_id}}/resume", needs=OPERATORS, answers=wire.Moved, refuses=_CONTROL_REFUSES
)  # fmt: skip
def post_backfill_resume(
    stable_id: StableId, asked: wire.ControlRequest, at: TheRequest, backfills: TheBackfills, request_id: RequestId
) -> Mapping[str, Any]:
    """From paused: to where work is left."""
    return _control(Operator.RESUME, stable_id, asked, at, backfills, request_id)


@rules.route(
    "POST", f"{PREFIX}/{{stable_id}}/retry", needs=OPERATORS, answers=wire.Moved, refuses=_CONTROL_REFUSES
)  # fmt: skip
def post_backfill_retry(
    stable_id: StableId, asked: wire.ControlRequest, at: TheRequest, backfills: TheBackfills, request_id: RequestId
) -> Mapping[str, Any]:
    """From blocked or failed: once more, at the same bound and checkpoint."""
    return _control(Operator.RETRY, stable_id, asked, at, backfills, request_id)


@rules.route(
    "POST",
    f"{PREFIX}/{{stable_id}}/validate",
    needs=OPERATORS,
    answers=wire.Validation,
    refuses=(
        BackfillReason.BackfillUnknown,
        BackfillReason.BackfillConflict,
        BackfillReason.ClaimTooShort,
        CancelReason.Cancelled,
    ),
    long=True,
)
def post_backfill_validate(
    stable_id: StableId, asked: wire.ValidateRequest, at: TheRequest, backfills: TheBackfills, request_id: RequestId
) -> Mapping[str, Any]:
    """Run the definition's proof now; exactly one typed outcome."""
    action = at.action(stable_id, request_id, asked)

    def operation() -> Mapping[str, Any]:
        with cancellable_by(at.connection):
            return validate(backfills.postgres, backfills.registry, action)

    return once(BackfillRecords(backfills.postgres), action, operation)


def _control(  # noqa: PLR0917 - what each of the four hands on
    operator: Operator,
    stable_id: str,
    asked: wire.ControlRequest,
    at: TheRequest,
    backfills: Backfills,
    request_id: str,
) -> Mapping[str, Any]:
    action = at.action(stable_id, request_id, asked)
    return once(
        BackfillRecords(backfills.postgres),
        action,
        lambda: control(backfills.postgres, backfills.registry, operator, action, generation=asked.generation),
    )
