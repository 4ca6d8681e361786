"""Fences: what operations that rewrite many source documents hold while they do.

A staged operation (search import and removal, bulk update) makes the families that it disturbs unservable, and counts
itself into their guards: until it has ended, nobody publishes them. An operation that rewrites what the source *means*
(inclusion recalculation, definition rewrite) also hides the whole source behind a token: readers are refused, saves
stale, rebuilds refuse.

Either has one document per project and kind, held under a lease. Invariants: every chunk proves the lease by writing
it, so an owner that froze and woke late changes nothing; the guards count an operation once, from its admission to its
end, however many owners it has had; a token is only ever cleared by the exact operation that it was set for.

An operation whose owner died stays in force: half of its work is done. The next one of its kind takes it over, or an
operator settles it. No rebuild does so by itself: what it published would make half an import look like a finished one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError

from statlib.kernel.cancellation import require_not_cancelled
from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Fault, Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease, release
from statlib.mongo.leases import fence as prove
from statlib.passes.audit import Action, accept, server_time
from statlib.statistics import queries
from statlib.statistics.bounds import FENCE_LEASE_TTL_S
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import (
    CONTROL,
    FENCE,
    GUARD,
    TOKEN_FIELDS,
    Fence,
    FenceId,
    FenceKind,
)
from statlib.statistics.edits import (
    ContextChange,
    Edited,
    Requirement,
    edit_within,
    state_for_writing,
    undisturbed,
)
from statlib.statistics.hosts import Host
from statlib.statistics.invalidation import Invalidation, invalidate
from statlib.statistics.population import notify
from statlib.statistics.reasons import FenceReason, ServeReason
from statlib.statistics.state import ProjectState, read_state
from statlib.statistics.unit import Unit

Progress = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be admitted. ``change``: an edit of the project that commits with the admission; ``require`` may
    refuse it, in the same transaction. A staged operation has no edit: another one's place may be taken.

    ``intent`` (JSON values) is all that whoever takes the operation over will know of it.
    """

    kind: FenceKind
    families: frozenset[str]
    intent: Mapping[str, Any]
    change: ContextChange | None = None
    require: Requirement | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """An operation under way, and whose it is.

    ``resumed``: an interrupted one of the same intent, at its stored progress; its edit was committed with it.
    ``abandoned``: the intent of an interrupted one whose place this one took. ``foreign``: this *is* the interrupted
    one, which must be completed before anything else of its kind.
    """

    host: Host
    catalogue: AnyCatalogue
    fence: Fence
    resumed: bool = False
    abandoned: Mapping[str, Any] | None = None
    foreign: bool = False
    edited: Edited | None = None

    @property
    def project(self) -> UUID:
        return self.fence.id.project_id

    @property
    def lease(self) -> Lease:
        return _lease_of(self.fence)


@dataclass(frozen=True, slots=True)
class Standing:
    """A fence in force. ``interrupted``: its lease has run out, so its owner is gone or too late."""

    fence: Fence
    interrupted: bool


def admit(host: Host, catalogue: AnyCatalogue, project: UUID, asked: Asked) -> Held:
    """Begin an operation, or take over an interrupted one of its kind, in one transaction.

    Refuses ProjectNotFound, GateSkew, FenceHeld (a living owner), SourceVisibilityFenced (a token that nobody here
    knows), and what the edit refuses.
    """
    host.require_open()

    def body(session: ClientSession) -> Held:
        state = state_for_writing(host, catalogue, session, project)
        found, now = _find(host.mongo, session, project, asked.kind)
        if found is None or not found.active:
            return _begin(host, catalogue, session, project, state, asked, found, now)
        if found.expires_at_utc > now:
            raise _held(found)
        return _take_over(host, catalogue, session, state, asked, found)

    return undisturbed(host.mongo, body)


def chunk(held: Held, body: Callable[[ClientSession], Progress]) -> Progress:
    """One bounded step: ``body`` writes source documents in this transaction and returns how far the operation is.

    The lease is proved first and prolonged last, and the clocks of a source that is read meanwhile move: no checkpoint
    identity ever names two states of it.

    Refuses LeaseLost (nothing was written), Contended, and Cancelled before it begins.
    """
    require_not_cancelled()
    mongo = held.host.mongo

    def step(session: ClientSession) -> Progress:
        prove(mongo, session, held.lease)
        _disturb(held, session)
        progress = body(session)
        mongo.collection(FENCE).update_one(
            {"_id": held.fence.id.to_bson()},
            [
                {
                    "$set": {
                        "Progress": {"$literal": dict(progress)},
                        "ExpiresAtUtc": mongo.clock.mongo_in(FENCE_LEASE_TTL_S),
                    }
                }
            ],
            session=session,
        )
        return progress

    return undisturbed(mongo, step)


def finish(held: Held, change: ContextChange | None = None) -> Edited | None:
    """End the operation: the guards count it no more and stay Stale, its token is cleared, and ``change`` commits.

    Refuses LeaseLost.
    """
    mongo = held.host.mongo

    def body(session: ClientSession) -> Edited | None:
        prove(mongo, session, held.lease)
        fence = _require(_find(mongo, session, held.project, held.fence.id.kind)[0])
        edited = None
        if change is not None:
            state = read_state(mongo, held.catalogue, session, held.project, tuple(held.catalogue.families))
            edited = edit_within(mongo, held.catalogue, session, held.project, state, change)
        _end(mongo, session, fence, held.catalogue.families)
        return edited

    return undisturbed(mongo, body)


@contextmanager
def underway(held: Held) -> Iterator[Held]:
    """Whoever leaves the block early (refused, cancelled, failed) lets go of the lease: the operation stays in force,
    and the next owner need not wait for it to run out."""
    try:
        yield held
    except BaseException:
        with suppress(PyMongoError):  # then it runs out
            release(held.host.mongo, held.lease)
        raise


def standing(mongo: Mongo, project: UUID) -> tuple[Standing, ...]:
    """Every fence in force in a project."""
    pipeline: list[dict[str, Any]] = [
        {"$match": {"_id.ProjectId": project, "Active": True}},
        {"$project": {"Fence": "$$ROOT", "Interrupted": {"$lte": ["$ExpiresAtUtc", mongo.clock.mongo_now()]}}},
        {"$sort": {"_id": 1}},
    ]
    found = mongo.collection(FENCE).aggregate(pipeline)
    return tuple(Standing(Fence.from_bson(one["Fence"]), bool(one["Interrupted"])) for one in found)


def last_of(mongo: Mongo, project: UUID, kind: FenceKind) -> Fence | None:
    """The project's last operation of a kind, be it under way or ended."""
    found = mongo.collection(FENCE).find_one({"_id": FenceId(project_id=project, kind=kind).to_bson()})
    return Fence.from_bson(found) if found else None


def take_over_interrupted(host: Host, catalogue: AnyCatalogue, project: UUID, kind: FenceKind) -> Held:
    """The interrupted operation itself, to be completed. Refuses FenceUnknown, FenceHeld."""

    def body(session: ClientSession) -> Held:
        found, _ = _require_interrupted(host.mongo, session, project, kind)
        return _own(host, catalogue, session, found)

    return undisturbed(host.mongo, body)


def release_interrupted(mongo: Mongo, project: UUID, kind: FenceKind, *, action: Action | None = None) -> Fence:
    """Give up an interrupted staged operation: what it did stays, its families are Stale and may be rebuilt.

    Refuses FenceUnknown, FenceHeld, and FenceMustComplete for an operation that hides the source.
    """
    if kind in TOKEN_FIELDS:
        raise Refusal(FenceReason.FenceMustComplete, kind.value)

    def body(session: ClientSession) -> Fence:
        fence, now = _require_interrupted(mongo, session, project, kind)
        _end(mongo, session, fence, fence.families)
        if action is not None:
            accept(mongo, session, action, before={}, after=as_wire(Standing(fence, True)), now=now)
        return fence

    return undisturbed(mongo, body)


def as_wire(one: Standing) -> dict[str, Any]:
    """JSON values of a fence as operators see it."""
    fence = one.fence
    return {
        "kind": fence.id.kind.value,
        "interrupted": one.interrupted,
        "families": sorted(fence.families),
        "startedAtUtc": fence.started_at_utc.isoformat(),
        "expiresAtUtc": fence.expires_at_utc.isoformat(),
        "intent": fence.intent,
        "progress": {name: value for name, value in fence.progress.items() if isinstance(value, int)},
    }


def _begin(  # noqa: PLR0917 - everything that an admission is decided by
    host: Host,
    catalogue: AnyCatalogue,
    session: ClientSession,
    project: UUID,
    state: ProjectState | None,
    asked: Asked,
    before: Fence | None,
    now: datetime,
) -> Held:
    mongo = host.mongo
    fence = Fence(
        id=FenceId(project_id=project, kind=asked.kind),
        active=True,
        owner=new_token(),
        lease_generation=before.lease_generation + 1 if before else 1,
        expires_at_utc=now,
        started_at_utc=now,
        counted=state is not None,
        families=sorted(asked.families),
        token=new_token(),
        intent=dict(asked.intent),
    )
    edited = None
    if asked.change is not None:
        edited = edit_within(
            mongo,
            catalogue,
            session,
            project,
            state,
            asked.change,
            further=lambda unit, what: _raise(unit, fence, what),
        )
    elif state is not None:
        _raise(Unit(mongo, session, state), fence, Invalidation())
    if asked.require is not None:
        asked.require(session)
    mongo.collection(FENCE).replace_one({"_id": fence.id.to_bson()}, fence.to_bson(), upsert=True, session=session)
    _prolong(mongo, session, fence)
    return Held(host, catalogue, fence, edited=edited)


def _raise(unit: Unit, fence: Fence, what: Invalidation) -> None:
    """Make the families unservable until the operation has ended, and the source unreadable if its kind does that."""
    field = TOKEN_FIELDS.get(fence.id.kind)
    if field is None:
        counted = Invalidation(frozenset(fence.families), {})
        invalidate(unit, counted, fence=True)
        return
    families = what.families | frozenset(fence.families)
    invalidate(unit, Invalidation(families, what.scopes))
    hidden = unit.mongo.collection(CONTROL).update_one(
        {"_id": unit.control.id, field: None}, {"$set": {field: fence.token}}, session=unit.session
    )
    if hidden.matched_count != 1:
        raise Refusal(ServeReason.SourceVisibilityFenced, f"project {unit.control.id}: {field} is held")


def _take_over(  # noqa: PLR0917 - everything that a taking over is decided by
    host: Host, catalogue: AnyCatalogue, session: ClientSession, state: ProjectState | None, asked: Asked, found: Fence
) -> Held:
    if found.intent == dict(asked.intent):
        return _own(host, catalogue, session, found, resumed=True)
    if found.id.kind in TOKEN_FIELDS:
        return _own(host, catalogue, session, found, foreign=True)
    if asked.require is not None:
        asked.require(session)
    further = asked.families.difference(found.families)  # the guards of the others count it already
    if further and found.counted and state is not None:
        invalidate(Unit(host.mongo, session, state), Invalidation(further, {}), fence=True)
    families = sorted(asked.families.union(found.families))
    renewed = found.model_copy(update={"intent": dict(asked.intent), "progress": {}, "families": families})
    return _own(host, catalogue, session, renewed, abandoned=found.intent)


def _own(host: Host, catalogue: AnyCatalogue, session: ClientSession, fence: Fence, **how: Any) -> Held:
    """Put a new owner on it. The guards go on counting it once."""
    owned = fence.model_copy(update={"owner": new_token(), "lease_generation": fence.lease_generation + 1})
    host.mongo.collection(FENCE).replace_one({"_id": fence.id.to_bson()}, owned.to_bson(), session=session)
    _prolong(host.mongo, session, owned)
    return Held(host, catalogue, owned, **how)


def _prolong(mongo: Mongo, session: ClientSession, fence: Fence) -> None:
    mongo.collection(FENCE).update_one(
        {"_id": fence.id.to_bson()},
        [{"$set": {"ExpiresAtUtc": mongo.clock.mongo_in(FENCE_LEASE_TTL_S)}}],
        session=session,
    )


def _disturb(held: Held, session: ClientSession) -> None:
    """Move the clocks of a step. A project that came under statistics meanwhile gets its fence now.

    The control is written before the documents: a save that meets the step is refused and sent again, while a step
    that came last would lose to every save. Where the source is hidden nobody reads by the clocks, so saves meet none.
    """
    mongo = held.host.mongo
    advance = {"SourceInvalidationRevision": 1, "ClientInvalidationRevision": 1, "Audit.Version": 1}
    if held.fence.counted:
        if held.fence.id.kind not in TOKEN_FIELDS:
            mongo.collection(CONTROL).update_one({"_id": held.project}, {"$inc": advance}, session=session)
        return
    fence = _require(_find(mongo, session, held.project, held.fence.id.kind)[0])
    state = read_state(mongo, held.catalogue, session, held.project, tuple(held.catalogue.families))
    if state is None:
        return
    if fence.counted:
        mongo.collection(CONTROL).update_one({"_id": held.project}, {"$inc": advance}, session=session)
        return
    _raise(Unit(mongo, session, state), fence, Invalidation())
    mongo.collection(FENCE).update_one({"_id": fence.id.to_bson()}, {"$set": {"Counted": True}}, session=session)


def _end(mongo: Mongo, session: ClientSession, fence: Fence, noticed_by: Iterable[str]) -> None:
    """Take the fence down, by the exact token that it went up with, and tell the clients of these families."""
    project, field = fence.id.project_id, TOKEN_FIELDS.get(fence.id.kind)
    mongo.collection(FENCE).update_one(
        {"_id": fence.id.to_bson()},
        [{"$set": {"Active": False, "Owner": "", "ExpiresAtUtc": mongo.clock.mongo_now()}}],
        session=session,
    )
    if not fence.counted:
        return
    cleared = {"$unset": {field: ""}} if field else {}
    wanted = {"_id": project, field: fence.token} if field else {"_id": project}
    advance = {"SourceInvalidationRevision": 1, "ClientInvalidationRevision": 1, "Audit.Version": 1}
    control = mongo.collection(CONTROL).find_one_and_update(wanted, {"$inc": advance, **cleared}, session=session)
    if control is None:
        raise Fault(f"{field} of project {project} is not the one that this operation set")
    if field is None:
        counting = {"$in": [queries.guard_id(project, family) for family in fence.families]}
        mongo.collection(GUARD).update_many(
            {"_id": counting}, {"$inc": {"ActiveFenceCount": -1, "Version": 1}}, session=session
        )
    notify(mongo, session, project, noticed_by, control["ClientInvalidationRevision"] + 1)


def _require_interrupted(
    mongo: Mongo, session: ClientSession, project: UUID, kind: FenceKind
) -> tuple[Fence, datetime]:
    found, now = _find(mongo, session, project, kind)
    if found is None or not found.active:
        raise Refusal(FenceReason.FenceUnknown, f"{kind} in project {project}")
    if found.expires_at_utc > now:
        raise _held(found)
    return found, now


def _find(mongo: Mongo, session: ClientSession, project: UUID, kind: FenceKind) -> tuple[Fence | None, datetime]:
    """The kind's document, if there ever was one, and the server's time."""
    identity = FenceId(project_id=project, kind=kind).to_bson()
    found = mongo.collection(FENCE).find_one({"_id": identity}, session=session)
    return (Fence.from_bson(found) if found else None), server_time(mongo)


def _require(fence: Fence | None) -> Fence:
    if fence is None:
        raise Fault("a fence that was proved in this transaction is gone")
    return fence


def _held(fence: Fence) -> Refusal:
    until = fence.expires_at_utc.isoformat()
    return Refusal(FenceReason.FenceHeld, f"{fence.id.kind} is under way", state={"expiresAtUtc": until})


def _lease_of(fence: Fence) -> Lease:
    return Lease(FENCE, fence.id.to_bson(), fence.owner, fence.lease_generation, fence.expires_at_utc)
