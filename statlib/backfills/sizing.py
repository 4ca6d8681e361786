"""How large the next batch is: pure arithmetic over what the last one took. Every decision is stored for operators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from statlib.backfills.definitions import BatchBound, RetryPolicy

GROWTH_MAX = 1.5  # a batch grows by half at most, so that one quick batch does not lead to a slow one
COURTEOUS_PART = 50  # below this part of the declared rows a transaction itself weighs more than what it repairs
COURTEOUS_REST_S_MAX = 1.0  # also after a batch that took too long
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
    """The size of the next batch, and why; ``rest_s`` before it."""

    rows: int
    decision: Decision
    because: str
    rest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Courtesy:
    """How a worker goes on beside a foreground: transactions of ``batch_s``, and at work for ``share`` of the time."""

    batch_s: float
    share: float
    because: str

    def rest_s(self, worked_s: float) -> float:
        return min(COURTEOUS_REST_S_MAX, worked_s * (1 / self.share - 1))


def first_size(bound: BatchBound) -> int:
    """The declared bound: if that is too much, the first batches show it."""
    return bound.rows_max


def after_batch(bound: BatchBound, rows: int, duration_s: float, courtesy: Courtesy | None = None) -> Pace:
    """Steer the next transaction to ``target_s``, or to a courteous one, inside of the declared bound."""
    target_s = min(bound.target_s, courtesy.batch_s) if courtesy else bound.target_s
    rest_s = courtesy.rest_s(duration_s) if courtesy else 0.0
    told = f"{rows:,} rows took {duration_s * 1000:,.0f} ms, target {target_s * 1000:,.0f} ms"
    told += f"; rests {rest_s * 1000:,.0f} ms, since {courtesy.because}" if courtesy else ""
    factor = target_s / max(duration_s, 0.001)
    wanted = _within(bound, math.floor(rows * min(factor, GROWTH_MAX)))
    if courtesy and wanted < rows:
        wanted = min(rows, max(wanted, bound.rows_max // COURTEOUS_PART))
    if abs(factor - 1) <= CALM or wanted == rows:
        return Pace(_within(bound, rows), Decision.KEEP, told, rest_s)
    return Pace(wanted, Decision.GROW if wanted > rows else Decision.SHRINK, told, rest_s)


def proof_rows(bound: BatchBound, rows: int, duration_s: float, courtesy: Courtesy | None) -> int:
    """How many rows the next step of a validation reads: the declared number, fewer to be courteous."""
    if courtesy is None:
        return bound.validation_rows_max
    factor = min(courtesy.batch_s / max(duration_s, 0.001), GROWTH_MAX)
    floor = min(bound.floor_rows, bound.validation_rows_max)
    return max(floor, min(bound.validation_rows_max, math.floor(rows * factor)))


def after_timeout(bound: BatchBound, retry: RetryPolicy, rows: int) -> Pace:
    """Split so that the floor is reached before the tries are exhausted."""
    floor = min(bound.floor_rows, bound.rows_max)
    steps = max(1, retry.attempts_max - 1)
    divisor = max(2, math.ceil((bound.rows_max / floor) ** (1 / steps)))
    return Pace(_within(bound, rows // divisor), Decision.SPLIT, f"{rows:,} rows ran into a time limit")


def _within(bound: BatchBound, rows: int) -> int:
    return max(min(bound.floor_rows, bound.rows_max), min(bound.rows_max, rows))
