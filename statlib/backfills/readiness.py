"""Whether backfills let a service be ready: a function of PostgreSQL and of the configuration, and of nothing else.

In manual mode they never gate. In automatic mode every required id gates until it is completed, also one whose row is
missing or cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from statlib.backfills.lifecycle import Lifecycle
from statlib.backfills.registry import Registry
from statlib.backfills.sql import statement
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import transact


@dataclass(frozen=True, slots=True)
class Readiness:
    """``gating``: the lifecycle of every required id that is not completed; None where there is no row."""

    automatic: bool
    gating: Mapping[str, str | None]

    @property
    def ready(self) -> bool:
        return not self.gating


def readiness(postgres: Postgres, registry: Registry) -> Readiness:
    """The gate as it is now. Raises what reading raises: whoever asks then is not ready."""
    if not postgres.settings.backfills.automatic:
        return Readiness(False, {})
    asked = statement("readiness")
    rows = transact(postgres, lambda session: session.all(asked, required=registry.required), read_only=True)
    found = {row["stable_id"]: str(row["lifecycle"]) for row in rows}
    gating = {one: found.get(one) for one in registry.required if found.get(one) != Lifecycle.COMPLETED}
    return Readiness(True, gating)
