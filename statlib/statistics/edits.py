"""Edits of a project's own document, each with what it makes unservable, in one transaction.

What that is, nobody has to remember: contexts before and after are compared, family by family and scope by scope, by
the parameters that each scope says it depends on. An edit therefore cannot forget what it stales.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import transact
from statlib.passes.audit import Action, accept, server_time
from statlib.statistics.arms import choose
from statlib.statistics.catalogue import AnyCatalogue, Document
from statlib.statistics.hosts import Host
from statlib.statistics.invalidation import Invalidation, invalidate
from statlib.statistics.reasons import OperateReason
from statlib.statistics.state import ProjectState, read_state
from statlib.statistics.unit import Overtaken, Unit

T = TypeVar("T")
Requirement = Callable[[ClientSession], None]


class ContextChange(Protocol):
    """One edit of a project's context document."""

    def apply(self, context: Document) -> Mapping[str, Any]:
        """Top-level fields with their new BSON values; those that stay as they are may be named or left out.

        Pure; may refuse, typed."""
        ...


@dataclass(frozen=True, slots=True)
class Edited:
    """``changed``: the document was not already so. What was staled: ``families`` whole, else single ``scopes``."""

    project: UUID
    changed: bool
    revision: int
    families: tuple[str, ...] = ()
    scopes: tuple[tuple[str, str], ...] = ()

    def as_wire(self) -> dict[str, Any]:
        """JSON values: what the audit keeps, and what a repeated request is answered with."""
        return {
            "project": str(self.project),
            "changed": self.changed,
            "revision": self.revision,
            "families": list(self.families),
            "scopes": [{"family": family, "scope": scope} for family, scope in self.scopes],
        }


def edit(
    host: Host,
    catalogue: AnyCatalogue,
    project: UUID,
    change: ContextChange,
    *,
    action: Action | None = None,
    require: Requirement | None = None,
) -> Edited:
    """Apply ``change``; one that changes nothing writes nothing but its audit. ``require`` may refuse it, by what the
    source is in the same transaction.

    Refuses ProjectNotFound, GateSkew, Contended, CommitOutcomeUnknown, and what the change itself refuses.
    A project that is not under statistics takes the edit alone. A crash leaves all of it or nothing.
    """
    host.require_open()

    def body(session: ClientSession) -> Edited:
        state = state_for_writing(host, catalogue, session, project)
        edited = edit_within(host.mongo, catalogue, session, project, state, change)
        if require is not None:
            require(session)
        if action is not None:
            now = state.now if state else server_time(host.mongo)
            accept(host.mongo, session, action, before={}, after=edited.as_wire(), now=now, generation=edited.revision)
        return edited

    return undisturbed(host.mongo, body)


def edit_within(  # noqa: PLR0917 - everything that an edit is decided by
    mongo: Mongo,
    catalogue: AnyCatalogue,
    session: ClientSession,
    project: UUID,
    state: ProjectState | None,
    change: ContextChange,
    *,
    further: Callable[[Unit, Invalidation], None] | None = None,
) -> Edited:
    """The edit in the caller's transaction. ``state`` was read there; None: the project has no control.

    ``further`` writes the invalidation in place of this function, and is called also where there is none.
    """
    before = state.context_document if state else _context(mongo, catalogue, session, project)
    fields = {name: value for name, value in change.apply(before).items() if before.get(name) != value}
    after = {**before, **fields}
    what = compare(catalogue, state, after) if state and fields else Invalidation()
    if state is not None:
        unit = Unit(mongo, session, state)
        if further is not None:
            further(unit, what)
        elif fields:
            invalidate(unit, what)
    version = (before.get("Audit") or {}).get("Version")
    if fields:
        _write(mongo, catalogue, session, before["_id"], version, fields)
    return Edited(
        project=project,
        changed=bool(fields),
        revision=(version or 0) + bool(fields),
        families=tuple(sorted(what.families)),
        scopes=tuple((family, scope) for family in sorted(what.scopes) for scope in sorted(what.scopes[family])),
    )


def compare(catalogue: AnyCatalogue, state: ProjectState, after: Document) -> Invalidation:
    """What was counted under the old document and may not be served under ``after``. Pure.

    A scope: its parameters changed, or only one of the two documents declares it. A family: all of its scopes.
    """
    old, new = state.context, catalogue.domain.context(after, state.fleet.reviewer_tracking_mode)
    families: set[str] = set()
    scopes: dict[str, frozenset[str]] = {}
    for name, family in catalogue.families.items():
        was, is_ = set(family.declared_scopes(old)), set(family.declared_scopes(new))
        kept = was & is_
        changed = {scope for scope in kept if family.parameters(old, scope) != family.parameters(new, scope)}
        changed |= was ^ is_
        if changed and changed == was | is_:
            families.add(name)
        elif changed:
            scopes[name] = frozenset(changed)
    return Invalidation(frozenset(families), scopes)


def state_for_writing(
    host: Host, catalogue: AnyCatalogue, session: ClientSession, project: UUID
) -> ProjectState | None:
    """What a write past the writers is decided by; None: the project has no control. Refuses ProjectNotFound, GateSkew.

    A control is kept right also while its gate is closed: it may be opened at any moment.
    """
    state = read_state(host.mongo, catalogue, session, project, tuple(catalogue.families))
    choose(included=host.includes(project), control=state.control if state else None)
    if state is None:
        _context(host.mongo, catalogue, session, project)
    return state


def undisturbed(mongo: Mongo, body: Callable[[ClientSession], T]) -> T:
    """Run a transaction of the engine; a rival's insert between read and write is a contention like any other."""
    try:
        return transact(mongo, body)
    except Overtaken as overtaken:
        raise Refusal(MongoReason.Contended, "another came first") from overtaken


def _context(mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession, project: UUID) -> Document:
    found = mongo.collection(catalogue.context_collection).find_one({"_id": project}, session=session)
    if found is None:
        raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
    return found


def _write(  # noqa: PLR0917 - one guarded write
    mongo: Mongo,
    catalogue: AnyCatalogue,
    session: ClientSession,
    project: UUID,
    version: int | None,
    fields: Mapping[str, Any],
) -> None:
    literal = {name: {"$literal": value} for name, value in fields.items()}
    audit = {"Audit.Version": {"$literal": (version or 0) + 1}, "Audit.LastModified": mongo.clock.mongo_now()}
    written = mongo.collection(catalogue.context_collection).update_one(
        {"_id": project, "Audit.Version": version}, [{"$set": {**literal, **audit}}], session=session
    )
    if written.matched_count != 1:
        raise Overtaken
