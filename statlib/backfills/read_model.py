"""What operators see of a backfill, derived from PostgreSQL at each read. What is not known stays None.

A position is shown as the key's values; progress is what was selected and committed, never an estimate of a total that
nobody counted. Diagnostics are those of the row: bounded and without rows' contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from statlib.backfills.bounds import LISTED_MAX
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.registry import Registry
from statlib.backfills.sql import statement
from statlib.kernel.refusals import Refusal
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import transact


def list_backfills(postgres: Postgres, registry: Registry) -> list[dict[str, Any]]:
    """Every row, in the order of their ids."""
    reading = statement("read", postgres.clock)
    rows = transact(postgres, lambda session: session.all(reading, stable_id=None, limit=LISTED_MAX), read_only=True)
    return [detail_of(row, postgres, registry) for row in rows]


def show_backfill(postgres: Postgres, registry: Registry, stable_id: str) -> dict[str, Any]:
    """One row. Refuses BackfillUnknown."""
    reading = statement("read", postgres.clock)
    row = transact(postgres, lambda session: session.one(reading, stable_id=stable_id, limit=1), read_only=True)
    if row is None:
        raise Refusal(BackfillReason.BackfillUnknown, stable_id[:80])
    return detail_of(row, postgres, registry)


def state_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The state that controls answer with and that the audit keeps: JSON values only."""
    return {
        "stableId": row["stable_id"],
        "lifecycle": row["lifecycle"],
        "generation": row["generation"],
        "bound": row["bound"],
        "checkpoint": row["checkpoint"],
        "claimed": row["claimed"],
        "attempts": row["attempts"],
        "nextEligibleAtUtc": _time(row["next_eligible_at"]),
        "failureKind": row["failure_kind"],
        "diagnostic": row["diagnostic"],
    }


def detail_of(row: Mapping[str, Any], postgres: Postgres, registry: Registry) -> dict[str, Any]:
    """``known``: this process has the definition; ``gating``: the row takes part in this process's readiness."""
    stable_id = row["stable_id"]
    required = stable_id in registry.required
    return state_of(row) | {
        "metadata": row["metadata"],
        "known": stable_id in registry.ids,
        "required": required,
        "gating": required and postgres.settings.backfills.automatic,
        "eligible": row["eligible"],
        "claimOwner": row["claim_owner"] if row["claimed"] else None,
        "claimExpiresAtUtc": _time(row["claim_expires_at"]) if row["claimed"] else None,
        "diagnosedAtUtc": _time(row["diagnosed_at"]),
        "batchRows": row["batch_rows"],
        "pace": row["pace"],
        "batches": row["batches"],
        "rowsSelected": row["rows_selected"],
        "rowsChanged": row["rows_changed"],
        "rowsTotal": None,  # nobody counted them
        "executionMs": row["execution_ms"],
        "validationMs": row["validation_ms"],
        "validatedThrough": row["validated"],
        "validationOutcome": row["validation_outcome"],
        "validationDiagnostic": row["validation_diagnostic"],
        "validationAtUtc": _time(row["validation_at"]),
        "explicitDisposition": row["explicit_disposition"],
        "explicitOutcome": row["explicit_outcome"],
        "explicitDiagnostic": row["explicit_diagnostic"],
        "explicitLifecycle": row["explicit_lifecycle"],
        "explicitRequestId": row["explicit_request_id"],
        "explicitAtUtc": _time(row["explicit_at"]),
        "registeredAtUtc": _time(row["registered_at"]),
        "startedAtUtc": _time(row["started_at"]),
        "advancedAtUtc": _time(row["advanced_at"]),
        "changedAtUtc": _time(row["changed_at"]),
        "completedAtUtc": _time(row["completed_at"]),
        "observedAtUtc": _time(row["observed_at"]),
        "auditId": row["audit_id"],
    }


def _time(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
