"""One try at rebuilding families of a project: lease, admit, calculate in one snapshot, publish.

What is published is the source at one moment B. Publication compares-and-sets the project's clocks against B's, so a
save that moved them in between makes it lose: exact, or a typed refusal, never an undercount. A try is not repeated
here; a backfill repeats it within its budget.

Where a project ever folded, a rebuild of what folds holds the fold's lease too. It first folds what is pending, and it
publishes what it counted less what is pending in B: saves that fold move no clock, and make no rebuild lose.

Several families share the leases' order, the admission, the snapshot and, where a pass is registered, the walk over the
source; each is then published by itself. Publications do not move the source clock, so none makes the next one lose.
After a loss or a crash between two of them some families are published and others are not, and every one is right: what
was published was exact at B, and whoever saved since has moved or staled it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.kernel.cancellation import require_not_cancelled
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import snapshot
from statlib.statistics import queries
from statlib.statistics.admission import admit, leased, no_fold, require_admissible, withdraw
from statlib.statistics.authoritative import PinnedReads, calculate
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.counters import Counters, without_zeros
from statlib.statistics.documents import ROW, Candidate, Row, TrackingMode
from statlib.statistics.fold.turn import drain
from statlib.statistics.gates import guard_gate, row_gate
from statlib.statistics.hosts import Host
from statlib.statistics.overlay import NOTHING_PENDING
from statlib.statistics.pending import Fingerprint
from statlib.statistics.publication import Publication, publish
from statlib.statistics.reasons import OperateReason
from statlib.statistics.state import ProjectState, require_state
from statlib.statistics.subtraction import Subtrahend, subtrahend

_LOSSES = (OperateReason.PublicationRaceLost, MongoReason.Contended, MongoReason.LeaseLost)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What one try did: scopes published, scopes left alone because they were current and right, and those that were
    current and wrong. ``pending``: what was taken off the count."""

    family: str
    published: tuple[str, ...]
    current: tuple[str, ...]
    drifted: tuple[str, ...]
    pending: Fingerprint = NOTHING_PENDING


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
    PublicationRaceLost, PendingNotDrained.

    A crash leaves a lease that runs out and a guard in Rebuilding, which the next try takes over.
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

    What refuses before anything is counted refuses all of them. PendingNotDrained of a family, or PublicationRaceLost,
    Contended or LeaseLost of its publication, is its own result, and the others go on.
    """
    _require_settings(host, catalogue, project, families)
    mongo = host.mongo
    _require_declared(mongo, catalogue, project, families)
    with leased(mongo, project, families) as leases, no_fold(host, catalogue, project, families) as fold_lease:
        if fold_lease is not None:
            drain(host, catalogue, project, fold_lease)
        candidates = admit(mongo, catalogue, project, leases)
        this = _Try(families, leases, fold_lease, candidates, force)
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
    fold_lease: Lease | None
    candidates: Mapping[str, Candidate]
    force: bool


@dataclass(frozen=True, slots=True)
class _Counted:
    """What snapshot B held of the families that can be published: their rows, their counts, and what was pending."""

    at: ProjectState
    rows: Mapping[tuple[str, str], Row]
    values: Mapping[str, Mapping[str, Counters]]
    waiting: Subtrahend

    def judge(self, family: str, wanted: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(current and right, current and wrong), of stored and pending together. A scope that the fold is about to
        stale is neither: its row lacks what nothing pending says. The guard was admitted as Rebuilding unless it was
        Fresh."""
        guard = self.at.guards[family]
        servable = [
            scope
            for scope in wanted
            if guard_gate(guard) is None
            and row_gate(self.rows.get((family, scope)), guard, self.at.stamp) is None
            and not self.waiting.will_stale(family, scope)
        ]
        right = tuple(s for s in servable if self._served(family, s) == self.values[family][s])
        return right, tuple(s for s in servable if s not in right)

    def to_publish(self, family: str, scopes: Iterable[str]) -> dict[str, Counters]:
        return {s: self.waiting.taken_off(self.values[family][s], family, s) for s in scopes}

    def _served(self, family: str, scope: str) -> dict[str, int]:
        return without_zeros(self.waiting.added_to(self.rows[family, scope].values, family, scope))


def _calculate_and_publish(
    mongo: Mongo, catalogue: AnyCatalogue, project: UUID, this: _Try, published: list[str]
) -> RebuiltTogether:
    """``published`` grows by each family whose candidate became visible."""
    with snapshot(mongo) as session:
        at = require_state(mongo, catalogue, session, project, list(this.asked))
        wanted = _declared(catalogue, this.asked, at.context)
        require_admissible(mongo, at, wanted)  # the fleet may have been opened since: it stales no guard
        waiting = _waiting(mongo, catalogue, session, this, at)
        rows = {
            (row.family, row.scope): row
            for row in map(
                Row.from_bson,
                mongo.collection(ROW).find(queries.visible_rows(project, wanted), session=session),
            )
        }
        lost = {family: _undrained(project, family, why) for family, why in waiting.undrained.items()}
        wanted = {family: scopes for family, scopes in wanted.items() if family not in lost}
        values = calculate(PinnedReads(mongo, session), catalogue, wanted, project, at.context)
    counted = _Counted(at, rows, values, waiting)
    rebuilt: dict[str, Rebuilt] = {}
    for family, scopes in wanted.items():
        current, drifted = counted.judge(family, scopes)
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
                        values=counted.to_publish(family, todo),
                        lease=this.leases[family],
                        fold_lease=this.fold_lease,
                    ),
                )
            except Refusal as refusal:
                if refusal.reason not in _LOSSES:
                    raise
                lost[family] = refusal
                continue
            published.append(family)
        kept = tuple(scope for scope in current if scope not in todo)
        rebuilt[family] = Rebuilt(family, todo, kept, drifted, waiting.pending)
    return RebuiltTogether(rebuilt, lost)


def _waiting(mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession, this: _Try, at: ProjectState) -> Subtrahend:
    """What is pending in the snapshot. Refuses PublicationRaceLost where the project began to fold meanwhile."""
    if not at.control.fold_ever_enabled or catalogue.folding.isdisjoint(this.asked):
        return Subtrahend()
    if this.fold_lease is None:
        raise Refusal(OperateReason.PublicationRaceLost, f"project {at.control.id} began to fold")
    return subtrahend(mongo, catalogue, session, at, this.asked)


def _undrained(project: UUID, family: str, why: str) -> Refusal:
    return Refusal(OperateReason.PendingNotDrained, f"{family} of project {project}: {why}")


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
