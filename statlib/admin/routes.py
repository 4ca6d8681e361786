"""The routes of materialised statistics. Each is a few lines: who may, what is asked, which operation answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query

from statlib.admin import wire, wire_records
from statlib.admin.actions import in_one_transaction, in_several_transactions
from statlib.admin.asking import OptionalRequestId, RequestId, TheRequest, plain
from statlib.admin.principals import Capability
from statlib.admin.rules import Rules
from statlib.kernel.cancellation import cancellable_by
from statlib.mongo.reasons import MongoReason
from statlib.passes.audit import server_time
from statlib.passes.operations import OPERATION
from statlib.statistics import storage
from statlib.statistics.backfill import backfill, backfill_together
from statlib.statistics.documents import Mode
from statlib.statistics.modes import set_fleet_mode, set_narrow_gate
from statlib.statistics.parity import compare
from statlib.statistics.reasons import OperateReason, ServeReason
from statlib.statistics.rebuild import rebuild
from statlib.statistics.receipts import receipts_between
from statlib.statistics.status import project_status
from statlib.statistics.why import why

PREFIX = "/api/admin/project-statistics"
RECEIPTS_PAGE_MAX = 1_000

READERS = (Capability.AUDITOR, Capability.APPLICATION_ADMINISTRATOR)
ADMINISTRATORS = (Capability.APPLICATION_ADMINISTRATOR,)

_REBUILD_REFUSES = (
    OperateReason.ProjectNotFound,
    OperateReason.FamilyUnknown,
    OperateReason.ScopeUnknown,
    OperateReason.SettingsExclude,
    OperateReason.ControlMissing,
    OperateReason.GateClosed,
    OperateReason.WriterGracePending,
    OperateReason.PublicationRaceLost,
    ServeReason.VersionIncompatible,
    ServeReason.FenceActive,
    ServeReason.SourceVisibilityFenced,
)

rules = Rules()
Families = Annotated[list[wire.FamilyName], Query(min_length=1, max_length=wire.FAMILIES_ASKED_MAX)]
AnyFamilies = Annotated[list[wire.FamilyName], Query(max_length=wire.FAMILIES_ASKED_MAX)]


@rules.route("PUT", f"{PREFIX}/fleet-mode", needs=ADMINISTRATORS, answers=wire.FleetMode)
def put_fleet_mode(asked: wire.FleetModeRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """Open or close statistics for the whole fleet."""
    action = at.action("fleet", request_id, asked)
    mode = Mode.ENABLED if asked.enabled else Mode.DISABLED
    return in_one_transaction(
        at.mongo, action, lambda: plain(wire.FleetMode.of(set_fleet_mode(at.mongo, at.catalogue, mode, action)))
    )


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/narrow-gate",
    needs=ADMINISTRATORS,
    answers=wire.NarrowGate,
    refuses=(
        OperateReason.ProjectNotFound,
        OperateReason.ControlMissing,
        OperateReason.SettingsExclude,
        ServeReason.VersionIncompatible,
    ),
)
def post_narrow_gate(
    project: UUID, asked: wire.NarrowGateRequest, at: TheRequest, request_id: RequestId
) -> Mapping[str, Any]:
    """Open or close statistics for one project. An opening is followed by a grace before anything is rebuilt."""
    action = at.action(project, request_id, asked)

    def operation() -> Mapping[str, Any]:
        control = set_narrow_gate(at.mongo, at.catalogue, project, enabled=asked.enabled, action=action)
        return plain(wire.NarrowGate.of(control))

    return in_one_transaction(at.mongo, action, operation)


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/backfill",
    needs=ADMINISTRATORS,
    answers=wire.Backfill,
    refuses=(*_REBUILD_REFUSES, OperateReason.RebuildStarved, OperateReason.NotServedAfterwards),
    long=True,
)
def post_backfill(project: UUID, asked: wire.FamilyRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """Publish what is not current of a family, and prove it served and exact."""
    action = at.action(project, request_id, asked)

    def operation() -> Mapping[str, Any]:
        return plain(wire.Backfill.of(backfill(at.host, at.catalogue, project, asked.family, force=asked.force)))

    return in_several_transactions(at.mongo, at.operations, action, at.connection, operation)


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/backfill-families",
    needs=ADMINISTRATORS,
    answers=wire.Backfills,
    refuses=(*_REBUILD_REFUSES, OperateReason.RebuildStarved, OperateReason.NotServedAfterwards),
    long=True,
)
def post_backfill_families(
    project: UUID, asked: wire.FamiliesRequest, at: TheRequest, request_id: RequestId
) -> Mapping[str, Any]:
    """As ``backfill``, for several families, counted in one walk over the source; for all, if none is named."""
    action = at.action(project, request_id, asked)

    def operation() -> Mapping[str, Any]:
        families = asked.families or tuple(f for f in at.catalogue.families if f in at.host.families)
        done = backfill_together(at.host, at.catalogue, project, families, force=asked.force)
        return plain(wire.Backfills.of(done))

    return in_several_transactions(at.mongo, at.operations, action, at.connection, operation)


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/rebuild",
    needs=ADMINISTRATORS,
    answers=wire.Rebuild,
    refuses=_REBUILD_REFUSES,
    long=True,
)
def post_rebuild(project: UUID, asked: wire.FamilyRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """One try at rebuilding a family; a save that overtakes it makes it lose, typed."""
    action = at.action(project, request_id, asked)

    def operation() -> Mapping[str, Any]:
        return plain(wire.Rebuild.of(rebuild(at.host, at.catalogue, project, asked.family, force=asked.force)))

    return in_several_transactions(at.mongo, at.operations, action, at.connection, operation)


@rules.route(
    "GET",
    f"{PREFIX}/{{project}}/status",
    needs=READERS,
    answers=wire.Status,
    refuses=(OperateReason.ProjectNotFound,),
)
def get_status(project: UUID, at: TheRequest) -> wire.Status:
    """Modes, clocks, families with their closed gates, and live hosts."""
    return wire.Status.of(project_status(at.host, at.catalogue, project))


@rules.route(
    "GET",
    f"{PREFIX}/{{project}}/why",
    needs=READERS,
    answers=wire_records.Why,
    refuses=(OperateReason.ProjectNotFound, OperateReason.FamilyUnknown),
)
def get_why(project: UUID, at: TheRequest, family: AnyFamilies = []) -> wire_records.Why:  # noqa: B006 - never changed
    """Every gate between this project's pages and its stored statistics, in order, and what opens the closed ones."""
    return wire_records.Why.of(why(at.host, at.catalogue, project, family))


@rules.route(
    "GET",
    f"{PREFIX}/{{project}}/parity",
    needs=READERS,
    answers=list[wire.Parity],
    refuses=(OperateReason.ProjectNotFound, OperateReason.FamilyUnknown, MongoReason.Contended),
    long=True,
)
def get_parity(
    project: UUID, at: TheRequest, family: Families, request_id: OptionalRequestId = None
) -> list[wire.Parity]:
    """Stored against authoritative, each family in one snapshot. Under its request id it can be cancelled."""
    action = at.action(project, request_id, {"family": family})
    with at.operations.claimed(action, at.connection), cancellable_by(at.connection):
        return [wire.Parity.of(comparison) for comparison in compare(at.host, at.catalogue, project, family)]


@rules.route("GET", f"{PREFIX}/{{project}}/receipts", needs=READERS, answers=wire.ReceiptPage)
def get_receipts(  # noqa: PLR0917 - FastAPI injects each by its name
    project: UUID,
    at: TheRequest,
    since: wire.Instant,
    until: wire.Instant,
    after: Annotated[str | None, Query(max_length=400)] = None,
    limit: Annotated[int, Query(ge=1, le=RECEIPTS_PAGE_MAX)] = RECEIPTS_PAGE_MAX,
) -> wire.ReceiptPage:
    """Receipts observed in [since, until), a page at a time."""
    resumed = wire.parse_cursor(after) if after is not None else None
    found = receipts_between(at.mongo, project, since, until, after=resumed, limit=limit)
    return wire.receipt_page([wire.ReceiptLine.of(receipt) for receipt in found], limit)


@rules.route("GET", f"{PREFIX}/storage", needs=READERS, answers=wire.Storage)
def get_storage(at: TheRequest) -> wire.Storage:
    """How large each collection is, the source's included."""
    collections = (*storage.COLLECTIONS, OPERATION, at.catalogue.source_collection)
    return wire.Storage(
        observed_at_utc=server_time(at.mongo),
        collections=tuple(wire.Size.of(size) for size in storage.sizes(at.mongo, collections)),
    )


@rules.route("GET", f"{PREFIX}/time", needs=READERS, answers=datetime)
def get_time(at: TheRequest) -> datetime:
    """The database's time: what windows and deadlines are stated in."""
    return server_time(at.mongo)
