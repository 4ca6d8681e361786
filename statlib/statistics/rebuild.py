"""One try at rebuilding a family's scopes: lease, admit, calculate in one snapshot, publish.

What is published is the source at one moment B. Publication compares-and-sets the project's clocks against B's, so a
save that committed in between makes it lose: exact, or a typed refusal, never an undercount. A try is not repeated
here; a backfill repeats it within its budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from statlib.kernel.cancellation import require_not_cancelled
from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease, fence, held
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import snapshot, transact
from statlib.statistics import queries
from statlib.statistics.arms import gate_open
from statlib.statistics.authoritative import PinnedReads, calculate
from statlib.statistics.bounds import REBUILD_LEASE_TTL_S
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.counters import Counters, without_zeros
from statlib.statistics.documents import GUARD, LEASE, ROW, Candidate, Guard, GuardId, Row, State, TrackingMode
from statlib.statistics.gates import guard_gate, row_gate
from statlib.statistics.hosts import Host
from statlib.statistics.lifecycle import require
from statlib.statistics.publication import Publication, publish
from statlib.statistics.reasons import OperateReason, ServeReason
from statlib.statistics.state import ProjectState, require_state


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What one try did: scopes published, and scopes left alone because they were current and right."""

    family: str
    published: tuple[str, ...]
    current: tuple[str, ...]
    drifted: tuple[str, ...]


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
    _require_settings(host, catalogue, project, family)
    mongo = host.mongo
    wanted = _declared(mongo, catalogue, project, family, scopes)
    with _leases(mongo, project, family, wanted) as leases:
        candidate = _admit(mongo, catalogue, project, family, leases)
        try:
            require_not_cancelled()
            return _calculate_and_publish(mongo, catalogue, project, _Try(family, wanted, leases, candidate, force))
        except BaseException:
            _withdraw(mongo, project, family, candidate)
            raise


def require_rebuildable(host: Host, catalogue: AnyCatalogue, project: UUID, family: str) -> None:
    """Refuse what ``rebuild`` would refuse for settings, gates, grace or fences. Writes nothing."""
    _require_settings(host, catalogue, project, family)
    with snapshot(host.mongo) as session:
        _require_admissible(host.mongo, require_state(host.mongo, catalogue, session, project, [family]), family)


def _require_settings(host: Host, catalogue: AnyCatalogue, project: UUID, family: str) -> None:
    host.require_open()
    if family not in catalogue.families:
        raise Refusal(OperateReason.FamilyUnknown, family)
    if not host.includes(project) or family not in host.families:
        if host.mongo.collection(catalogue.context_collection).find_one({"_id": project}, {"_id": 1}) is None:
            raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
        raise Refusal(OperateReason.SettingsExclude, f"{family} of project {project}")


@dataclass(frozen=True, slots=True)
class _Try:
    family: str
    wanted: tuple[str, ...]
    leases: Mapping[str, Lease]
    candidate: Candidate
    force: bool


def _calculate_and_publish(mongo: Mongo, catalogue: AnyCatalogue, project: UUID, this: _Try) -> Rebuilt:
    with snapshot(mongo) as session:
        at = require_state(mongo, catalogue, session, project, [this.family])
        _require_admissible(mongo, at, this.family)  # the fleet may have been opened since: it stales no guard
        rows = {
            row.scope: row
            for row in map(
                Row.from_bson,
                mongo.collection(ROW).find(queries.visible_rows(project, {this.family: this.wanted}), session=session),
            )
        }
        counted = calculate(PinnedReads(mongo, session), catalogue, this.family, project, at.context)
    current, drifted = _judge(at, this, rows, counted)
    todo = [scope for scope in this.wanted if this.force or scope not in current]
    if current and not todo:  # nothing rests on the clocks, so no save may make this try lose
        _withdraw(mongo, project, this.family, this.candidate)
        return Rebuilt(this.family, (), current, ())
    require_not_cancelled()
    publish(
        mongo,
        catalogue,
        Publication(
            project=project,
            family=this.family,
            candidate=this.candidate,
            at=at,
            values={scope: counted[scope] for scope in todo},
            leases=this.leases,
        ),
    )
    return Rebuilt(this.family, tuple(todo), tuple(s for s in current if s not in todo), drifted)


def _judge(
    at: ProjectState, this: _Try, rows: Mapping[str, Row], counted: Mapping[str, Counters]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(current and right, current and wrong). The guard was admitted as Rebuilding unless it was Fresh."""
    guard = at.guards[this.family]
    servable = [
        scope
        for scope in this.wanted
        if guard_gate(guard) is None and row_gate(rows.get(scope), guard, at.stamp) is None
    ]
    right = tuple(s for s in servable if without_zeros(rows[s].values) == counted[s])
    return right, tuple(s for s in servable if s not in right)


def _declared(
    mongo: Mongo, catalogue: AnyCatalogue, project: UUID, family: str, scopes: Sequence[str] | None
) -> tuple[str, ...]:
    document = mongo.collection(catalogue.context_collection).find_one({"_id": project})
    if document is None:
        raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
    known = catalogue.family(family).declared_scopes(catalogue.domain.context(document, TrackingMode.TRACKED))
    unknown = set(scopes or ()) - set(known)
    if unknown:
        raise Refusal(OperateReason.ScopeUnknown, f"{family}: {', '.join(sorted(unknown))}")
    return known if scopes is None else tuple(dict.fromkeys(scopes))


@contextmanager
def _leases(mongo: Mongo, project: UUID, family: str, scopes: Sequence[str]) -> Iterator[dict[str, Lease]]:
    """One lease per scope, taken in one order everywhere, so that two rebuilds cannot wait for each other."""
    with ExitStack() as stack:
        yield {
            scope: stack.enter_context(
                held(mongo, LEASE, queries.lease_id(project, family, scope), REBUILD_LEASE_TTL_S)
            )
            for scope in sorted(scopes)
        }


def _admit(mongo: Mongo, catalogue: AnyCatalogue, project: UUID, family: str, leases: Mapping[str, Lease]) -> Candidate:
    """Check the gates and put this rebuild's candidate into the guard, in one transaction."""

    def body(session: ClientSession) -> Candidate:
        fence(mongo, session, *leases.values())
        state = require_state(mongo, catalogue, session, project, [family])
        _require_admissible(mongo, state, family)
        guard = state.guards.get(family) or Guard(id=GuardId(project_id=project, family=family))
        candidate = Candidate(generation=guard.visible_generation + 1, token=new_token(), owner=new_token())
        after = State.FRESH if guard.state is State.FRESH else require(guard.state, State.REBUILDING)
        _write_guard(mongo, session, guard, {"State": after.value, "Candidate": candidate.to_bson()})
        return candidate

    return transact(mongo, body)


def _require_admissible(mongo: Mongo, state: ProjectState, family: str) -> None:
    control = state.control
    if not gate_open(state.fleet, control):
        raise Refusal(OperateReason.GateClosed, f"project {control.id}")
    if not state.versions_match:
        raise Refusal(ServeReason.VersionIncompatible, f"project {control.id}")
    if control.inclusion_recalculation_token is not None or control.definition_rewrite_token is not None:
        raise Refusal(ServeReason.SourceVisibilityFenced, f"project {control.id}")
    guard = state.guards.get(family)
    if guard is not None and guard.active_fence_count:
        raise Refusal(ServeReason.FenceActive, f"{family} of project {control.id}")
    grace_s = mongo.settings.statistics.opening_grace_s
    for opened in (state.fleet.opened_at_utc, control.opened_at_utc):
        if opened is not None and (left_s := grace_s - (state.now - opened).total_seconds()) > 0:
            raise Refusal(
                OperateReason.WriterGracePending,
                f"{left_s:.0f} s of {grace_s:.0f} s left",
                state={"leftSeconds": left_s},
            )


def _write_guard(mongo: Mongo, session: ClientSession, guard: Guard, fields: Mapping[str, Any]) -> None:
    if guard.state is State.MISSING and guard.version == 0:
        document = {**guard.to_bson(), **fields, "Version": 1}
        try:
            mongo.collection(GUARD).insert_one(document, session=session)
        except DuplicateKeyError as error:
            raise Refusal(MongoReason.Contended, f"another rebuild of {guard.id.family} came first") from error
        return
    mongo.collection(GUARD).update_one(
        {"_id": guard.id.to_bson(), "Version": guard.version},
        {"$set": dict(fields), "$inc": {"Version": 1}},
        session=session,
    )


def _withdraw(mongo: Mongo, project: UUID, family: str, candidate: Candidate) -> None:
    """Withdraw the candidate. What was not Fresh before is Stale again; a Fresh guard still is what it was."""
    guards = mongo.collection(GUARD)
    mine = {"_id": queries.guard_id(project, family), "Candidate.Token": candidate.token}
    guards.update_one(
        mine,
        [
            {
                "$set": {
                    "State": {"$cond": [{"$eq": ["$State", State.REBUILDING.value]}, State.STALE.value, "$State"]},
                    "Candidate": None,
                    "Version": {"$add": ["$Version", 1]},
                }
            }
        ],
    )
