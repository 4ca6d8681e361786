"""The routes that every system shares: the audit trail, operations under way, retention, and the contract itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pymongo.client_session import ClientSession

from statlib.admin import wire_records as wire
from statlib.admin.actions import in_one_transaction
from statlib.admin.asking import PathRequestId, RequestId, TheRequest, plain
from statlib.admin.principals import Capability
from statlib.admin.reasons import AdminReason
from statlib.admin.routes import ADMINISTRATORS, PREFIX, READERS
from statlib.admin.rules import Rules, canonical_openapi
from statlib.admin.wire import Instant
from statlib.kernel.refusals import Refusal
from statlib.mongo.transactions import transact
from statlib.passes.audit import Outcome, accept, server_time
from statlib.passes.bounds import AUDIT_PAGE_MAX
from statlib.passes.operations import request_cancel, under_way
from statlib.passes.retention import prune
from statlib.passes.trail import Wanted, audit_page

rules = Rules()
_Text = Annotated[str | None, Query(min_length=1, max_length=128)]


@rules.route("GET", f"{PREFIX}/audit", needs=(Capability.AUDITOR,), answers=wire.AuditPage)
def get_audit(  # noqa: PLR0917 - FastAPI injects each by its name
    at: TheRequest,
    since: Instant | None = None,
    until: Instant | None = None,
    target: _Text = None,
    principal: _Text = None,
    run: _Text = None,
    request: _Text = None,
    outcome: Outcome | None = None,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=AUDIT_PAGE_MAX)] = AUDIT_PAGE_MAX,
) -> wire.AuditPage:
    """Control attempts, newest first, a page at a time; with ``run``, those of one run of a runbook."""
    wanted = Wanted(since, until, target, principal, run, request, outcome)
    resumed = wire.parse_place(after) if after is not None else None
    return wire.AuditPage.of(audit_page(at.mongo, wanted, after=resumed, limit=limit), limit)


@rules.route("GET", f"{PREFIX}/operations", needs=READERS, answers=list[wire.Operation])
def get_operations(at: TheRequest) -> list[wire.Operation]:
    """Long operations under way, newest first."""
    return [wire.Operation.of(found) for found in under_way(at.mongo)]


@rules.route(
    "POST",
    f"{PREFIX}/operations/{{request_id}}/cancel",
    needs=READERS,
    answers=wire.Cancelled,
    refuses=(AdminReason.OperationUnknown,),
)
def post_cancel(
    request_id: PathRequestId, at: TheRequest, own_id: RequestId, asked: wire.CancelRequest | None = None
) -> Mapping[str, Any]:
    """Tell the long operations under a request id to stop between two steps, and wait a little until they have.

    An auditor stops only what they began themselves, such as a comparison.
    """
    action = at.action(request_id, own_id, asked or wire.CancelRequest())
    everyones = Capability.APPLICATION_ADMINISTRATOR in at.principal.capabilities
    whose = None if everyones else at.principal.name

    def operation() -> Mapping[str, Any]:
        now = server_time(at.mongo)

        def body(session: ClientSession) -> Mapping[str, Any]:
            count = request_cancel(at.mongo, session, request_id, of=whose)
            if count == 0:
                raise Refusal(AdminReason.OperationUnknown, request_id)
            after = plain(wire.Cancelled(request_id=request_id, asked=count))
            accept(at.mongo, session, action, before={}, after=after, now=now)
            return after

        outcome = transact(at.mongo, body)
        at.operations.cancel(request_id, of=whose)  # in this process at once; others notice when they renew
        return outcome

    outcome = in_one_transaction(at.mongo, action, operation)
    return {**outcome, "ended": at.operations.wait_until_ended(request_id, at.connection)}


@rules.route("POST", f"{PREFIX}/retention", needs=ADMINISTRATORS, answers=wire.Pruned)
def post_retention(asked: wire.RetentionRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """Remove a bounded number of records that are older than their retention."""
    action = at.action(asked.records, request_id, asked)
    return in_one_transaction(at.mongo, action, lambda: prune(at.mongo, asked.records, action).as_outcome())


@rules.route("GET", "/openapi.json", needs=tuple(Capability), answers=dict[str, Any])
def get_contract(at: TheRequest, request: Request) -> Response:
    """This contract."""
    del at
    return Response(canonical_openapi(request.app), media_type="application/json")
