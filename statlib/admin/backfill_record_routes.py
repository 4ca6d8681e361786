"""Retention of data backfills' records; needs ``deployment-operator``, as everything about backfills does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statlib.admin import backfill_wire as wire
from statlib.admin.actions import once
from statlib.admin.asking import RequestId, TheBackfills, TheRequest
from statlib.admin.backfill_routes import OPERATORS
from statlib.admin.rules import Rules, System
from statlib.backfills.audit import BackfillRecords
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.retention import prune

rules = Rules(System.BACKFILLS)


@rules.route(
    "POST",
    "/api/admin/backfill-records/retention",
    needs=OPERATORS,
    answers=wire.Pruned,
    refuses=(BackfillReason.ClaimTooShort,),
)
def post_backfill_retention(
    asked: wire.RetentionRequest, at: TheRequest, backfills: TheBackfills, request_id: RequestId
) -> Mapping[str, Any]:
    """Remove a bounded number of backfills' records that are older than their retention."""
    action = at.action(f"records:{asked.records.value}", request_id, asked)  # no stable id has a colon
    return once(BackfillRecords(backfills.postgres), action, lambda: prune(backfills.postgres, asked.records, action))
