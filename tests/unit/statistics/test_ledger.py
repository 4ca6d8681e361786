"""What a ledger still takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from statlib.statistics.documents import ProjectControl
from statlib.statistics.ledger import LedgerBounds, headroom, is_full, rows_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def control(rows: int, committed: int, floor: int = 0) -> ProjectControl:
    return ProjectControl(
        id=uuid4(), ledger_rows=rows, committed_projection_revision=committed, replay_floor_revision=floor
    )


@pytest.mark.parametrize(
    ("stored", "rows"),
    [(control(0, 0), 0), (control(70, 10), 70), (control(0, 10), 10), (control(3, 110, 100), 10)],
    ids=["new", "counted", "written uncounted", "partly counted"],
)
def test_a_revision_has_one_row_at_least_and_those_counted_all_count(stored: ProjectControl, rows: int) -> None:
    assert rows_of(stored) == rows


@pytest.mark.parametrize(("rows", "left"), [(0, 40), (39, 1), (40, 0), (41, 0)])
def test_it_is_full_at_its_cap(rows: int, left: int) -> None:
    bounds = LedgerBounds(rows_max=40)
    assert headroom(control(rows, 0), bounds) == left
    assert is_full(control(rows, 0), NOW, NOW, bounds) == (left == 0)


@pytest.mark.parametrize(
    ("oldest", "full"),
    [(None, False), (NOW - 90 * DAY + timedelta(seconds=1), False), (NOW - 90 * DAY, True), (NOW - 91 * DAY, True)],
)
def test_it_is_full_once_its_oldest_row_is_ninety_days_old(oldest: datetime | None, full: bool) -> None:
    assert is_full(control(1, 1), oldest, NOW, LedgerBounds()) == full
