"""How a project stands: modes, clocks, families and live hosts, as one read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from statlib.mongo.transactions import snapshot
from statlib.statistics.authoritative import PinnedReads
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import Mode, State
from statlib.statistics.gates import guard_gate, row_gate, stamp_of
from statlib.statistics.hosts import Host
from statlib.statistics.reader import Moment, Watermarks, closed_gate, read_moment
from statlib.statistics.reasons import ServeReason


@dataclass(frozen=True, slots=True)
class FamilyStatus:
    """``served``: a bundle of all its scopes would be. ``reason``: the gate that is closed otherwise."""

    family: str
    state: State
    scopes: int
    current: int
    rebuilding: bool
    served: bool
    reason: ServeReason | None


@dataclass(frozen=True, slots=True)
class ProjectStatus:
    project: UUID
    fleet_mode: Mode
    project_mode: Mode | None
    opening_count: int | None
    watermarks: Watermarks
    families: tuple[FamilyStatus, ...]
    hosts: tuple[Mapping[str, Any], ...]


def project_status(host: Host, catalogue: AnyCatalogue, project: UUID) -> ProjectStatus:
    """Refuses ProjectNotFound. Reads only."""
    host.require_open()
    asked: dict[str, None] = dict.fromkeys(catalogue.families)
    with snapshot(host.mongo) as session:
        moment = read_moment(host, PinnedReads(host.mongo, session), catalogue, project, asked)
    scopes = moment.configuration.declared(asked)
    return ProjectStatus(
        project=project,
        fleet_mode=moment.fleet.mode,
        project_mode=moment.control.mode if moment.control else None,
        opening_count=moment.control.opening_count if moment.control else None,
        watermarks=moment.watermarks,
        families=tuple(_family(host, catalogue, project, moment, family, names) for family, names in scopes.items()),
        hosts=tuple(
            {"id": m.id, "deployment": m.deployment, "writes": m.writes, "families": sorted(m.families)}
            for m in moment.members
        ),
    )


def _family(  # noqa: PLR0917 - a projection of one moment
    host: Host, catalogue: AnyCatalogue, project: UUID, moment: Moment, family: str, scopes: tuple[str, ...]
) -> FamilyStatus:
    guard = moment.guards.get(family)
    current = 0
    if guard is not None and moment.control is not None and guard_gate(guard) is None:
        stamp = stamp_of(moment.fleet, moment.control, catalogue.version, moment.configuration)
        current = sum(row_gate(moment.rows.get((family, scope)), guard, stamp) is None for scope in scopes)
    reason = closed_gate(host, catalogue, project, moment, {family: scopes})
    return FamilyStatus(
        family=family,
        state=guard.state if guard else State.MISSING,
        scopes=len(scopes),
        current=current,
        rebuilding=guard is not None and guard.candidate is not None,
        served=reason is None,
        reason=reason,
    )
