"""Admission of rebuilds: under which leases, past which gates, and with which candidates in the guards.

The lease is of a family in a project and covers all of its scopes. A lease per scope would let two rebuilds of sibling
scopes run side by side, of which the family's one candidate lets only the later publish: the earlier one would have
counted in vain. What makes a publication safe is the candidate and the clocks; the lease makes sure that an owner which
froze and woke publishes nothing, and that nobody counts what somebody else is counting. Both hold as well for the
family as for each of its scopes, and the nine families of a project with 172 scopes cost nine leases.

A rebuild of what folds takes the fold's lease of the project as well, which is its only wait: whoever folds has it for
one batch more at most.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from statlib.kernel.cancellation import require_not_cancelled
from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.lease_keeping import kept
from statlib.mongo.leases import Lease, acquire, fence, held, release
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import snapshot, transact
from statlib.statistics import queries
from statlib.statistics.arms import gate_open
from statlib.statistics.bounds import FOLD_YIELD_S, REBUILD_HELD_MAX_S, REBUILD_LEASE_TTL_S
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import CONTROL, GUARD, LEASE, Candidate, Guard, GuardId, State
from statlib.statistics.fold.turn import request_yield, withdraw_yield
from statlib.statistics.hosts import Host
from statlib.statistics.lifecycle import require
from statlib.statistics.reasons import OperateReason, ServeReason
from statlib.statistics.state import ProjectState, require_state
from statlib.statistics.unit import Overtaken, Unit

_POLL_S = 0.1


def lease_id(project: UUID, family: str) -> dict[str, Any]:
    return {"ProjectId": project, "Family": family}


@contextmanager
def leased(mongo: Mongo, project: UUID, families: Iterable[str]) -> Iterator[dict[str, Lease]]:
    """One lease per family, kept while the block runs. Taken in one order everywhere, and never waited for: of two
    rebuilds of overlapping families one is refused LeaseHeld, and gives back what it has."""
    with ExitStack() as stack:
        leases = {
            family: stack.enter_context(held(mongo, LEASE, lease_id(project, family), REBUILD_LEASE_TTL_S))
            for family in sorted(families)
        }
        stack.enter_context(kept(mongo, leases.values(), REBUILD_LEASE_TTL_S, longest_s=REBUILD_HELD_MAX_S))
        yield leases


@contextmanager
def no_fold(host: Host, catalogue: AnyCatalogue, project: UUID, families: Iterable[str]) -> Iterator[Lease | None]:
    """The project's fold lease, kept while the block runs; None where nothing folds, or ever did.

    Asks whoever has it to let go, and waits ``FOLD_YIELD_S`` at most. Refuses LeaseHeld after that, and before it
    whatever ``require_admissible`` does: nobody waits for what would be refused.
    """
    mongo, asked = host.mongo, list(families)
    if catalogue.folding.isdisjoint(asked) or not _ever_folded(host, project):
        yield None
        return
    with snapshot(mongo) as session:
        require_admissible(mongo, require_state(mongo, catalogue, session, project, asked), asked)
    lease = _waited_for(mongo, project)
    try:
        with kept(mongo, [lease], REBUILD_LEASE_TTL_S, longest_s=REBUILD_HELD_MAX_S):
            yield lease
    finally:
        release(mongo, lease)


def _ever_folded(host: Host, project: UUID) -> bool:
    if project in host.folding_seen:
        return True
    control = host.mongo.collection(CONTROL).find_one({"_id": project}, {"FoldEverEnabled": 1})
    return control is not None and bool(control.get("FoldEverEnabled"))


def _waited_for(mongo: Mongo, project: UUID) -> Lease:
    """In real time: a test's clock does not hurry whoever folds."""
    begun = asked = time.monotonic()
    try:
        return acquire(mongo, LEASE, queries.fold_lease_id(project), REBUILD_LEASE_TTL_S)
    except Refusal as refusal:
        if refusal.reason is not MongoReason.LeaseHeld:
            raise
    request_yield(mongo, project)
    while True:
        require_not_cancelled()
        time.sleep(_POLL_S)
        try:
            lease = acquire(mongo, LEASE, queries.fold_lease_id(project), REBUILD_LEASE_TTL_S)
        except Refusal as refusal:
            now = time.monotonic()
            if refusal.reason is not MongoReason.LeaseHeld or now - begun > FOLD_YIELD_S:
                raise
            if now - asked > FOLD_YIELD_S / 3:  # another rebuild may have got it, and withdrawn the request
                request_yield(mongo, project)
                asked = now
        else:
            withdraw_yield(mongo, project)
            return lease


def admit(mongo: Mongo, catalogue: AnyCatalogue, project: UUID, leases: Mapping[str, Lease]) -> dict[str, Candidate]:
    """Check the gates and put a candidate into the guard of each leased family, in one transaction: all or none."""

    def body(session: ClientSession) -> dict[str, Candidate]:
        fence(mongo, session, *leases.values())
        state = require_state(mongo, catalogue, session, project, sorted(leases))
        require_admissible(mongo, state, leases)
        unit = Unit(mongo, session, state)
        known = {family: state.guards[family] for family in leases if family in state.guards}
        new = [_guard(project, family) for family in leases if family not in known]
        candidates = {guard.id.family: _next_candidate(guard) for guard in (*known.values(), *new)}
        unit.update_guards({f: _admitted(guard, candidates[f]) for f, guard in known.items()})
        unit.insert(GUARD, [_first(guard, candidates[guard.id.family]) for guard in new])
        return candidates

    try:
        return transact(mongo, body)
    except Overtaken as error:
        raise Refusal(MongoReason.Contended, f"another rebuild of {', '.join(leases)} came first") from error


def require_admissible(mongo: Mongo, state: ProjectState, families: Iterable[str]) -> None:
    """Refuses GateClosed, VersionIncompatible, SourceVisibilityFenced, FenceActive, WriterGracePending."""
    control = state.control
    if not gate_open(state.fleet, control):
        raise Refusal(OperateReason.GateClosed, f"project {control.id}")
    if not state.versions_match:
        raise Refusal(ServeReason.VersionIncompatible, f"project {control.id}")
    if control.inclusion_recalculation_token is not None or control.definition_rewrite_token is not None:
        raise Refusal(ServeReason.SourceVisibilityFenced, f"project {control.id}")
    for family in families:
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


def withdraw(mongo: Mongo, project: UUID, candidates: Mapping[str, Candidate]) -> None:
    """Take candidates out that are still there, in one command.

    What was not Fresh before is Stale again; a Fresh guard still is what it was.
    """
    without = [
        {
            "$set": {
                "State": {"$cond": [{"$eq": ["$State", State.REBUILDING.value]}, State.STALE.value, "$State"]},
                "Candidate": None,
                "Version": {"$add": ["$Version", 1]},
            }
        }
    ]
    writes = [
        UpdateOne({"_id": queries.guard_id(project, family), "Candidate.Token": candidate.token}, without)
        for family, candidate in candidates.items()
    ]
    if writes:
        mongo.collection(GUARD).bulk_write(writes, ordered=False)


def _guard(project: UUID, family: str) -> Guard:
    return Guard(id=GuardId(project_id=project, family=family))


def _next_candidate(guard: Guard) -> Candidate:
    return Candidate(generation=guard.visible_generation + 1, token=new_token(), owner=new_token())


def _admitted(guard: Guard, candidate: Candidate) -> dict[str, Any]:
    """A Fresh family stays served while it is rebuilt."""
    after = State.FRESH if guard.state is State.FRESH else require(guard.state, State.REBUILDING)
    return {"$set": {"State": after.value, "Candidate": candidate.to_bson()}, "$inc": {"Version": 1}}


def _first(guard: Guard, candidate: Candidate) -> dict[str, Any]:
    return {**guard.to_bson(), **_admitted(guard, candidate)["$set"], "Version": 1}
