"""Why a bundle is served from the source: every gate in its order, passed or closed, with what opens it.

The predicates are those of ``gates.py``; none is written again here. A closed gate is noted and then thought open,
and the gates are asked again, so that an operator sees all that is in the way at once and not the first thing only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.mongo.transactions import snapshot
from statlib.statistics.authoritative import PinnedReads
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.contexts import consumer_of
from statlib.statistics.documents import (
    SOURCE_VERSION,
    STORAGE_VERSION,
    GlobalControl,
    Guard,
    GuardId,
    Member,
    Mode,
    ProjectControl,
    State,
)
from statlib.statistics.gates import Stamp, guard_gate, project_gate, row_gate, scopes_gate, stamp_of
from statlib.statistics.hosts import Host
from statlib.statistics.overlay import INVARIANT_VIOLATIONS, OverlayRefusal, Valued, overlay
from statlib.statistics.reader import Moment, closed_gate, read_moment
from statlib.statistics.reasons import OperateReason, ServeReason
from statlib.statistics.served_rows import ServedRow

SCOPES_NAMED_MAX = 20  # scopes that one closed gate names; all of them are counted

PROJECT_GATES = (
    ServeReason.SourceVisibilityFenced,
    ServeReason.FleetDisabled,
    ServeReason.ProjectDisabled,
    ServeReason.NotAllowlisted,
    ServeReason.AllowlistInconsistent,
    ServeReason.VersionIncompatible,
    ServeReason.FamilyDisabled,
)
GUARD_GATES = (ServeReason.GuardNotFresh, ServeReason.FenceActive)
ROW_GATES = (
    ServeReason.RowMissing,
    ServeReason.RowNotFresh,
    ServeReason.TrackingModeChanged,
    ServeReason.RowEpochOutdated,
    ServeReason.RowVersionIncompatible,
    ServeReason.ConfigurationChanged,
)
OVERLAY_GATES = (ServeReason.PendingOverlayUnavailable,)


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate as it stands. ``family`` is None for a gate of the whole bundle.

    ``closed`` counts the scopes that it is closed for (0: passed); ``scopes`` names the first of them. A gate of a
    bundle, of a guard or of what is pending is closed for all scopes or for none, and names none. ``detail``: what of
    all that is pending closes it.
    """

    reason: ServeReason
    family: str | None
    closed: int
    scopes: tuple[str, ...] = ()
    detail: OverlayRefusal | None = None

    @property
    def passed(self) -> bool:
        return self.closed == 0


@dataclass(frozen=True, slots=True)
class Why:
    """``reason``: the gate that a read names, None if the bundle is served from storage."""

    project: UUID
    reason: ServeReason | None
    families: tuple[str, ...]
    scopes: int
    gates: tuple[Gate, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """All that the gates of a whole bundle are asked of."""

    project: UUID
    fleet: GlobalControl
    control: ProjectControl | None
    included: bool
    members: tuple[Member, ...]
    families: tuple[str, ...]
    served: frozenset[str]
    catalogue_version: int

    def gate(self) -> ServeReason | None:
        return project_gate(
            self.fleet,
            self.control,
            included=self.included,
            members=self.members,
            project=self.project,
            families=self.families,
            served_families=self.served,
            catalogue_version=self.catalogue_version,
        )


def why(host: Host, catalogue: AnyCatalogue, project: UUID, families: Sequence[str] = ()) -> Why:
    """How a bundle of all scopes of ``families`` (none: of every family) stands. One command; writes nothing.

    Refuses FamilyUnknown, ProjectNotFound.
    """
    host.require_open()
    if unknown := set(families) - set(catalogue.families):
        raise Refusal(OperateReason.FamilyUnknown, ", ".join(sorted(unknown)))
    asked: dict[str, None] = dict.fromkeys(families or catalogue.families)
    with snapshot(host.mongo) as session:
        moment = read_moment(host, PinnedReads(host.mongo, session), catalogue, project, asked)
    scopes = moment.configuration.declared(asked)
    of_bundle = Asked(
        project=project,
        fleet=moment.fleet,
        control=moment.control,
        included=host.includes(project),
        members=moment.members,
        families=tuple(scopes),
        served=host.families,
        catalogue_version=catalogue.version,
    )
    return Why(
        project=project,
        reason=closed_gate(host, catalogue, project, moment, scopes),
        families=tuple(scopes),
        scopes=sum(map(len, scopes.values())),
        gates=explain(of_bundle, moment, scopes, _refused_by_overlay(catalogue, moment, scopes)),
    )


def explain(
    asked: Asked,
    moment: Moment,
    scopes: Mapping[str, Sequence[str]],
    refused: Mapping[str, OverlayRefusal] = MappingProxyType({}),
) -> tuple[Gate, ...]:
    """Every gate in the order in which a read asks them: those of the bundle, then each family's. Pure. ``refused``:
    families that what is pending closes."""
    total = sum(map(len, scopes.values()))
    closed = closed_project_gates(asked)
    gates = [Gate(reason, None, max(total, 1) if reason in closed else 0) for reason in PROJECT_GATES]
    control = asked.control or ProjectControl(id=asked.project)
    stamp = stamp_of(asked.fleet, control, asked.catalogue_version, moment.configuration)
    for family, wanted in scopes.items():
        guard = moment.guards.get(family)
        gates += _guard_gates(asked.project, family, guard, len(wanted))
        judged = guard or Guard(id=GuardId(project_id=asked.project, family=family))
        gates += _row_gates(family, judged, {scope: moment.rows.get((family, scope)) for scope in wanted}, stamp)
        closed_for = max(len(wanted), 1) if family in refused else 0
        gates += [Gate(reason, family, closed_for, detail=refused.get(family)) for reason in OVERLAY_GATES]
    return tuple(gates)


def _refused_by_overlay(
    catalogue: AnyCatalogue, moment: Moment, scopes: Mapping[str, Sequence[str]]
) -> dict[str, OverlayRefusal]:
    """As if every other gate were open. A sum that cannot be says something of rows alone that are current."""
    if moment.pending is None or moment.control is None:
        return {}
    at = consumer_of(catalogue, moment.configuration, moment.fleet.reviewer_tracking_epoch)
    rows: dict[tuple[str, str], Valued] = {(family, s): _EMPTY for family, wanted in scopes.items() for s in wanted}
    rows.update(moment.rows)
    refused = overlay(moment.pending, at, rows, scopes).refused
    stamp = stamp_of(moment.fleet, moment.control, catalogue.version, moment.configuration)
    return {
        family: reason
        for family, reason in refused.items()
        if reason not in INVARIANT_VIOLATIONS
        or scopes_gate(moment.guards, moment.rows, {family: scopes[family]}, stamp) is None
    }


@dataclass(frozen=True, slots=True)
class _Empty:
    """In the place of a row that is missing."""

    values: Mapping[str, int] = field(default_factory=dict)


_EMPTY = _Empty()


def closed_project_gates(asked: Asked) -> tuple[ServeReason, ...]:
    """The closed gates of a bundle, in order.

    A gate that closes only because a later one was thought open (hosts that disagree about a family that this host
    does not serve yet) is not in the way today, and is not named.
    """
    closed: list[ServeReason] = []
    last = -1
    while (reason := asked.gate()) is not None:
        place = PROJECT_GATES.index(reason)
        if place > last:
            closed.append(reason)
            last = place
        asked = _thought_open(asked, reason)
    return tuple(closed)


def closed_row_gates(row: ServedRow | None, guard: Guard, stamp: Stamp) -> tuple[ServeReason, ...]:
    """The closed gates of one scope, in order; a missing row has no others."""
    closed: list[ServeReason] = []
    while (reason := row_gate(row, guard, stamp)) is not None:
        closed.append(reason)
        if row is None:
            break
        row = _row_thought_open(row, guard, stamp, reason)
    return tuple(closed)


def _guard_gates(project: UUID, family: str, guard: Guard | None, scopes: int) -> list[Gate]:
    first = guard_gate(guard)
    opened = (guard or Guard(id=GuardId(project_id=project, family=family))).model_copy(update={"state": State.FRESH})
    closed = {first, guard_gate(opened)}
    return [Gate(reason, family, max(scopes, 1) if reason in closed else 0) for reason in GUARD_GATES]


def _row_gates(family: str, guard: Guard, rows: Mapping[str, ServedRow | None], stamp: Stamp) -> list[Gate]:
    closed = {scope: closed_row_gates(row, guard, stamp) for scope, row in rows.items()}
    gates = []
    for reason in ROW_GATES:
        behind = [scope for scope, reasons in closed.items() if reason in reasons]
        gates.append(Gate(reason, family, len(behind), tuple(behind[:SCOPES_NAMED_MAX])))
    return gates


def _thought_open(asked: Asked, reason: ServeReason) -> Asked:
    # A control that does not exist yet would be made by this release: with its versions, and with no token.
    new = ProjectControl(id=asked.project, catalogue_version=asked.catalogue_version)
    control = asked.control or new
    versions = {
        "storage_version": STORAGE_VERSION + control.tripwire,
        "source_version": SOURCE_VERSION,
        "catalogue_version": asked.catalogue_version,
    }
    match reason:
        case ServeReason.SourceVisibilityFenced:
            tokens = {"inclusion_recalculation_token": None, "definition_rewrite_token": None}
            return replace(asked, control=control.model_copy(update=tokens))
        case ServeReason.FleetDisabled:
            return replace(asked, fleet=asked.fleet.model_copy(update={"mode": Mode.ENABLED}))
        case ServeReason.ProjectDisabled:
            return replace(asked, control=control.model_copy(update={"mode": Mode.ENABLED}))
        case ServeReason.NotAllowlisted:
            return replace(asked, included=True)
        case ServeReason.AllowlistInconsistent:
            return replace(asked, members=())
        case ServeReason.VersionIncompatible:
            return replace(
                asked,
                fleet=asked.fleet.model_copy(update=versions),
                control=control.model_copy(update=versions),
            )
        case ServeReason.FamilyDisabled:
            return replace(asked, served=asked.served.union(asked.families))
        case _:
            raise AssertionError(f"{reason.name} is no gate of a bundle")


def _row_thought_open(row: ServedRow, guard: Guard, stamp: Stamp, reason: ServeReason) -> ServedRow:
    expected = stamp.epochs(guard.family_write_epoch)
    opened: dict[str, Any]
    match reason:
        case ServeReason.RowNotFresh:
            opened = {"state": State.FRESH}
        case ServeReason.TrackingModeChanged:
            opened = {"write_epochs": row.standing.write_epochs.model_copy(update={"tracking": expected.tracking})}
        case ServeReason.RowEpochOutdated:
            opened = {"write_epochs": expected}
        case ServeReason.RowVersionIncompatible:
            opened = {"source_version": SOURCE_VERSION, "catalogue_version": stamp.catalogue_version}
        case ServeReason.ConfigurationChanged:
            opened = {"configuration_digest": stamp.configuration.digest(row.family, row.scope)}
        case _:
            raise AssertionError(f"{reason.name} is no gate of a row")
    return replace(row, standing=row.standing.model_copy(update=opened))
