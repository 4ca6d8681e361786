"""The bundle reader: counters of any families and scopes of one project, from one moment, usually in one command.

One aggregation at snapshot read concern brings the fleet, the control, the project, its guards, rows and live
hosts. If every gate is open the rows are the answer. Otherwise the whole bundle is calculated from the source, in
the same snapshot, and says why. A bundle is coherent, or it is not served from storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from statlib.kernel import telemetry
from statlib.kernel.refusals import Refusal
from statlib.mongo.transactions import snapshot
from statlib.statistics import queries
from statlib.statistics.authoritative import PinnedReads, calculate
from statlib.statistics.catalogue import AnyCatalogue, Configuration
from statlib.statistics.contexts import configuration_of
from statlib.statistics.counters import Counters, without_zeros
from statlib.statistics.documents import (
    GLOBAL_CONTROL,
    GlobalControl,
    Guard,
    Member,
    ProjectControl,
)
from statlib.statistics.gates import project_gate, scopes_gate, stamp_of
from statlib.statistics.hosts import Host, live_filter
from statlib.statistics.reasons import OperateReason, ServeReason
from statlib.statistics.served_rows import ServedRow, served_rows


class _All:
    """Sentinel: every scope that a family declares for the project."""

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = _All()
Request = tuple[str, "str | _All"]


class Source(StrEnum):
    MATERIALISED = "materialised"
    AUTHORITATIVE = "authoritative"


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The project's three clocks and the fleet's mode epoch at the bundle's moment; zeros before any control exists."""

    source: int
    projection: int
    client: int
    mode_epoch: int

    @property
    def checkpoint_identity(self) -> str:
        """One identity names one value, for ever."""
        return f"{self.source}.{self.projection}.{self.mode_epoch}"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Counters per family and scope. ``reason`` says why they were calculated; None where they were served."""

    project: UUID
    values: Mapping[str, Mapping[str, Counters]]
    source: Source
    reason: ServeReason | None
    watermarks: Watermarks

    def counters(self, family: str, scope: str = "project") -> Counters:
        return self.values[family][scope]


@dataclass(frozen=True, slots=True)
class Moment:
    """What one command brought: everything that the gates are asked of."""

    fleet: GlobalControl
    control: ProjectControl | None
    context: Any
    configuration: Configuration[Any]
    guards: Mapping[str, Guard]
    rows: Mapping[tuple[str, str], ServedRow]
    members: tuple[Member, ...]

    @property
    def watermarks(self) -> Watermarks:
        control = self.control
        return Watermarks(
            source=control.source_invalidation_revision if control else 0,
            projection=control.committed_projection_revision if control else 0,
            client=control.client_invalidation_revision if control else 0,
            mode_epoch=self.fleet.mode_epoch,
        )


def read_bundle(host: Host, catalogue: AnyCatalogue, project: UUID, requests: Iterable[Request]) -> Bundle:
    """Counters for (family, scope) requests; a scope may be ``ALL``.

    Refuses FamilyUnknown, ScopeUnknown and ProjectNotFound; SourceVisibilityFenced (503) while the source is rewritten.
    """
    host.require_open()
    requested = tuple(requests)
    asked = _by_family(catalogue, requested)
    with snapshot(host.mongo) as session:
        reads = PinnedReads(host.mongo, session)
        moment = read_moment(reads, catalogue, project, asked)
        scopes = moment.configuration.declared(asked)
        _require_named(requested, scopes)
        reason = closed_gate(host, catalogue, project, moment, scopes)
        if reason is ServeReason.SourceVisibilityFenced:
            raise Refusal(reason, f"project {project}")
        if reason is None:
            telemetry.count("bundles.read", source=Source.MATERIALISED)
            return Bundle(project, _served(moment, scopes), Source.MATERIALISED, None, moment.watermarks)
        telemetry.count("bundles.read", source=Source.AUTHORITATIVE, reason=reason)
        values = authoritative_values(reads, catalogue, project, moment.context, scopes)
        return Bundle(project, values, Source.AUTHORITATIVE, reason, moment.watermarks)


def closed_gate(
    host: Host, catalogue: AnyCatalogue, project: UUID, moment: Moment, scopes: Mapping[str, Sequence[str]]
) -> ServeReason | None:
    """The first closed gate of the bundle, or None."""
    reason = project_gate(
        moment.fleet,
        moment.control,
        included=host.includes(project),
        members=moment.members,
        project=project,
        families=scopes,
        served_families=host.families,
        catalogue_version=catalogue.version,
    )
    if reason is not None or moment.control is None:
        return reason
    stamp = stamp_of(moment.fleet, moment.control, catalogue.version, moment.configuration)
    return scopes_gate(moment.guards, moment.rows, scopes, stamp)


def authoritative_values(
    reads: PinnedReads, catalogue: AnyCatalogue, project: UUID, context: Any, scopes: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Counters]]:
    counted = calculate(reads, catalogue, scopes, project, context)
    return {family: {scope: counted[family][scope] for scope in wanted} for family, wanted in scopes.items()}


def read_moment(
    reads: PinnedReads, catalogue: AnyCatalogue, project: UUID, asked: Mapping[str, Sequence[str] | None]
) -> Moment:
    """One command. Refuses ProjectNotFound."""
    pipeline = queries.bundle(catalogue, project, asked, live_filter(reads.mongo))
    found: dict[str, list[dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = []
    for entry in reads.aggregate(GLOBAL_CONTROL, pipeline):
        if "Kind" in entry:
            found.setdefault(entry["Kind"], []).append(entry["Document"])
        else:
            rows.append(entry)
    if "context" not in found:
        raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
    fleet = GlobalControl.from_bson(found["fleet"][0]) if "fleet" in found else GlobalControl()
    configuration = configuration_of(catalogue, found["context"][0], fleet.reviewer_tracking_mode)
    guards = [Guard.from_bson(guard) for guard in found.get("guard", [])]
    return Moment(
        fleet=fleet,
        control=ProjectControl.from_bson(found["control"][0]) if "control" in found else None,
        context=configuration.context,
        configuration=configuration,
        guards={guard.id.family: guard for guard in guards},
        rows=served_rows(rows),
        members=tuple(Member.from_bson(member) for member in found.get("member", [])),
    )


def _by_family(catalogue: AnyCatalogue, requests: Iterable[Request]) -> dict[str, list[str] | None]:
    asked: dict[str, list[str] | None] = {}
    for family, scope in requests:
        if family not in catalogue.families:
            raise Refusal(OperateReason.FamilyUnknown, family)
        if isinstance(scope, _All):
            asked[family] = None
            continue
        wanted = asked.setdefault(family, [])
        if wanted is not None and scope not in wanted:
            wanted.append(scope)
    if not asked:
        raise Refusal(OperateReason.FamilyUnknown, "a bundle names at least one family")
    return asked


def _require_named(requests: Sequence[Request], scopes: Mapping[str, Sequence[str]]) -> None:
    """A scope that is named beside ``ALL`` must be declared too. Refuses ScopeUnknown."""
    for family, scope in requests:
        if isinstance(scope, str) and scope not in scopes[family]:
            raise Refusal(OperateReason.ScopeUnknown, f"{family}: {scope}")


def _served(moment: Moment, scopes: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Counters]]:
    served: dict[str, dict[str, Counters]] = {}
    for family, wanted in scopes.items():
        values = {scope: moment.rows[family, scope].values for scope in wanted}
        served[family] = {scope: of if all(of.values()) else without_zeros(of) for scope, of in values.items()}
    return served
