"""The bundle reader: counters of any families and scopes of one project, from one moment, usually in one command.

One aggregation at snapshot read concern brings the fleet, the control, the project, its guards, rows and live
hosts. If every gate is open the rows are the answer. Otherwise the whole bundle is calculated from the source, in
the same snapshot, and says why. A bundle is coherent, or it is not served from storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import bson

from statlib.kernel import telemetry
from statlib.kernel.refusals import Refusal
from statlib.mongo.transactions import snapshot
from statlib.statistics import queries
from statlib.statistics.authoritative import PinnedReads, calculate
from statlib.statistics.bounds import OVERLAY_STUDIES_MAX
from statlib.statistics.catalogue import AnyCatalogue, Configuration
from statlib.statistics.contexts import configuration_of, consumer_of
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
from statlib.statistics.overlay import INVARIANT_VIOLATIONS, NOTHING_PENDING, OverlayRefusal, Pending, overlay
from statlib.statistics.pending import Fingerprint
from statlib.statistics.reasons import OperateReason, ServeReason
from statlib.statistics.served_rows import ServedRow, served_rows


class _All:
    """Sentinel: every scope that a family declares for the project."""

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = _All()
Request = tuple[str, "str | _All"]
_FIRST_FIELD = 4  # bytes into a BSON document, after its length
_PENDING_SET = bson.encode({"Kind": queries.PENDING_SET})[_FIRST_FIELD:-1]
_PENDING_MAX = OVERLAY_STUDIES_MAX + 1  # one more than is overlaid, to know that there are more


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
    """Counters per family and scope. ``reason`` says why they were calculated; None where they were served.

    ``watermarks`` are those of what is stored; ``pending`` names what was added to it, or would have been. ``detail``
    says why not, of PendingOverlayUnavailable.
    """

    project: UUID
    values: Mapping[str, Mapping[str, Counters]]
    source: Source
    reason: ServeReason | None
    watermarks: Watermarks
    pending: Fingerprint = NOTHING_PENDING
    detail: OverlayRefusal | None = None

    def counters(self, family: str, scope: str = "project") -> Counters:
        return self.values[family][scope]


@dataclass(frozen=True, slots=True)
class Moment:
    """What one command brought: everything that the gates are asked of. ``pending`` is None where the project never
    folded."""

    fleet: GlobalControl
    control: ProjectControl | None
    context: Any
    configuration: Configuration[Any]
    guards: Mapping[str, Guard]
    rows: Mapping[tuple[str, str], ServedRow]
    members: tuple[Member, ...]
    pending: Pending | None = None

    @property
    def fingerprint(self) -> Fingerprint:
        return self.pending.fingerprint if self.pending else NOTHING_PENDING

    @property
    def watermarks(self) -> Watermarks:
        control = self.control
        return Watermarks(
            source=control.source_invalidation_revision if control else 0,
            projection=control.committed_projection_revision if control else 0,
            client=control.client_invalidation_revision if control else 0,
            mode_epoch=self.fleet.mode_epoch,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a bundle is served: ``reason`` is the first gate that says no, with ``detail`` if that is the overlay.

    ``counters`` are those of the scopes that something pending moves, in the place of the stored ones.
    """

    reason: ServeReason | None
    detail: OverlayRefusal | None = None
    counters: Mapping[tuple[str, str], Counters] = field(default_factory=dict)

    def value_of(self, moment: Moment, family: str, scope: str) -> Counters:
        """Of a scope that is served."""
        moved = self.counters.get((family, scope))
        return moment.rows[family, scope].values if moved is None else moved


def read_bundle(host: Host, catalogue: AnyCatalogue, project: UUID, requests: Iterable[Request]) -> Bundle:
    """Counters for (family, scope) requests; a scope may be ``ALL``.

    Refuses FamilyUnknown, ScopeUnknown and ProjectNotFound; SourceVisibilityFenced (503) while the source is rewritten.
    """
    host.require_open()
    requested = tuple(requests)
    asked = _by_family(catalogue, requested)
    with snapshot(host.mongo) as session:
        reads = PinnedReads(host.mongo, session)
        moment = read_moment(host, reads, catalogue, project, asked)
        scopes = moment.configuration.declared(asked)
        _require_named(requested, scopes)
        verdict = judged(host, catalogue, project, moment, scopes)
        if verdict.reason is ServeReason.SourceVisibilityFenced:
            raise Refusal(verdict.reason, f"project {project}")
        if verdict.reason is None:
            source, values = Source.MATERIALISED, _served(moment, scopes, verdict)
        else:
            source = Source.AUTHORITATIVE
            values = authoritative_values(reads, catalogue, project, moment.context, scopes)
    _count(source, verdict)
    return Bundle(project, values, source, verdict.reason, moment.watermarks, moment.fingerprint, verdict.detail)


def _count(source: Source, verdict: Verdict) -> None:
    if verdict.reason is None:
        telemetry.count("bundles.read", source=source)
    elif verdict.detail is None:
        telemetry.count("bundles.read", source=source, reason=verdict.reason)
    else:
        telemetry.count("bundles.read", source=source, reason=verdict.reason, detail=verdict.detail)


def closed_gate(
    host: Host, catalogue: AnyCatalogue, project: UUID, moment: Moment, scopes: Mapping[str, Sequence[str]]
) -> ServeReason | None:
    """The first closed gate of the bundle, or None."""
    return judged(host, catalogue, project, moment, scopes).reason


def judged(
    host: Host, catalogue: AnyCatalogue, project: UUID, moment: Moment, scopes: Mapping[str, Sequence[str]]
) -> Verdict:
    """Every gate of the bundle in its order, and after them what is pending, which can only close one more."""
    reason = _stored_gate(host, catalogue, project, moment, scopes)
    if reason is not None or moment.pending is None:
        return Verdict(reason)
    at = consumer_of(catalogue, moment.configuration, moment.fleet.reviewer_tracking_epoch)
    found = overlay(moment.pending, at, moment.rows, scopes)
    for violated in INVARIANT_VIOLATIONS.intersection(found.refused.values()):
        telemetry.count("overlay.invariant_violation", reason=violated)
    if found.refused:
        first = next(found.refused[family] for family in scopes if family in found.refused)
        return Verdict(ServeReason.PendingOverlayUnavailable, first)
    return Verdict(None, counters=found.counters)


def _stored_gate(
    host: Host, catalogue: AnyCatalogue, project: UUID, moment: Moment, scopes: Mapping[str, Sequence[str]]
) -> ServeReason | None:
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
    host: Host, reads: PinnedReads, catalogue: AnyCatalogue, project: UUID, asked: Mapping[str, Sequence[str] | None]
) -> Moment:
    """One command; the first time that this process meets a project that folded, one more, in the same snapshot.

    Before that the index of pending sets need not exist, and looking for them would be a walk over the source. Refuses
    ProjectNotFound.
    """
    known = project in host.folding_seen
    pipeline = queries.bundle(
        catalogue,
        project,
        asked,
        live_since=live_filter(reads.mongo),
        now=reads.mongo.clock.mongo_now(),
        pending_max=_PENDING_MAX if known else None,
    )
    found: dict[str, list[dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = []
    now: datetime | None = None
    documents = reads.raw(GLOBAL_CONTROL, pipeline)
    waiting = tuple(document for document in documents if document.startswith(_PENDING_SET, _FIRST_FIELD))
    for entry in reads.decoded(documents[: len(documents) - len(waiting)]):
        if "Kind" in entry:
            now = now or entry.get("Now")
            found.setdefault(entry["Kind"], []).append(entry["Document"])
        else:
            rows.append(entry)
    if "context" not in found:
        raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
    fleet = GlobalControl.from_bson(found["fleet"][0]) if "fleet" in found else GlobalControl()
    configuration = configuration_of(catalogue, found["context"][0], fleet.reviewer_tracking_mode)
    guards = [Guard.from_bson(guard) for guard in found.get("guard", [])]
    control = ProjectControl.from_bson(found["control"][0]) if "control" in found else None
    pending: Pending | None = None
    if control is not None and control.fold_ever_enabled and now is not None:
        if not known:
            waiting = tuple(reads.raw(catalogue.source_collection, queries.pending_sets(project, _PENDING_MAX)))
            host.folding_seen.add(project)
        pending = Pending(waiting, now)
    return Moment(
        fleet=fleet,
        control=control,
        context=configuration.context,
        configuration=configuration,
        guards={guard.id.family: guard for guard in guards},
        rows=served_rows(rows),
        members=tuple(Member.from_bson(member) for member in found.get("member", [])),
        pending=pending,
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


def _served(moment: Moment, scopes: Mapping[str, Sequence[str]], verdict: Verdict) -> dict[str, dict[str, Counters]]:
    served: dict[str, dict[str, Counters]] = {}
    for family, wanted in scopes.items():
        values = {scope: verdict.value_of(moment, family, scope) for scope in wanted}
        served[family] = {scope: of if all(of.values()) else without_zeros(of) for scope, of in values.items()}
    return served
