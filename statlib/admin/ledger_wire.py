"""What travels over the boundary about the ledger. JSON names are camelCase."""

from __future__ import annotations

from typing import Self
from uuid import UUID

from statlib.admin.wire import Request, Wire
from statlib.statistics.ledger_maintenance import Compacted


class LedgerRequest(Request):
    """Nothing but the project is asked."""


class LedgerPass(Wire):
    """``outcome``: Compacted or NoEligibleCompleteRevision; ``safeWatermark``: the last revision that a pass could
    take, were it old enough."""

    project: UUID
    outcome: str
    deleted: int
    replay_floor_revision: int
    safe_watermark: int

    @classmethod
    def of(cls, done: Compacted) -> Self:
        return cls(
            project=done.project,
            outcome=done.outcome,
            deleted=done.deleted,
            replay_floor_revision=done.replay_floor_revision,
            safe_watermark=done.safe_watermark,
        )
