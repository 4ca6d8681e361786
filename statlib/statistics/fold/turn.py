"""A turn at one project: its fold lease, and batches until nothing is due, the turn is long enough or a rebuild waits.

A rebuild needs the same lease. It drains under its own, or asks for it: whoever folds stops after the batch at hand and
stays away as long as the request stands.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.mongo import leases
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import back_off
from statlib.passes.audit import server_time
from statlib.statistics import queries
from statlib.statistics.bounds import (
    FOLD_BATCHES_MAX,
    FOLD_LEASE_LEFT_MIN_S,
    FOLD_LEASE_TTL_S,
    FOLD_MIN_AGE_S,
    FOLD_YIELD_S,
    REBUILD_LEASE_TTL_S,
)
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import LEASE, MEMBER, Member
from statlib.statistics.fold.batch import Selection, anything
from statlib.statistics.fold.discard import discard
from statlib.statistics.fold.livelock import Livelock
from statlib.statistics.fold.quarantine import Caps
from statlib.statistics.fold.reports import report
from statlib.statistics.fold.transaction import Batch, End, Fold, fold_batch
from statlib.statistics.gates import agree
from statlib.statistics.hosts import Host, live_filter

ABORTS_MAX = 40  # in a row, with no document to blame: others write the project's control faster than this


class Stopped(StrEnum):
    """Why a turn ended."""

    DRAINED = "Drained"
    MORE = "More"  # the turn was long enough, or a document is left out for a moment
    YIELDED = "Yielded"  # a rebuild asked for the lease
    HELD = "Held"  # another worker, or a rebuild, has it
    EXCLUDED = "Excluded"  # this host's settings leave the project out
    DISAGREED = "Disagreed"  # live hosts differ about the project
    FOREIGN = "Foreign"  # it is stamped by a release that this one does not know
    LEASE_LOST = "LeaseLost"
    FAILED = "Failed"  # it could not be finished, for the ``failure`` told; nothing is lost by it


@dataclass
class Folded:
    """What one turn did, of which ``aborted`` tries did nothing. ``disabled``: its fold mode ended with it."""

    project: UUID
    stopped: Stopped = Stopped.DRAINED
    batches: int = 0
    aborted: int = 0
    documents: int = 0
    entries: int = 0
    quarantined: int = 0
    disabled: bool = False
    failure: str = ""

    def add(self, batch: Batch) -> None:
        self.disabled = self.disabled or batch.disabled
        if batch.end is End.ABORTED:
            self.aborted += 1
        if batch.end is End.FOLDED:
            self.batches += 1
            self.documents += len(batch.documents)
            self.entries += batch.entries
            self.quarantined += len(batch.quarantined)


def fold_project(
    host: Host,
    catalogue: AnyCatalogue,
    project: UUID,
    *,
    min_age_s: float = FOLD_MIN_AGE_S,
    livelock: Livelock | None = None,
    caps: Caps | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Folded:
    """One turn, of at most ``FOLD_BATCHES_MAX`` batches, under a lease of its own.

    ``livelock``: what this worker remembers of the project; ``stopping`` is asked after each batch. Raises
    PyMongoError where the server cannot be reached, and Refusal Contended.
    """
    host.require_open()
    mongo, folded, due = host.mongo, Folded(project), Selection(project, min_age_s=min_age_s)
    if not host.includes(project):
        folded.stopped = Stopped.EXCLUDED
    elif not _hosts_agree(mongo, project):
        folded.stopped = Stopped.DISAGREED
    elif _yield_is_requested(mongo, project):
        folded.stopped = Stopped.YIELDED
    else:
        try:
            held_since = mongo.clock.monotonic()
            with leases.held(mongo, LEASE, queries.fold_lease_id(project), FOLD_LEASE_TTL_S) as lease:
                fold = Fold(host, catalogue, project, lease, caps=caps or Caps())
                turn = _Turn(fold, livelock or Livelock(), folded, held_since)
                folded.stopped = turn.run(due, _after_a_batch(mongo, project, stopping))
            if folded.stopped is Stopped.DRAINED and anything(mongo, catalogue, None, due):
                folded.stopped = Stopped.MORE  # appended between the last look and the release
        except Refusal as refusal:
            if refusal.reason is not MongoReason.LeaseHeld:
                raise
            folded.stopped = Stopped.HELD
    return folded


def drain(
    host: Host,
    catalogue: AnyCatalogue,
    project: UUID,
    lease: Lease,
    *,
    ttl_s: float = REBUILD_LEASE_TTL_S,
    caps: Caps | None = None,
) -> Folded:
    """Fold everything that was pending when it began, however young, under the project's fold lease, which the caller
    holds and this renews for ``ttl_s`` at a time.

    What is appended meanwhile stays, so that a busy project cannot hold it for ever. Refuses LeaseLost, Contended.
    Entries of another release's protocol stamp are left pending (``Stopped.FOREIGN``).
    """
    host.require_open()
    folded = Folded(project)
    fold = Fold(host, catalogue, project, lease, lease_ttl_s=ttl_s, caps=caps or Caps())
    turn = _Turn(fold, Livelock(), folded, held_since=-math.inf)
    folded.stopped = turn.run(Selection(project, until=server_time(host.mongo)), None)
    if folded.stopped is Stopped.LEASE_LOST:
        raise Refusal(MongoReason.LeaseLost, f"the fold lease of project {project}")
    return folded


def request_yield(mongo: Mongo, project: UUID) -> None:
    """Ask whoever folds the project to let go of its lease after the batch at hand, and to stay away for
    ``FOLD_YIELD_S``. Repeatable; ``withdraw_yield`` once the lease was got."""
    until = {"YieldRequestedUntilUtc": mongo.clock.mongo_in(FOLD_YIELD_S)}
    mongo.collection(LEASE).update_one({"_id": queries.fold_lease_id(project)}, [{"$set": until}])


def withdraw_yield(mongo: Mongo, project: UUID) -> None:
    mongo.collection(LEASE).update_one(
        {"_id": queries.fold_lease_id(project)}, {"$unset": {"YieldRequestedUntilUtc": ""}}
    )


class _Turn:
    """Batches under one lease."""

    def __init__(self, fold: Fold, livelock: Livelock, folded: Folded, held_since: float) -> None:
        self._fold, self._livelock, self._folded = fold, livelock, folded
        self._renewed_at = held_since
        self._blameless_aborts = 0

    def run(self, due: Selection, interrupted: Callable[[int], Stopped | None] | None) -> Stopped:
        """``interrupted`` is asked after each try, with their number. Without it nothing ends the turn before nothing
        is left, and documents that are left out for a moment are waited for."""
        clock = self._fold.host.mongo.clock
        for tried in itertools.count():
            if tried and interrupted is not None and (reason := interrupted(tried)) is not None:
                return reason
            batch = self._next(due)
            match batch.end:
                case End.FOREIGN:
                    return Stopped.FOREIGN
                case End.LEASE_LOST:
                    return Stopped.LEASE_LOST
                case End.NOTHING_DUE:
                    wait_s = self._livelock.wait_s(clock.monotonic())
                    if interrupted is not None or not wait_s:
                        return Stopped.MORE if wait_s else Stopped.DRAINED
                    time.sleep(wait_s)
                case End.FOLDED | End.ABORTED:
                    pass
        raise AssertionError("unreachable: counting does not end")

    def _next(self, due: Selection) -> Batch:
        """Renew the lease if too little of it is left for a batch, fold one, and learn from how it ended."""
        clock = self._fold.host.mongo.clock
        begun = clock.monotonic()
        if begun - self._renewed_at > self._fold.lease_ttl_s - FOLD_LEASE_LEFT_MIN_S:
            try:
                leases.renew(self._fold.host.mongo, self._fold.lease, self._fold.lease_ttl_s)
            except Refusal:
                return Batch(End.LEASE_LOST)
            self._renewed_at = begun
        chosen = replace(due, docs_max=self._livelock.docs_max, skipped=self._livelock.skipped(begun))
        batch = fold_batch(self._fold, chosen)
        self._note(batch, begun)
        return batch

    def _note(self, batch: Batch, begun: float) -> None:
        report(batch, self._fold.catalogue)
        self._folded.add(batch)
        if batch.end is End.FOLDED:
            self._renewed_at, self._blameless_aborts = begun, 0
            self._livelock.folded(batch.documents)
        elif batch.end is End.ABORTED:
            self._after_an_abort(batch)

    def _after_an_abort(self, batch: Batch) -> None:
        if not batch.held_up:
            self._blameless_aborts += 1
            if self._blameless_aborts > ABORTS_MAX:
                raise Refusal(MongoReason.Contended, f"{ABORTS_MAX} batches of project {self._fold.project} in a row")
            back_off(self._blameless_aborts)
            return
        given_up = self._livelock.aborted(batch.documents, self._fold.host.mongo.clock.monotonic())
        if given_up is not None:
            begun = self._fold.host.mongo.clock.monotonic()
            self._note(discard(self._fold, given_up), begun)


def _after_a_batch(mongo: Mongo, project: UUID, stopping: Callable[[], bool]) -> Callable[[int], Stopped | None]:
    def interrupted(tried: int) -> Stopped | None:
        if tried >= FOLD_BATCHES_MAX or stopping():
            return Stopped.MORE
        return Stopped.YIELDED if _yield_is_requested(mongo, project) else None

    return interrupted


def _yield_is_requested(mongo: Mongo, project: UUID) -> bool:
    live = {"$expr": {"$gt": ["$YieldRequestedUntilUtc", mongo.clock.mongo_now()]}}
    found = mongo.collection(LEASE).find_one({"_id": queries.fold_lease_id(project), **live}, {"_id": 1})
    return found is not None


def _hosts_agree(mongo: Mongo, project: UUID) -> bool:
    members = [Member.from_bson(member) for member in mongo.collection(MEMBER).find(live_filter(mongo))]
    return agree(members, project, (), frozenset())
