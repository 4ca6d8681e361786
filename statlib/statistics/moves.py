"""What a family's rows and guard become by one change. Pure: reads nothing, decides everything.

Row evaluation precedes every move, since a move restamps the row. A move that cannot be made never fails the
save: the row, or the whole family, becomes unservable instead, and only a rebuild makes it servable again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from statlib.statistics.bounds import COUNTER_BYTES_MAX, COUNTER_KEYS_MAX
from statlib.statistics.catalogue import Effect
from statlib.statistics.counters import Counters, fit, plus
from statlib.statistics.documents import Guard, Row, State
from statlib.statistics.gates import Stamp, row_gate


class StaleCause(StrEnum):
    """Why a save, or the fold, stales a whole family instead of moving its rows."""

    INVALIDATED = "Invalidated"  # the change itself is one that the family does not follow move by move
    GATE_CLOSED = "GateClosed"
    FAMILY_DISABLED = "FamilyDisabled"
    FENCED = "Fenced"
    LEDGER_CAPACITY = "DeltaLedgerCapacityExceeded"
    NEGATIVE_COUNTER = "NegativeCounter"
    KEY_CAPACITY = "Capacity"  # of a row: its keys, or the bytes that they take
    KEY_OCCUPIED = "UnpublishedCandidate"  # where a placeholder would be
    CONTEXT_CHANGED = "ContextChanged"  # an entry was written under another context, or for other counters
    POISONED = "Poisoned"  # an entry went into quarantine
    OVERFLOWED = "Overflowed"  # a document's entries no longer fitted into it
    LIVELOCKED = "Livelocked"  # a document was written too often for a transaction to take its entries
    QUARANTINE_FULL = "QuarantineCapacity"  # fold mode disables itself


@dataclass(frozen=True, slots=True)
class FamilyMoves:
    """What to write for one family. ``new_counters`` per scope; ``placeholders`` for scopes without a visible row;
    ``stale_scopes`` whose rows are staled; or ``stale_family``, which makes the rest moot."""

    new_counters: Mapping[str, Counters] = field(default_factory=dict)
    placeholders: tuple[str, ...] = ()
    stale_scopes: tuple[str, ...] = ()
    stale_family: StaleCause | None = None

    @property
    def written(self) -> frozenset[str]:
        """Scopes whose row is moved, staled or put in place."""
        return frozenset({*self.new_counters, *self.placeholders, *self.stale_scopes})

    @property
    def writes_rows(self) -> bool:
        return bool(self.written)


NOTHING = FamilyMoves()


def plan(
    effect: Effect,
    guard: Guard | None,
    rows: Mapping[str, Row],
    stamp: Stamp,
    blocked: StaleCause | None,
    *,
    signed: bool = False,
) -> FamilyMoves:
    """Decide for one family. ``rows`` are the visible ones of the touched scopes; ``blocked`` is why none may move.

    ``signed``: a stored counter may fall below zero, since something that is still pending will raise it. Readers then
    hold the sum of both against zero.
    """
    if not effect.touches or guard is None or guard.state is not State.FRESH:
        return NOTHING  # nothing is served under a non-Fresh guard, and its rebuild counts the source afresh
    if guard.active_fence_count:
        return FamilyMoves(stale_family=StaleCause.FENCED)
    if blocked is not None:
        return FamilyMoves(stale_family=blocked)
    if effect.stale_family:
        return FamilyMoves(stale_family=StaleCause.INVALIDATED)

    moved: dict[str, Counters] = {}
    missing: list[str] = []
    for scope, moves in effect.moves.items():
        row = rows.get(scope)
        if row is None:
            missing.append(scope)
        elif row_gate(row, guard, stamp) is None:
            total = plus(row.values, moves)
            if not signed and min(total.values(), default=0) < 0:
                return FamilyMoves(stale_family=StaleCause.NEGATIVE_COUNTER)
            if len(total) > COUNTER_KEYS_MAX or not fit(total, COUNTER_BYTES_MAX):
                return FamilyMoves(stale_family=StaleCause.KEY_CAPACITY)
            moved[scope] = total
        # else: a row that is not served loses nothing by a dropped move; its rebuild counts the source afresh
    staled = tuple(s for s in sorted(effect.stale_scopes) if s in rows and row_gate(rows[s], guard, stamp) is None)
    return FamilyMoves(
        new_counters={scope: total for scope, total in moved.items() if scope not in staled},
        placeholders=tuple(missing),
        stale_scopes=staled,
    )
