"""How large the next batch is, and when a worker rests: inside of what is declared, whatever it measures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.backfills.definitions import BatchBound, RetryPolicy
from statlib.backfills.sizing import (
    COURTEOUS_PART,
    COURTEOUS_REST_S_MAX,
    GROWTH_MAX,
    Courtesy,
    Decision,
    after_batch,
    after_timeout,
    first_size,
    proof_rows,
)

BOUND = BatchBound(rows_max=1_000, target_s=0.1, floor_rows=10, validation_rows_max=5_000)
COURTESY = Courtesy(batch_s=0.01, share=0.2, because="foregroundSessions is 4, at most 0")
SECONDS = st.floats(0, 100, allow_nan=False)


@pytest.mark.parametrize(
    ("rows", "seconds", "decision", "wanted"),
    [
        (400, 0.1, Decision.KEEP, 400),
        (400, 0.2, Decision.SHRINK, 200),
        (400, 0.01, Decision.GROW, 600),
        (900, 0.01, Decision.GROW, 1_000),
        (1_000, 0.01, Decision.KEEP, 1_000),
        (10, 50.0, Decision.KEEP, 10),
    ],
)
def test_a_batch_is_steered_to_its_target(rows: int, seconds: float, decision: Decision, wanted: int) -> None:
    pace = after_batch(BOUND, rows, seconds)
    assert (pace.decision, pace.rows, pace.rest_s) == (decision, wanted, 0.0)


@pytest.mark.req("BF-EXEC-17")
@given(st.integers(1, 1_000), SECONDS, st.sampled_from([None, COURTESY]))
def test_no_measurement_leads_out_of_the_declared_bound(rows: int, seconds: float, courtesy: Courtesy | None) -> None:
    pace = after_batch(BOUND, rows, seconds, courtesy)
    assert BOUND.floor_rows <= pace.rows <= BOUND.rows_max
    assert pace.rows <= max(BOUND.floor_rows, rows * GROWTH_MAX)
    assert 1 <= proof_rows(BOUND, rows, seconds, courtesy) <= BOUND.validation_rows_max
    assert first_size(BOUND) <= BOUND.rows_max


def test_a_courteous_batch_is_shorter_and_followed_by_a_rest_that_says_why() -> None:
    pace = after_batch(BOUND, 400, 0.1, COURTESY)
    assert pace.decision is Decision.SHRINK
    assert pace.rows == pytest.approx(40, abs=1)
    assert pace.rest_s == pytest.approx(0.4), "a fifth of the time is work"
    assert "foregroundSessions is 4" in pace.because
    assert after_batch(BOUND, 400, 50.0, COURTESY).rows == BOUND.rows_max // COURTEOUS_PART, "a stall is no measure"
    assert COURTESY.rest_s(3_600) == COURTEOUS_REST_S_MAX


def test_a_validation_reads_what_is_declared_and_fewer_rows_to_be_courteous() -> None:
    assert proof_rows(BOUND, 40, 9.0, None) == 5_000
    assert proof_rows(BOUND, 5_000, 0.1, COURTESY) == pytest.approx(500, abs=1)
    assert proof_rows(BOUND, 500, 0.005, COURTESY) == 750


@pytest.mark.parametrize("attempts_max", [2, 3, 6, 50])
def test_splitting_reaches_the_floor_before_the_tries_are_exhausted(attempts_max: int) -> None:
    rows = BOUND.rows_max
    for _ in range(attempts_max - 1):
        pace = after_timeout(BOUND, RetryPolicy(attempts_max=attempts_max), rows)
        assert pace.decision is Decision.SPLIT
        rows = pace.rows
    assert rows == BOUND.floor_rows
