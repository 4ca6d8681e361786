"""Making scopes and families unservable other than by a save: of an edit, of a fence, of documents that appear.

Invariant: the transaction that changes what statistics depend on also invalidates what was counted under it, and moves
the clocks. No reader and no rebuild ever sees the one without the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from statlib.statistics import queries
from statlib.statistics.documents import GUARD, ROW, Delta, DeltaKind, Guard, GuardId, State
from statlib.statistics.unit import Unit

CAUSE = "ConfigurationChanged"


@dataclass(frozen=True, slots=True)
class Invalidation:
    """``families`` whole, and single ``scopes`` of others."""

    families: frozenset[str] = frozenset()
    scopes: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def touched(self) -> tuple[str, ...]:
        return tuple(sorted({*self.families, *self.scopes}))


def invalidate(unit: Unit, what: Invalidation, *, fence: bool = False) -> int:
    """Write it, in the unit's transaction, with clocks and outbox slots. Returns how many rows became Stale.

    The source clock always moves. A family gets a new epoch; of a scope, the published row becomes Stale whatever its
    other gates say, so that parameters which return do not bring it back. A family that is not Fresh is served nothing
    by which its scopes could mislead. ``fence``: the families' guards also count one fence more, and are created where
    there are none yet, since a first rebuild would else not see it.
    """
    scopes = {f: names for f, names in what.scopes.items() if f not in what.families and _fresh(unit, f)}
    revision = unit.advance(source=True, records=int(bool(scopes)), client=True)
    known = [family for family in what.families if family in unit.state.guards]
    unit.update_guards(
        {family: _staled(fence=fence) for family in known} | {family: {"$inc": {"Version": 1}} for family in scopes}
    )
    if fence:
        new = sorted(what.families.difference(known))
        unit.insert(GUARD, [_first_guard(unit, family).to_bson() for family in new])
    staled = sum(_stale_rows(unit, family, names, revision) for family, names in scopes.items())
    if scopes:
        unit.record([_entry(unit, scopes, revision)])
    unit.notify(what.touched)
    return staled


def _fresh(unit: Unit, family: str) -> bool:
    guard = unit.state.guards.get(family)
    return guard is not None and guard.state is State.FRESH


def _staled(*, fence: bool) -> dict[str, Any]:
    update = queries.stale_family()
    return {**update, "$inc": {**update["$inc"], "ActiveFenceCount": 1}} if fence else update


def _first_guard(unit: Unit, family: str) -> Guard:
    identity = GuardId(project_id=unit.control.id, family=family)
    return Guard(id=identity, state=State.STALE, family_write_epoch=1, active_fence_count=1, version=1)


def _stale_rows(unit: Unit, family: str, scopes: frozenset[str], revision: int) -> int:
    wanted = {**queries.visible_rows(unit.control.id, {family: sorted(scopes)}), "State": State.FRESH.value}
    fields = {"State": State.STALE.value, "LastChangedRevision": revision, "LastFailureReason": CAUSE}
    return unit.mongo.collection(ROW).update_many(wanted, {"$set": fields}, session=unit.session).modified_count


def _entry(unit: Unit, scopes: Mapping[str, frozenset[str]], revision: int) -> Delta:
    return Delta(
        project_id=unit.control.id,
        revision=revision,
        record=0,
        kind=DeltaKind.INVALIDATION,
        moves=[{"Family": family, "Scope": scope} for family in sorted(scopes) for scope in sorted(scopes[family])],
        observed_at_utc=unit.state.now,
    )
