"""One try at rebuilding families of a project: lease, admit, calculate in one snapshot, publish.

What is published is the source at one moment B. Publication compares-and-sets the project's clocks against B's, so a
save that committed in between makes it lose: exact, or a typed refusal, never an undercount. A try is not repeated
here; a backfill repeats it within its budget.

Several families share the leases' order, the admission, the snapshot and, where a pass is registered, the walk over the
source; each is then published by itself. Publications do not move the source clock, so none makes the next one lose.
After a loss or a crash between two of them some families are published and others are not, and every one is right: what
was published was exact at B, and whoever saved since has moved or staled it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from statlib.kernel.cancellation import require_not_cancelled
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import snapshot
from statlib.statistics import queries
from statlib.statistics.admission import admit, leased, require_admissible, withdraw
from statlib.statistics.authoritative import PinnedReads, calculate
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.counters import Counters, without_zeros
from statlib.statistics.documents import ROW, Candidate, Row, TrackingMode
from statlib.statistics.gates import guard_gate, row_gate
from statlib.statistics.hosts import Host
from statlib.statistics.publication import Publication, publish
from statlib.statistics.reasons import OperateReason
from statlib.statistics.state import ProjectState, require_state

_LOSSES = (OperateReason.PublicationRaceLost, MongoReason.Contended, MongoReason.LeaseLost)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What one try did: scopes published, and scopes left alone because they were current and right."""

    family: str
    published: tuple[str, ...]
    current: tuple[str, ...]
    drifted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RebuiltTogether:
    """Per family either what was done, or the typed loss that kept it from being published."""

    rebuilt: Mapping[str, Rebuilt]
    lost: Mapping[str, Refusal]


def rebuild(
    host: Host,
    catalogue: AnyCatalogue,
    project: UUID,
    family: str,
    *,
    scopes: Sequence[str] | None = None,
    force: bool = False,
) -> Rebuilt:
    """Rebuild ``scopes`` (None: all that are declared); without ``force`` those that are current and right are skipped.

    Refuses FamilyUnknown, ScopeUnknown, ProjectNotFound, SettingsExclude, ControlMissing, GateClosed,
    VersionIncompatible, WriterGracePending, FenceActive, SourceVisibilityFenced, LeaseHeld, LeaseLost,
    PublicationRaceLost. A crash leaves a lease that runs out and a guard in Rebuilding, which the next try takes over.
    """
    done = rebuild_together(host, catalogue, project, {family: scopes}, force=force)
    if family in done.lost:
        raise done.lost[family]
    return done.rebuilt[family]


def rebuild_together(
    host: Host,
    catalogue: AnyCatalogue,
    project: UUID,
    families: Mapping[str, Sequence[str] | None],
    *,
    force: bool = False,
) -> RebuiltTogether:
    """As ``rebuild``, for several families (scopes per family, None: all) counted in one snapshot.

    What refuses before anything is counted refuses all of them. PublicationRaceLost, Contended and LeaseLost of one
    family's publication are its own result, and the others go on.
    """
    _require_settings(host, catalogue, project, families)
    mongo = host.mongo
    _require_declared(mongo, catalogue, project, families)
    with leased(mongo, project, families) as leases:
        candidates = admit(mongo, catalogue, project, leases)
        this = _Try(families, leases, candidates, force)
        published: list[str] = []
        try:
            require_not_cancelled()
            return _calculate_and_publish(mongo, catalogue, project, this, published)
        finally:
            withdraw(mongo, project, {f: candidate for f, candidate in candidates.items() if f not in published})


def require_rebuildable(host: Host, catalogue: AnyCatalogue, project: UUID, families: Sequence[str]) -> None:
    """Refuse what a rebuild would refuse for settings, gates, grace or fences. Writes nothing."""
    _require_settings(host, catalogue, project, families)
    with snapshot(host.mongo) as session:
        state = require_state(host.mongo, catalogue, session, project, families)
        require_admissible(host.mongo, state, families)


def _require_settings(
    host: Host, catalogue: AnyCatalogue, project: UUID, families: Sequence[str] | Mapping[str, object]
) -> None:
    host.require_open()
    if not families:
        raise Refusal(OperateReason.FamilyUnknown, "a rebuild names at least one family")
    for family in families:
        if family not in catalogue.families:
            raise Refusal(OperateReason.FamilyUnknown, family)
    excluded = [family for family in families if not host.includes(project) or family not in host.families]
    if excluded:
        if host.mongo.collection(catalogue.context_collection).find_one({"_id": project}, {"_id": 1}) is None:
            raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
        raise Refusal(OperateReason.SettingsExclude, f"{', '.join(excluded)} of project {project}")


@dataclass(frozen=True, slots=True)
class _Try:
    """``asked``: scopes per family, None for all that the project declares at the snapshot."""

    asked: Mapping[str, Sequence[str] | None]
    leases: Mapping[str, Lease]
    candidates: Mapping[str, Candidate]
    force: bool


def _calculate_and_publish(
    mongo: Mongo, catalogue: AnyCatalogue, project: UUID, this: _Try, published: list[str]
) -> RebuiltTogether:
    """``published`` grows by each family whose candidate became visible."""
    with snapshot(mongo) as session:
        at = require_state(mongo, catalogue, session, project, list(this.asked))
        wanted = _declared(catalogue, this.asked, at.context)
        require_admissible(mongo, at, wanted)  # the fleet may have been opened since: it stales no guard
        rows = {
            (row.family, row.scope): row
            for row in map(
                Row.from_bson,
                mongo.collection(ROW).find(queries.visible_rows(project, wanted), session=session),
            )
        }
        counted = calculate(PinnedReads(mongo, session), catalogue, wanted, project, at.context)
    rebuilt: dict[str, Rebuilt] = {}
    lost: dict[str, Refusal] = {}
    for family, scopes in wanted.items():
        current, drifted = _judge(at, family, scopes, rows, counted[family])
        todo = tuple(scope for scope in scopes if this.force or scope not in current)
        if todo or not current:  # else nothing rests on the clocks, so no save may make this family lose
            require_not_cancelled()
            try:
                publish(
                    mongo,
                    catalogue,
                    Publication(
                        project=project,
                        family=family,
                        candidate=this.candidates[family],
                        at=at,
                        values={scope: counted[family][scope] for scope in todo},
                        lease=this.leases[family],
                    ),
                )
            except Refusal as refusal:
                if refusal.reason not in _LOSSES:
                    raise
                lost[family] = refusal
                continue
            published.append(family)
        rebuilt[family] = Rebuilt(family, todo, tuple(s for s in current if s not in todo), drifted)
    return RebuiltTogether(rebuilt, lost)


def _judge(
    at: ProjectState,
    family: str,
    wanted: Sequence[str],
    rows: Mapping[tuple[str, str], Row],
    counted: Mapping[str, Counters],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(current and right, current and wrong). The guard was admitted as Rebuilding unless it was Fresh."""
    guard = at.guards[family]
    servable = [
        scope
        for scope in wanted
        if guard_gate(guard) is None and row_gate(rows.get((family, scope)), guard, at.stamp) is None
    ]
    right = tuple(s for s in servable if without_zeros(rows[family, s].values) == counted[s])
    return right, tuple(s for s in servable if s not in right)


def _require_declared(
    mongo: Mongo, catalogue: AnyCatalogue, project: UUID, asked: Mapping[str, Sequence[str] | None]
) -> None:
    """Refuse an unknown scope while nothing is written yet. The snapshot decides again: an edit may come between."""
    document = mongo.collection(catalogue.context_collection).find_one({"_id": project})
    if document is None:
        raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
    _declared(catalogue, asked, catalogue.domain.context(document, TrackingMode.TRACKED))


def _declared(
    catalogue: AnyCatalogue, asked: Mapping[str, Sequence[str] | None], context: Any
) -> dict[str, tuple[str, ...]]:
    wanted: dict[str, tuple[str, ...]] = {}
    for family, scopes in asked.items():
        known = catalogue.family(family).declared_scopes(context)
        unknown = set(scopes or ()) - set(known)
        if unknown:
            raise Refusal(OperateReason.ScopeUnknown, f"{family}: {', '.join(sorted(unknown))}")
        wanted[family] = known if scopes is None else tuple(dict.fromkeys(scopes))
    return wanted
