"""The routes of materialised statistics. Each is a few lines: who may, what is asked, which operation answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request

from statlib.admin import wire
from statlib.admin.actions import in_one_transaction, in_several_transactions
from statlib.admin.reasons import AdminReason
from statlib.admin.tokens import Capability, Principal, Tokens
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.passes.audit import Action, server_time
from statlib.statistics import storage
from statlib.statistics.backfill import backfill
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import Mode
from statlib.statistics.hosts import Host
from statlib.statistics.modes import set_fleet_mode, set_narrow_gate
from statlib.statistics.parity import compare
from statlib.statistics.rebuild import rebuild
from statlib.statistics.receipts import receipts_between
from statlib.statistics.status import project_status

PREFIX = "/api/admin/project-statistics"
RECEIPTS_PAGE_MAX = 1_000

router = APIRouter(prefix=PREFIX)


def principal(request: Request, authorization: Annotated[str | None, Header()] = None) -> Principal:
    """Who asks. Refuses Unauthenticated."""
    scheme, _, token = (authorization or "").partition(" ")
    tokens: Tokens = request.app.state.tokens
    found = tokens.principal(token.strip()) if scheme.lower() == "bearer" else None
    if found is None:
        raise Refusal(AdminReason.Unauthenticated)
    return found


def needs(*capabilities: Capability) -> Callable[[Principal], Principal]:
    """A dependency: the caller has one of these capabilities. Refuses Forbidden."""

    def check(who: Annotated[Principal, Depends(principal)]) -> Principal:
        if not who.capabilities.intersection(capabilities):
            raise Refusal(AdminReason.Forbidden, f"needs {' or '.join(capabilities)}")
        return who

    return check


_may_read = needs(Capability.AUDITOR, Capability.APPLICATION_ADMINISTRATOR)
_may_act = needs(Capability.APPLICATION_ADMINISTRATOR)
Reader = Annotated[Principal, Depends(_may_read)]
Administrator = Annotated[Principal, Depends(_may_act)]
RequestId = Annotated[str, Header(alias="X-Request-Id", min_length=8, max_length=128)]


def _host(request: Request) -> Host:
    host: Host = request.app.state.host
    return host


def _catalogue(request: Request) -> AnyCatalogue:
    catalogue: AnyCatalogue = request.app.state.catalogue
    return catalogue


TheHost = Annotated[Host, Depends(_host)]
TheCatalogue = Annotated[AnyCatalogue, Depends(_catalogue)]


def _action(who: Principal, name: str, target: object, request_id: str, asked: wire.Request) -> Action:
    return Action(
        principal=who.name,
        authority="token",
        action=name,
        target=str(target),
        request_id=request_id,
        payload=asked.model_dump(mode="json", by_alias=True),
    )


def _plain(answer: wire.Wire) -> Mapping[str, Any]:
    return answer.model_dump(mode="json", by_alias=True)


@router.put("/fleet-mode", response_model=wire.FleetMode)
def put_fleet_mode(
    asked: wire.FleetModeRequest, who: Administrator, host: TheHost, request_id: RequestId
) -> Mapping[str, Any]:
    """Open or close statistics for the whole fleet."""
    action = _action(who, "fleet-mode", "fleet", request_id, asked)
    mode = Mode.ENABLED if asked.enabled else Mode.DISABLED
    return in_one_transaction(
        host.mongo, action, lambda: _plain(wire.FleetMode.of(set_fleet_mode(host.mongo, mode, action)))
    )


@router.post("/{project}/narrow-gate", response_model=wire.NarrowGate)
def post_narrow_gate(  # noqa: PLR0917 - FastAPI injects each by its type
    project: UUID,
    asked: wire.NarrowGateRequest,
    who: Administrator,
    host: TheHost,
    catalogue: TheCatalogue,
    request_id: RequestId,
) -> Mapping[str, Any]:
    """Open or close statistics for one project. An opening is followed by a grace before anything is rebuilt."""
    action = _action(who, "narrow-gate", project, request_id, asked)

    def operation() -> Mapping[str, Any]:
        control = set_narrow_gate(host.mongo, catalogue, project, enabled=asked.enabled, action=action)
        return _plain(wire.NarrowGate.of(control))

    return in_one_transaction(host.mongo, action, operation)


@router.post("/{project}/backfill", response_model=wire.Backfill)
def post_backfill(  # noqa: PLR0917
    project: UUID,
    asked: wire.FamilyRequest,
    who: Administrator,
    host: TheHost,
    catalogue: TheCatalogue,
    request_id: RequestId,
) -> Mapping[str, Any]:
    """Publish what is not current of a family, and prove it served and exact."""
    action = _action(who, "backfill", project, request_id, asked)

    def operation() -> Mapping[str, Any]:
        return _plain(wire.Backfill.of(backfill(host, catalogue, project, asked.family, force=asked.force)))

    return in_several_transactions(host.mongo, action, operation)


@router.post("/{project}/rebuild", response_model=wire.Rebuild)
def post_rebuild(  # noqa: PLR0917
    project: UUID,
    asked: wire.FamilyRequest,
    who: Administrator,
    host: TheHost,
    catalogue: TheCatalogue,
    request_id: RequestId,
) -> Mapping[str, Any]:
    """One try at rebuilding a family; a save that overtakes it makes it lose, typed."""
    action = _action(who, "rebuild", project, request_id, asked)

    def operation() -> Mapping[str, Any]:
        return _plain(wire.Rebuild.of(rebuild(host, catalogue, project, asked.family, force=asked.force)))

    return in_several_transactions(host.mongo, action, operation)


@router.get("/{project}/status")
def get_status(project: UUID, _: Reader, host: TheHost, catalogue: TheCatalogue) -> wire.Status:
    """Modes, clocks, families with their closed gates, and live hosts."""
    return wire.Status.of(project_status(host, catalogue, project))


@router.get("/{project}/parity")
def get_parity(
    project: UUID, _: Reader, host: TheHost, catalogue: TheCatalogue, family: Annotated[list[str], Query()]
) -> list[wire.Parity]:
    """Stored against authoritative, each family in one snapshot."""
    return [wire.Parity.of(comparison) for comparison in compare(host, catalogue, project, family)]


@router.get("/{project}/receipts")
def get_receipts(  # noqa: PLR0917
    project: UUID,
    _: Reader,
    host: TheHost,
    since: datetime,
    until: datetime,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=RECEIPTS_PAGE_MAX)] = RECEIPTS_PAGE_MAX,
) -> wire.ReceiptPage:
    """Receipts observed in [since, until), a page at a time."""
    return wire.receipt_page(_receipts(host.mongo, project, since, until, after, limit), limit)


def _receipts(  # noqa: PLR0917
    mongo: Mongo, project: UUID, since: datetime, until: datetime, after: str | None, limit: int
) -> list[wire.ReceiptLine]:
    resumed = wire.parse_cursor(after) if after is not None else None
    found = receipts_between(mongo, project, since, until, after=resumed, limit=limit)
    return [wire.ReceiptLine.of(receipt) for receipt in found]


@router.get("/storage")
def get_storage(_: Reader, host: TheHost, catalogue: TheCatalogue) -> wire.Storage:
    """How large each collection is, the source's included."""
    collections = (*storage.COLLECTIONS, catalogue.source_collection)
    return wire.Storage(
        observed_at_utc=server_time(host.mongo),
        collections=tuple(wire.Size.of(size) for size in storage.sizes(host.mongo, collections)),
    )


@router.get("/time")
def get_time(_: Reader, host: TheHost) -> datetime:
    """The database's time: what windows and deadlines are stated in."""
    return server_time(host.mongo)
