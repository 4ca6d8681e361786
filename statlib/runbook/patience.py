"""Waiting for the server to allow what it does not allow yet, in sight of whoever waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from statlib.admin import wire
from statlib.admin.client import AdminClient
from statlib.kernel.refusals import Refusal
from statlib.runbook.fragments import Progress
from statlib.runbook.live import Live
from statlib.statistics.reasons import OperateReason

T = TypeVar("T")
POLL_S = 1.0


def backfill_when_allowed(
    client: AdminClient, project: UUID, family: str, *, request_id: str, force: bool = False
) -> wire.Backfill:
    """Backfill, waiting out the grace of an opening: the server alone knows when that was, so it is asked each time.

    Raises every other refusal as it comes. Interrupting the wait leaves nothing behind.
    """
    return _when_allowed(lambda: client.backfill(project, family, force=force, request_id=request_id))


def backfill_together_when_allowed(
    client: AdminClient, project: UUID, families: Sequence[str], *, request_id: str, force: bool = False
) -> wire.Backfills:
    """As ``backfill_when_allowed``, for several families that are counted in one walk."""
    return _when_allowed(lambda: client.backfill_together(project, families, force=force, request_id=request_id))


def _when_allowed(ask: Callable[[], T]) -> T:
    first_s: float | None = None
    with Live() as live:
        while True:
            try:
                return ask()
            except Refusal as refusal:
                if refusal.reason is not OperateReason.WriterGracePending:
                    raise
                left_s = float(refusal.state["leftSeconds"])
                first_s = first_s or left_s
                waiting = "the grace of an opening"
                live.show(Progress("Waiting", first_s - left_s, first_s, "s", remaining_s=left_s, waiting_for=waiting))
                time.sleep(min(POLL_S, max(left_s, 0.05)))
