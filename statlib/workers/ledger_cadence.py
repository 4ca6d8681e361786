"""How often a worker looks at a project's ledger, and how much it compacts then: pure, from two looks.

The faster a ledger grows and the fuller it is, the sooner the next look: one that grew on at the same rate would be
looked at ``LEDGER_LOOKS_TO_FULL`` times before it were full. A look takes twice what came in since the one before, so
that a backlog goes without holding up saves; from half full on it takes all it may.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from statlib.statistics.bounds import (
    LEDGER_LOOK_MAX_S,
    LEDGER_LOOK_MIN_S,
    LEDGER_LOOKS_TO_FULL,
    LEDGER_PASS_ROWS_MAX,
    LEDGER_PASSES_MAX,
    LEDGER_PASSES_MIN,
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A ledger at one look, by the monotonic clock. ``rows`` that it had, or was left with; ``revision``: the
    committed one, which tells of rows that another worker has taken away meanwhile."""

    at_s: float
    rows: int
    revision: int


@dataclass(frozen=True, slots=True)
class Cadence:
    """Passes that this look may make, and seconds until the next look."""

    passes: int
    next_look_s: float


def cadence(before: Seen | None, now: Seen, rows_max: int) -> Cadence:
    """``before``: the ledger as the last look left it; None at the first look, which cannot know a rate."""
    headroom = max(0, rows_max - now.rows)
    grown = 0 if before is None else max(0, now.rows - before.rows, now.revision - before.revision)
    passes = LEDGER_PASSES_MAX if headroom * 2 < rows_max else _twice(grown)
    return Cadence(passes if now.rows else 0, _next_look_s(before, now, grown, headroom))


def _twice(grown: int) -> int:
    return min(LEDGER_PASSES_MAX, max(LEDGER_PASSES_MIN, 2 * math.ceil(grown / LEDGER_PASS_ROWS_MAX)))


def _next_look_s(before: Seen | None, now: Seen, grown: int, headroom: int) -> float:
    if before is None:
        return LEDGER_LOOK_MIN_S
    if not grown:
        return LEDGER_LOOK_MAX_S
    full_in_s = headroom * (now.at_s - before.at_s) / grown
    return min(LEDGER_LOOK_MAX_S, max(LEDGER_LOOK_MIN_S, full_in_s / LEDGER_LOOKS_TO_FULL))
