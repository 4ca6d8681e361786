"""The route of the ledger: one pass that compacts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from statlib.admin.actions import in_one_transaction
from statlib.admin.asking import RequestId, TheRequest, plain
from statlib.admin.ledger_wire import LedgerPass, LedgerRequest
from statlib.admin.routes import ADMINISTRATORS, PREFIX
from statlib.admin.rules import Rules
from statlib.statistics.ledger_maintenance import compact_ledger
from statlib.statistics.reasons import LedgerReason, OperateReason, ServeReason

rules = Rules()


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/delta-maintenance",
    needs=ADMINISTRATORS,
    answers=LedgerPass,
    refuses=(
        *LedgerReason,
        OperateReason.SettingsExclude,
        OperateReason.ProjectNotFound,
        OperateReason.ControlMissing,
        ServeReason.VersionIncompatible,
    ),
)
def post_delta_maintenance(
    project: UUID, asked: LedgerRequest, at: TheRequest, request_id: RequestId
) -> Mapping[str, Any]:
    """Compact the project's ledger by one pass: complete revisions older than the redelivery window."""
    action = at.action(project, request_id, asked)
    return in_one_transaction(
        at.mongo, action, lambda: plain(LedgerPass.of(compact_ledger(at.host, at.catalogue, project, action)))
    )
