"""The revision ledger's room: what a project's ledger may hold, and when it takes no more.

Invariant: a project's ledger holds every revision above its replay floor and none at or below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from statlib.statistics.bounds import DELTA_LEDGER_AGE_MAX_S, DELTA_LEDGER_ROWS_MAX
from statlib.statistics.documents import ProjectControl


@dataclass(frozen=True, slots=True)
class LedgerBounds:
    """Rows that one project's ledger takes, and the age in seconds to which its oldest may grow."""

    rows_max: int = DELTA_LEDGER_ROWS_MAX
    age_max_s: float = DELTA_LEDGER_AGE_MAX_S


def rows_of(control: ProjectControl) -> int:
    """Rows of the ledger, from the control alone.

    Rows are counted since the control knows how; a revision has one at least, so those that an earlier release wrote
    uncounted are not missed altogether.
    """
    return max(control.ledger_rows, control.committed_projection_revision - control.replay_floor_revision)


def headroom(control: ProjectControl, bounds: LedgerBounds) -> int:
    """Rows that it still takes."""
    return max(0, bounds.rows_max - rows_of(control))


def is_full(control: ProjectControl, oldest: datetime | None, now: datetime, bounds: LedgerBounds) -> bool:
    """Whether nothing may be added. ``oldest``: when its first row was observed, None where there is none."""
    aged = oldest is not None and (now - oldest).total_seconds() >= bounds.age_max_s
    return aged or headroom(control, bounds) == 0
