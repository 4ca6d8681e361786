"""When a worker looks at a ledger again, and how much it takes: from the write rate."""

from __future__ import annotations

import pytest

from statlib.statistics.bounds import (
    DELTA_LEDGER_ROWS_MAX,
    LEDGER_LOOK_MAX_S,
    LEDGER_LOOK_MIN_S,
    LEDGER_LOOKS_TO_FULL,
    LEDGER_PASS_ROWS_MAX,
    LEDGER_PASSES_MAX,
    LEDGER_PASSES_MIN,
)
from statlib.workers.ledger_cadence import Seen, cadence

FULL = DELTA_LEDGER_ROWS_MAX


def test_the_first_look_knows_no_rate_and_is_followed_by_another_soon() -> None:
    assert cadence(None, Seen(0, 1_000, 1_000), FULL).next_look_s == LEDGER_LOOK_MIN_S


def test_a_ledger_that_did_not_grow_is_looked_at_seldom() -> None:
    assert cadence(Seen(0, 1_000, 1_000), Seen(60, 1_000, 1_000), FULL).next_look_s == LEDGER_LOOK_MAX_S


def test_the_period_shrinks_as_the_rate_grows_and_the_room_does() -> None:
    def period(rows: int, rate: int) -> float:
        return cadence(Seen(0, rows - 60 * rate, 0), Seen(60, rows, 60 * rate), FULL).next_look_s

    assert period(10_000, 1) > period(10_000, 10) > period(10_000, 50)
    assert period(10_000, 10) > period(60_000, 10)


@pytest.mark.parametrize("rate", [0.1, 1, 28, 100, 500])
def test_a_growing_ledger_is_looked_at_well_before_it_is_full(rate: float) -> None:
    """Nothing is old enough to be taken meanwhile."""
    before, rows, at_s, looks = Seen(0, 0, 0), 0.0, 0.0, 0
    period = LEDGER_LOOK_MIN_S
    while rows < FULL / 2:
        at_s, rows, looks = at_s + period, rows + rate * period, looks + 1
        now = Seen(at_s, int(rows), int(rows))
        period = cadence(before, now, FULL).next_look_s
        before = now
    assert rows < FULL
    assert period * rate < FULL - rows
    assert looks > 1


def test_rows_that_another_worker_took_still_tell_of_the_rate() -> None:
    taken_by_another = cadence(Seen(0, 30_000, 30_000), Seen(60, 24_000, 36_000), FULL)
    alone = cadence(Seen(0, 18_000, 30_000), Seen(60, 24_000, 36_000), FULL)
    assert taken_by_another == alone
    assert taken_by_another.next_look_s < LEDGER_LOOK_MAX_S


def test_a_look_takes_twice_what_came_in() -> None:
    grown = 100 * LEDGER_PASS_ROWS_MAX
    assert cadence(Seen(0, 0, 0), Seen(60, grown, grown), FULL).passes == 200


@pytest.mark.parametrize(
    ("before", "now", "passes"),
    [
        (Seen(0, 0, 0), Seen(60, 0, 0), 0),
        (Seen(0, 10, 10), Seen(60, 11, 11), LEDGER_PASSES_MIN),
        (None, Seen(0, 10, 10), LEDGER_PASSES_MIN),
        (Seen(0, 0, 0), Seen(60, FULL // 2, FULL // 2), LEDGER_PASSES_MAX),
        (Seen(0, FULL // 2, 0), Seen(60, FULL // 2, 0), LEDGER_PASSES_MIN),
        (Seen(0, FULL // 2 + 1, 0), Seen(60, FULL // 2 + 1, 0), LEDGER_PASSES_MAX),
        (Seen(0, FULL, 0), Seen(60, FULL, 0), LEDGER_PASSES_MAX),
    ],
    ids=["empty", "slow", "first", "fast", "half full", "past half", "full"],
)
def test_passes_are_bounded_and_all_of_them_from_half_full_on(before: Seen | None, now: Seen, passes: int) -> None:
    assert cadence(before, now, FULL).passes == passes


def test_a_full_ledger_is_looked_at_at_the_shortest_period() -> None:
    assert cadence(Seen(0, FULL - 1, 0), Seen(60, FULL, 1), FULL).next_look_s == LEDGER_LOOK_MIN_S


def test_a_look_is_at_a_sixteenth_of_the_time_to_full() -> None:
    rows = 20_000
    found = cadence(Seen(0, rows - 600, 0), Seen(60, rows, 600), FULL)
    assert found.next_look_s == pytest.approx((FULL - rows) / 10 / LEDGER_LOOKS_TO_FULL)
