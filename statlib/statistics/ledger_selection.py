"""Which rows of the ledger one pass may compact: pure, from the page that it has read.

Whole revisions only, in order, without a gap: selection ends before whatever it cannot take, and skips nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from statlib.statistics.bounds import LEDGER_PASS_ROWS_MAX


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One row as a page has it: its stored id, its revision, and when it was observed."""

    id: Any
    revision: int
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class Selected:
    """Rows of complete revisions, at least one."""

    rows: tuple[LedgerRow, ...]

    @property
    def first_revision(self) -> int:
        return self.rows[0].revision

    @property
    def last_revision(self) -> int:
        return self.rows[-1].revision

    @property
    def observed_from(self) -> datetime:
        """The earliest, wherever it stands: clocks of servers that took over may differ."""
        return min(row.observed_at for row in self.rows)

    @property
    def observed_to(self) -> datetime:
        return max(row.observed_at for row in self.rows)


def select(
    page: Sequence[LedgerRow],
    *,
    floor: int,
    watermark: int,
    older_than: datetime,
    rows_max: int = LEDGER_PASS_ROWS_MAX,
) -> Selected | None:
    """The longest run of complete revisions above ``floor`` that fits a pass; None: not even the first does.

    ``page``: the first ``rows_max + 1`` rows above the floor in order, or all of them where there are fewer. Ends at a
    missing revision, at one with a row that is not older than ``older_than``, above ``watermark``, and before a
    revision that would not fit whole: one that the page may have cut has its extra row, so it is such a one.
    """
    taken: list[LedgerRow] = []
    for expected, (revision, group) in enumerate(groupby(page, key=lambda row: row.revision), start=floor + 1):
        siblings = list(group)
        eligible = (
            revision == expected
            and revision <= watermark
            and len(taken) + len(siblings) <= rows_max
            and all(row.observed_at < older_than for row in siblings)
        )
        if not eligible:
            break
        taken += siblings
    return Selected(tuple(taken)) if taken else None


def identity_floor(current: datetime | None, selected: Selected, remaining: Iterable[datetime]) -> datetime:
    """The newest compacted observation, but below every observation that remains; and never earlier than it was.

    In whole milliseconds, as stored. ``remaining``: of all rows above the new replay floor.
    """
    below = [observed - timedelta(milliseconds=1) for observed in remaining]
    moved = min([selected.observed_to, *below])
    return moved if current is None else max(current, moved)
