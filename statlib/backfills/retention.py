"""Retention of backfills' audit and remembered requests: explicit, bounded, audited, and never a loop.

One pass removes at most ``RETENTION_PASS_MAX`` records older than the settings keep them, in one transaction with its
own audit record. The runtime role cannot delete them otherwise: a function of the schema does, which spares the last
day and the record that a backfill's row names.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from statlib.backfills.audit import record, remember
from statlib.backfills.bounds import RETENTION_PASS_MAX
from statlib.backfills.sql import statement
from statlib.passes.actions import Action, Outcome
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import Session, transact


class Kept(StrEnum):
    """What a pass prunes."""

    AUDIT = "audit"
    REQUESTS = "requests"


def prune(postgres: Postgres, records: Kept, action: Action) -> Mapping[str, Any]:
    """One pass: ``removed`` records older than ``before``; ``more``: another pass may find more.

    A crash leaves the pass whole or nothing of it.
    """
    admin = postgres.settings.admin
    kept_s = admin.audit_retention_s if records is Kept.AUDIT else admin.request_retention_s
    pruning = statement("prune", postgres.clock)

    def body(session: Session) -> Mapping[str, Any]:
        found = session.required(pruning, records=records, kept_s=kept_s, cap=RETENTION_PASS_MAX)
        pruned = {
            "records": records.value,
            "removed": found["removed"],
            "more": found["more"],
            "before": found["before"].isoformat(),
        }
        record(session, postgres.clock, action, Outcome.ACCEPTED, before={}, after=pruned)
        remember(session, postgres.clock, action, pruned)
        return pruned

    return transact(postgres, body)
