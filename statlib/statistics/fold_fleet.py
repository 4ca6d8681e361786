"""Whether the live hosts can all fold, and under which protocol: asked before a project is stamped with it.

Read anew each time, in one command by the server's clock, and inside the transaction that it decides about. A process
that registers no host is invisible here: that every rollout has ended is for the operator to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.statistics.bounds import HEARTBEAT_LIVE_S
from statlib.statistics.documents import GLOBAL_CONTROL, GLOBAL_ID, MEMBER
from statlib.statistics.hosts import Role, live_filter
from statlib.statistics.pending import accepts
from statlib.statistics.reasons import OperateReason


@dataclass(frozen=True, slots=True)
class FoldMember:
    """A live host. ``included``: it has the project under statistics; ``fold``: its saves may leave pending entries."""

    id: str
    deployment: str
    protocols: tuple[int, ...]
    fold: bool
    included: bool


@dataclass(frozen=True, slots=True)
class FoldFleet:
    """``heartbeat_ages_s``: seconds since a fold worker of each protocol last renewed its heartbeat."""

    members: tuple[FoldMember, ...]
    heartbeat_ages_s: Mapping[int, float]

    def worker_live(self, protocol: int) -> bool:
        age_s = self.heartbeat_ages_s.get(protocol)
        return age_s is not None and age_s < HEARTBEAT_LIVE_S


def read_fold_fleet(mongo: Mongo, project: UUID, session: ClientSession | None = None) -> FoldFleet:
    """One command. ``project``: whose inclusion is asked of each host."""
    member: dict[str, Any] = {
        "Deployment": 1,
        "Protocols": {"$ifNull": ["$FoldProtocols", []]},
        "Fold": {"$ifNull": ["$Fold", False]},
        "Included": {"$and": ["$Writes", {"$in": [project, "$Allowlist"]}]},
    }
    live = [{"$match": live_filter(mongo)}, {"$project": member}, {"$sort": {"_id": 1}}]
    pipeline: list[dict[str, Any]] = [
        {"$match": {"_id": GLOBAL_ID}},
        {"$project": {"FoldWorkerHeartbeats": 1, "Now": mongo.clock.mongo_now()}},
        {"$lookup": {"from": MEMBER, "pipeline": live, "as": "Members"}},
    ]
    found = next(iter(mongo.collection(GLOBAL_CONTROL).aggregate(pipeline, session=session)), None)
    if found is None:
        return FoldFleet((), {})
    beats: Mapping[str, Any] = found.get("FoldWorkerHeartbeats") or {}
    return FoldFleet(
        members=tuple(
            FoldMember(m["_id"], m["Deployment"], tuple(m["Protocols"]), m["Fold"], m["Included"])
            for m in found["Members"]
        ),
        heartbeat_ages_s={
            int(protocol): (found["Now"] - beat["RenewedAtUtc"]).total_seconds() for protocol, beat in beats.items()
        },
    )


def stamp_of_fleet(fleet: FoldFleet) -> int:
    """The protocol that a project is stamped with: the lowest of the live hosts' own ones, so that all of them follow.

    Refuses FoldFleetUnsupported, naming what is in the way.
    """
    if lacking := sorted(set(Role) - {member.deployment for member in fleet.members}):
        raise _unsupported(f"no live host of {' and '.join(lacking)}")
    if silent := [member.id for member in fleet.members if not member.protocols]:
        raise _unsupported(f"of a release that does not fold: {', '.join(silent)}")
    protocol = min(max(member.protocols) for member in fleet.members)
    if not accepts(protocol):
        raise _unsupported(f"the lowest protocol among live hosts is {protocol}, which this release does not fold")
    if deaf := [member.id for member in fleet.members if protocol not in member.protocols]:
        raise _unsupported(f"protocol {protocol} is not declared by: {', '.join(deaf)}")
    if excluding := [member.id for member in fleet.members if member.included and not member.fold]:
        raise _unsupported(f"statistics.fold is off on: {', '.join(excluding)}")
    if not fleet.worker_live(protocol):
        raise _unsupported(f"no live fold worker of protocol {protocol}")
    return protocol


def _unsupported(detail: str) -> Refusal:
    return Refusal(OperateReason.FoldFleetUnsupported, detail)
