"""Serving gates: why a bundle is not served from storage. Pure, and asked in one fixed order.

A plausible value never outweighs a failed gate. One failing scope sends the whole bundle to the source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from statlib.statistics.documents import (
    SOURCE_VERSION,
    STORAGE_VERSION,
    FoldMode,
    GlobalControl,
    Guard,
    Member,
    Mode,
    ProjectControl,
    State,
    WriteEpochs,
)
from statlib.statistics.pending import accepts
from statlib.statistics.reasons import ServeReason


class Digests(Protocol):
    """The digest of the parameters that a scope's counters depend on."""

    def digest(self, family: str, scope: str) -> str: ...


class RowStanding(Protocol):
    """What a row was calculated under: its own part of what decides whether it is current."""

    @property
    def state(self) -> State: ...

    @property
    def write_epochs(self) -> WriteEpochs: ...

    @property
    def source_version(self) -> int: ...

    @property
    def catalogue_version(self) -> int: ...

    @property
    def configuration_digest(self) -> str: ...


class Judged(Protocol):
    """What the gate of a row is asked of. A whole stored row stands for itself."""

    @property
    def family(self) -> str: ...

    @property
    def scope(self) -> str: ...

    @property
    def standing(self) -> RowStanding: ...


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a row must carry to be current, its family's epoch apart."""

    fleet: int
    project: int
    tracking: int
    catalogue_version: int
    configuration: Digests

    def epochs(self, family_epoch: int) -> WriteEpochs:
        return WriteEpochs(fleet=self.fleet, project=self.project, family=family_epoch, tracking=self.tracking)


def stamp_of(fleet: GlobalControl, control: ProjectControl, catalogue_version: int, configuration: Digests) -> Stamp:
    return Stamp(
        fleet=fleet.mode_epoch,
        project=control.opening_count,
        tracking=fleet.reviewer_tracking_epoch,
        catalogue_version=catalogue_version,
        configuration=configuration,
    )


def matches(fleet: GlobalControl, control: ProjectControl, catalogue_version: int) -> bool:
    """The one comparison of stored versions with the fleet's and with this release's, asked wherever a project is to
    be served, published, folded or repaired. A folding project carries its tripwire, of a protocol known here."""
    folding = control.fold_mode is not FoldMode.DISABLED
    return (
        fleet.storage_version == STORAGE_VERSION
        and control.storage_version == fleet.storage_version + control.tripwire
        and (not folding or accepts(control.fold_protocol_version))
        and control.source_version == fleet.source_version == SOURCE_VERSION
        and control.catalogue_version == fleet.catalogue_version == catalogue_version
    )


def project_gate(
    fleet: GlobalControl,
    control: ProjectControl | None,
    *,
    included: bool,
    members: Iterable[Member],
    project: UUID,
    families: Collection[str],
    served_families: frozenset[str],
    catalogue_version: int,
) -> ServeReason | None:
    """The gates of a whole bundle: the first closed one, or None."""
    alive = list(members)
    checks: tuple[tuple[bool, ServeReason], ...] = (
        # First, because while the source is half rewritten not even the authoritative value is right.
        (control is None or not _source_hidden(control), ServeReason.SourceVisibilityFenced),
        (fleet.mode is Mode.ENABLED, ServeReason.FleetDisabled),
        (control is not None and control.mode is Mode.ENABLED, ServeReason.ProjectDisabled),
        (included, ServeReason.NotAllowlisted),
        (agree(alive, project, families, served_families), ServeReason.AllowlistInconsistent),
        (control is not None and matches(fleet, control, catalogue_version), ServeReason.VersionIncompatible),
        (served_families.issuperset(families), ServeReason.FamilyDisabled),
    )
    return next((reason for passed, reason in checks if not passed), None)


def guard_gate(guard: Guard | None) -> ServeReason | None:
    if guard is None or guard.state is not State.FRESH:
        return ServeReason.GuardNotFresh
    if guard.active_fence_count:
        return ServeReason.FenceActive
    return None


def row_gate(row: Judged | None, guard: Guard, stamp: Stamp) -> ServeReason | None:
    """Why this row is not current: also asked by every writer before it moves a row."""
    if row is None:
        return ServeReason.RowMissing
    if (reason := _standing_gate(row.standing, guard, stamp)) is not None:
        return reason
    return _configuration_gate(row, stamp)


def scopes_gate(
    guards: Mapping[str, Guard],
    rows: Mapping[tuple[str, str], Judged],
    scopes: Mapping[str, Collection[str]],
    stamp: Stamp,
) -> ServeReason | None:
    """The gates of every requested scope, families in the order asked: the first closed one, or None."""
    for family, wanted in scopes.items():
        guard = guards.get(family)
        if (reason := guard_gate(guard)) is not None or guard is None:
            return reason
        passed: RowStanding | None = None  # rows read together share theirs, and it need not be judged again
        for scope in wanted:
            row = rows.get((family, scope))
            if row is None or row.standing is not passed:
                reason = row_gate(row, guard, stamp)
            else:
                reason = _configuration_gate(row, stamp)
            if reason is not None or row is None:
                return reason
            passed = row.standing
    return None


def _standing_gate(standing: RowStanding, guard: Guard, stamp: Stamp) -> ServeReason | None:
    if standing.state is not State.FRESH:
        return ServeReason.RowNotFresh
    epochs = standing.write_epochs
    if epochs.tracking != stamp.tracking:
        return ServeReason.TrackingModeChanged
    # Field by field, for speed. An epoch that only a later release counts makes the row that release's own.
    current = (stamp.fleet, stamp.project, guard.family_write_epoch)
    if (epochs.fleet, epochs.project, epochs.family) != current or epochs.model_extra:
        return ServeReason.RowEpochOutdated
    if standing.source_version != SOURCE_VERSION or standing.catalogue_version != stamp.catalogue_version:
        return ServeReason.RowVersionIncompatible
    return None


def _configuration_gate(row: Judged, stamp: Stamp) -> ServeReason | None:
    """Of each scope: its parameters are its own, whatever else its row shares with others."""
    if row.standing.configuration_digest != stamp.configuration.digest(row.family, row.scope):
        return ServeReason.ConfigurationChanged
    return None


def _source_hidden(control: ProjectControl) -> bool:
    return control.inclusion_recalculation_token is not None or control.definition_rewrite_token is not None


def agree(members: list[Member], project: UUID, families: Collection[str], served: frozenset[str]) -> bool:
    """Whether every live host keeps statistics of this project and of these families, as this one does.

    A family that this host itself does not serve is FamilyDisabled, not a disagreement.
    """
    asked = served.intersection(families)
    return all(member.writes and project in member.allowlist and asked.issubset(member.families) for member in members)
