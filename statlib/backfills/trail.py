"""The audit trail of one stable id, read a page at a time, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from statlib.backfills.sql import statement
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import transact


def page(postgres: Postgres, stable_id: str, *, before: int | None, limit: int) -> Sequence[Mapping[str, Any]]:
    """At most ``limit`` records, strictly below the number ``before``."""
    asked = statement("audit_trail")
    values = {"stable_id": stable_id, "before_id": before, "limit": limit}
    return transact(postgres, lambda session: session.all(asked, **values), read_only=True)
