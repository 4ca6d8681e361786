"""The slope and its interval against numbers worked out elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.slope import fit, t_quantile
from statlib.kernel.refusals import Refusal


def test_an_exact_line_has_no_uncertainty() -> None:
    slope = fit([(x, 7 + 3 * x) for x in range(10)])
    assert (slope.value, slope.lower, slope.upper) == pytest.approx((3, 3, 3))


def test_the_interval_is_the_textbook_s() -> None:
    """Anscombe's first set: slope 0.5001, standard error 0.1179, nine degrees of freedom."""
    x = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    slope = fit(list(zip(x, y, strict=True)))
    assert slope.value == pytest.approx(0.5001, abs=1e-4)
    assert slope.upper - slope.value == pytest.approx(2.262 * 0.1179, abs=2e-4)
    assert slope.value - slope.lower == pytest.approx(slope.upper - slope.value)


@given(
    slope=st.floats(-1e4, 1e4),
    start=st.floats(-1e6, 1e6),
    noise=st.lists(st.floats(-10, 10), min_size=4, max_size=20),
)
def test_the_bounds_enclose_the_estimate(slope: float, start: float, noise: list[float]) -> None:
    found = fit([(x, start + slope * x + e) for x, e in enumerate(noise)])
    assert found.lower <= found.value <= found.upper
    assert found.value == pytest.approx(slope, abs=25)


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (2, 4.303), (30, 2.042), (31, 2.0395), (60, 2.0003), (1000, 1.9623)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, value: float) -> None:
    assert t_quantile(freedom) == pytest.approx(value, abs=2e-4)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_samples_are_refused(count: int) -> None:
    with pytest.raises(Refusal) as refused:
        fit([(x, x) for x in range(count)])
    assert refused.value.reason is EvidenceReason.TooFewSamples


def test_a_count_that_never_moved_measures_nothing() -> None:
    with pytest.raises(Refusal) as refused:
        fit([(5, y) for y in range(10)])
    assert refused.value.reason is EvidenceReason.NothingMeasured
