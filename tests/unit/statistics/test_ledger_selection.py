"""Which rows of a ledger a pass takes: whole revisions, in order, old enough, and nothing past what it cannot take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from statlib.statistics.ledger_selection import LedgerRow, Selected, identity_floor, select

NOW = datetime(2026, 3, 1, tzinfo=UTC)
OLD, YOUNG = NOW - timedelta(hours=2), NOW
MS = timedelta(milliseconds=1)
CAP = 4


def page(*revisions: int, young: tuple[int, ...] = ()) -> list[LedgerRow]:
    """One row for each mention of a revision; ``young``: places of rows that are too young."""
    return [LedgerRow(n, r, YOUNG if n in young else OLD) for n, r in enumerate(revisions)]


def taken(rows: list[LedgerRow], *, floor: int = 0, watermark: int = 100) -> list[int]:
    found = select(rows, floor=floor, watermark=watermark, older_than=NOW - timedelta(hours=1), rows_max=CAP)
    return [] if found is None else [row.revision for row in found.rows]


@pytest.mark.req("DELTA-20", "DELTA-21", "DELTA-23", "DELTA-26")
@pytest.mark.parametrize(
    ("rows", "revisions"),
    [
        (page(), []),
        (page(1, 2, 3), [1, 2, 3]),
        (page(1, 2, 3, 4), [1, 2, 3, 4]),
        (page(1, 2, 3, 4, 5), [1, 2, 3, 4]),
        (page(1, 2, 3, 3, 3), [1, 2]),
        (page(1, 1, 2, 2, 3), [1, 1, 2, 2]),
        (page(1, 1, 1, 1, 1), []),
        (page(1, 1, 1, 1, 2), [1, 1, 1, 1]),
        (page(1, 1, 1, 1), [1, 1, 1, 1]),
        (page(1, 3, 4), [1]),
        (page(2, 3), []),
        (page(1, 2, 3, young=(1,)), [1]),
        (page(1, 2, 2, 3, young=(2,)), [1]),
        (page(1, 2, 3, young=(0,)), []),
    ],
    ids=[
        "empty",
        "all",
        "a whole page",
        "one more follows",
        "the page cuts the last",
        "the next begins at the edge",
        "too large",
        "as large as a pass",
        "as large and the last",
        "a gap",
        "a gap at the floor",
        "a young one",
        "a young sibling",
        "all after a young one",
    ],
)
def test_selection_ends_before_what_it_cannot_take_whole(rows: list[LedgerRow], revisions: list[int]) -> None:
    assert taken(rows) == revisions


def test_selection_goes_on_from_the_floor_and_ends_at_the_watermark() -> None:
    assert taken(page(8, 9, 10), floor=7, watermark=9) == [8, 9]


def test_a_row_exactly_as_old_as_the_window_stays() -> None:
    edge = NOW - timedelta(hours=1)
    at_edge, before = LedgerRow(0, 1, edge), LedgerRow(0, 1, edge - MS)
    assert select([at_edge], floor=0, watermark=9, older_than=edge) is None
    assert select([before], floor=0, watermark=9, older_than=edge) is not None


@pytest.mark.req("DELTA-22")
def test_the_bounds_of_a_range_are_its_earliest_and_latest_whatever_their_order() -> None:
    at = [OLD, OLD - 5 * MS, OLD + 7 * MS, OLD]
    found = Selected(tuple(LedgerRow(n, n + 1, when) for n, when in enumerate(at)))
    assert (found.first_revision, found.last_revision) == (1, 4)
    assert (found.observed_from, found.observed_to) == (OLD - 5 * MS, OLD + 7 * MS)


@pytest.mark.req("DELTA-28")
@pytest.mark.parametrize(
    ("current", "remaining", "expected"),
    [
        (None, [], OLD),
        (None, [NOW], OLD),
        (None, [NOW, OLD], OLD - MS),
        (None, [OLD - 9 * MS, NOW], OLD - 10 * MS),
        (OLD - 20 * MS, [OLD - 9 * MS], OLD - 10 * MS),
        (OLD + MS, [], OLD + MS),
    ],
    ids=["nothing left", "younger left", "as old left", "older left", "it moves on", "it never goes back"],
)
def test_the_identity_floor_stays_below_whatever_is_left(
    current: datetime | None, remaining: list[datetime], expected: datetime
) -> None:
    assert identity_floor(current, Selected(tuple(page(1))), remaining) == expected
