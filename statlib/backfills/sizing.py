"""How large the next batch is: pure arithmetic over what the last one took. Every decision is stored for operators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from statlib.backfills.definitions import BatchBound, RetryPolicy

GROWTH_MAX = 1.5  # a batch grows by half at most, so that one quick batch does not lead to a slow one
CALM = 0.2  # within a fifth of the target nothing is changed


class Decision(StrEnum):
    """What the worker did about its pace."""

    KEEP = "keep"
    GROW = "grow"
    SHRINK = "shrink"  # the last batch took longer than the target
    SPLIT = "split"  # a statement or lock ran into its bound
    YIELD = "yield"  # the foreground needs the database


@dataclass(frozen=True, slots=True)
class Pace:
    """The size of the next batch, and why."""

    rows: int
    decision: Decision
    because: str


def first_size(bound: BatchBound) -> int:
    """The declared bound: if that is too much, the first batches show it."""
    return bound.rows_max


def after_batch(bound: BatchBound, rows: int, duration_s: float) -> Pace:
    """Steer the next transaction to ``target_s``, inside of the declared bound."""
    told = f"{rows:,} rows took {duration_s * 1000:,.0f} ms, target {bound.target_s * 1000:,.0f} ms"
    factor = bound.target_s / max(duration_s, 0.001)
    wanted = _within(bound, math.floor(rows * min(factor, GROWTH_MAX)))
    if abs(factor - 1) <= CALM or wanted == rows:
        return Pace(_within(bound, rows), Decision.KEEP, told)
    return Pace(wanted, Decision.GROW if wanted > rows else Decision.SHRINK, told)


def after_timeout(bound: BatchBound, retry: RetryPolicy, rows: int) -> Pace:
    """Split so that the floor is reached before the tries are exhausted."""
    floor = min(bound.floor_rows, bound.rows_max)
    steps = max(1, retry.attempts_max - 1)
    divisor = max(2, math.ceil((bound.rows_max / floor) ** (1 / steps)))
    return Pace(_within(bound, rows // divisor), Decision.SPLIT, f"{rows:,} rows ran into a time limit")


def _within(bound: BatchBound, rows: int) -> int:
    return max(min(bound.floor_rows, bound.rows_max), min(bound.rows_max, rows))
