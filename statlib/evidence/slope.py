"""Ordinary least squares of one variable, with a 95 % confidence interval for the slope.

Closed form, so that a verifier needs nothing but Python. The interval assumes independent residuals of equal
spread; sizes sampled one after the other are correlated, which makes it somewhat too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from statlib.evidence.reasons import EvidenceReason
from statlib.kernel.refusals import Refusal

SAMPLES_MIN = 4
CONFIDENCE = 0.95

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom (any printed table).
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slope:
    """Units of y per unit of x, with the bounds of its interval."""

    value: float
    lower: float
    upper: float


def fit(points: Sequence[tuple[float, float]]) -> Slope:
    """The slope through (x, y) points. Refuses TooFewSamples below 4 and NothingMeasured if x never moved."""
    count = len(points)
    if count < SAMPLES_MIN:
        raise Refusal(EvidenceReason.TooFewSamples, f"{count} of at least {SAMPLES_MIN} samples")
    mean_x = math.fsum(x for x, _ in points) / count
    mean_y = math.fsum(y for _, y in points) / count
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    if spread == 0:
        raise Refusal(EvidenceReason.NothingMeasured, "every sample was taken at the same count")
    value = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    squares = math.fsum((y - mean_y - value * (x - mean_x)) ** 2 for x, y in points)
    half = t_quantile(count - 2) * math.sqrt(squares / (count - 2) / spread)
    return Slope(value, value - half, value + half)


def t_quantile(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t; beyond the table by Cornish and Fisher's expansion (error < 1e-4)."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
