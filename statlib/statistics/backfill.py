"""A family to Fresh, with proof: bootstrap point, rebuilds within a budget, and a look through the reader."""

from __future__ import annotations

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
from statlib.statistics.rebuild import Rebuilt, rebuild, require_rebuildable

_RACES = (OperateReason.PublicationRaceLost, MongoReason.Contended)


@dataclass(frozen=True, slots=True)
class Backfilled:
    """``races_lost``: tries that a save overtook. ``verified``: the family as the reader then served it."""

    rebuilt: Rebuilt
    races_lost: int
    verified: Comparison


def backfill(host: Host, catalogue: AnyCatalogue, project: UUID, family: str, *, force: bool = False) -> Backfilled:
    """Publish every declared scope that is not current and right, then prove the family served and exact.

    Refuses as ``rebuild`` does; RebuildStarved when saves overtook every try; NotServedAfterwards, naming the gate.
    Repeating it is safe and, where nothing changed, writes no row.
    """
    host.require_open()
    rebuilt, races_lost = _rebuild_within_budget(host, catalogue, project, family, force=force)
    (verified,) = compare(host, catalogue, project, [family])
    if not verified.exact:
        reason = verified.reason.name if verified.reason else "counters differ from the source"
        raise Refusal(OperateReason.NotServedAfterwards, f"{family}: {reason}", state={"reason": reason})
    return Backfilled(rebuilt, races_lost, verified)


def _rebuild_within_budget(
    host: Host, catalogue: AnyCatalogue, project: UUID, family: str, *, force: bool
) -> tuple[Rebuilt, int]:
    require_rebuildable(host, catalogue, project, family)  # what is refused must leave no bootstrap point either
    _record_bootstrap_point(host.mongo, project, family)
    for races_lost in range(REBUILD_RETRIES_MAX + 1):
        require_not_cancelled()
        try:
            return rebuild(host, catalogue, project, family, force=force), races_lost
        except Refusal as refusal:
            if refusal.reason not in _RACES:
                raise
            if races_lost == REBUILD_RETRIES_MAX:
                raise Refusal(OperateReason.RebuildStarved, f"{family}: {races_lost + 1} tries") from refusal
            back_off(races_lost)
    raise AssertionError("unreachable: the last try returns or raises")


def _record_bootstrap_point(mongo: Mongo, project: UUID, family: str) -> None:
    """Where the family's history begins, once: the identity that its first backfill met."""
    fleet = mongo.collection(GLOBAL_CONTROL).find_one({"_id": GLOBAL_ID}) or {}
    point: dict[str, Any] = {
        "SourceRevision": "$SourceInvalidationRevision",
        "ProjectionRevision": "$CommittedProjectionRevision",
        "ModeEpoch": {"$literal": fleet.get("ModeEpoch", 0)},
        "RecordedAtUtc": mongo.clock.mongo_now(),
    }
    mongo.collection(CONTROL).update_one(
        {"_id": project, f"Bootstrap.{family}": {"$exists": False}},
        [{"$set": {f"Bootstrap.{family}": point}}],
    )
