"""Families to Fresh, with proof: bootstrap points, rebuilds within a budget, and a look through the reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from statlib.kernel.cancellation import require_not_cancelled
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import back_off
from statlib.statistics.bounds import REBUILD_RETRIES_MAX
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import CONTROL, GLOBAL_CONTROL, GLOBAL_ID
from statlib.statistics.hosts import Host
from statlib.statistics.parity import Comparison, compare
from statlib.statistics.reasons import OperateReason
from statlib.statistics.rebuild import Rebuilt, rebuild_together, require_rebuildable

_RACES = (OperateReason.PublicationRaceLost, OperateReason.PendingNotDrained, MongoReason.Contended)


@dataclass(frozen=True, slots=True)
class Backfilled:
    """Of one family. ``races_lost``: tries that a save overtook. ``verified``: the family as the reader then served
    it."""

    rebuilt: Rebuilt
    races_lost: int
    verified: Comparison


def backfill(host: Host, catalogue: AnyCatalogue, project: UUID, family: str, *, force: bool = False) -> Backfilled:
    """Publish every declared scope that is not current and right, then prove the family served and exact.

    Refuses as ``rebuild`` does; RebuildStarved when saves overtook every try; NotServedAfterwards, naming the gate.
    Repeating it is safe and, where nothing changed, writes no row.
    """
    (done,) = backfill_together(host, catalogue, project, [family], force=force)
    return done


def backfill_together(
    host: Host, catalogue: AnyCatalogue, project: UUID, families: Sequence[str], *, force: bool = False
) -> tuple[Backfilled, ...]:
    """As ``backfill``, for several families that are counted in one walk over the source and proved in another.

    A family that lost its race is tried again, with the others that did. What it refuses may leave some families
    published, which is right, and harmless to repeat.
    """
    host.require_open()
    asked = tuple(dict.fromkeys(families))
    rebuilt = _rebuild_within_budget(host, catalogue, project, asked, force=force)
    verified = compare(host, catalogue, project, asked)
    _require_proved(verified)
    return tuple(Backfilled(*rebuilt[one.family], one) for one in verified)


def _rebuild_within_budget(
    host: Host, catalogue: AnyCatalogue, project: UUID, families: Sequence[str], *, force: bool
) -> dict[str, tuple[Rebuilt, int]]:
    """Per family what was done, and how many races it had lost before."""
    require_rebuildable(host, catalogue, project, families)  # what is refused must leave no bootstrap point either
    _record_bootstrap_points(host.mongo, project, families)
    done: dict[str, tuple[Rebuilt, int]] = {}
    for races_lost in range(REBUILD_RETRIES_MAX + 1):
        require_not_cancelled()
        left = {family: None for family in families if family not in done}
        try:
            together = rebuild_together(host, catalogue, project, left, force=force)
        except Refusal as refusal:  # a race that was lost before anything was counted is lost by all of them
            lost = dict.fromkeys(left, refusal)
        else:
            done |= {family: (rebuilt, races_lost) for family, rebuilt in together.rebuilt.items()}
            lost = dict(together.lost)
        if not lost:
            return done
        _require_races(lost)
        if races_lost == REBUILD_RETRIES_MAX:
            raise Refusal(OperateReason.RebuildStarved, f"{', '.join(lost)}: {races_lost + 1} tries") from next(
                iter(lost.values())
            )
        back_off(races_lost)
    raise AssertionError("unreachable: the last try returns or raises")


def _require_races(lost: dict[str, Refusal]) -> None:
    """Whatever is no lost race is not tried again."""
    for refusal in lost.values():
        if refusal.reason not in _RACES:
            raise refusal


def _require_proved(verified: Sequence[Comparison]) -> None:
    """Refuses NotServedAfterwards, naming every family that is not served, or not exact."""
    said = {
        one.family: one.reason.name if one.reason else "counters differ from the source"
        for one in verified
        if not one.exact
    }
    if said:
        raise Refusal(
            OperateReason.NotServedAfterwards,
            "; ".join(f"{family}: {reason}" for family, reason in said.items()),
            state={"reason": next(iter(said.values()))},
        )


def _record_bootstrap_points(mongo: Mongo, project: UUID, families: Sequence[str]) -> None:
    """Where each family's history begins, once: the identity that its first backfill met."""
    fleet = mongo.collection(GLOBAL_CONTROL).find_one({"_id": GLOBAL_ID}) or {}
    point: dict[str, Any] = {
        "SourceRevision": "$SourceInvalidationRevision",
        "ProjectionRevision": "$CommittedProjectionRevision",
        "ModeEpoch": {"$literal": fleet.get("ModeEpoch", 0)},
        "RecordedAtUtc": mongo.clock.mongo_now(),
    }
    mongo.collection(CONTROL).update_one(
        {"_id": project, "$or": [{f"Bootstrap.{family}": {"$exists": False}} for family in families]},
        [{"$set": {f"Bootstrap.{family}": {"$ifNull": [f"$Bootstrap.{family}", point]} for family in families}}],
    )
