"""Opening and closing: the fleet, and a project's narrow gate.

An opening is one transaction that outdates every row, counts itself and notes the server's time. A save that read
the gate before may still land for a while; so nothing is rebuilt there until the opening grace has passed, and no
envelope minted before it is ever rebased (``idempotency.py``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Fault, Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import transact
from statlib.passes.audit import Action, accept
from statlib.statistics import queries
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import (
    CONTROL,
    FOLD_STORAGE_OFFSET,
    GLOBAL_CONTROL,
    GLOBAL_ID,
    GUARD,
    SOURCE_VERSION,
    STORAGE_VERSION,
    FoldMode,
    GlobalControl,
    Guard,
    GuardId,
    Mode,
    ProjectControl,
    State,
    TrackingMode,
)
from statlib.statistics.pending import accepts
from statlib.statistics.population import notify
from statlib.statistics.reasons import OperateReason, ServeReason


def set_fleet_mode(mongo: Mongo, catalogue: AnyCatalogue, mode: Mode, action: Action) -> GlobalControl:
    """Open or close the whole fleet. Setting the mode that holds changes nothing, and is audited all the same.

    An opening records the versions of the release that opens: what it outdates is republished under them.

    Fault before ``storage.initialise``: a control created here would not know which catalogue it is of.
    """

    def body(session: ClientSession) -> GlobalControl:
        before = _require_fleet(mongo, session)
        if before.mode is not mode:
            mongo.collection(GLOBAL_CONTROL).update_one(
                {"_id": GLOBAL_ID}, _transition(mongo, catalogue, mode, counter="ModeEpoch"), session=session
            )
        after = GlobalControl.from_bson(required(stored(mongo, session, GLOBAL_CONTROL, GLOBAL_ID)))
        generation, now = after.mode_epoch, transaction_time(mongo, session)
        accept(mongo, session, action, before=_fleet(before), after=_fleet(after), now=now, generation=generation)
        return after

    return transact(mongo, body)


def set_tracking_mode(mongo: Mongo, mode: TrackingMode, action: Action) -> GlobalControl:
    """Switch whether reservations count towards allocation, fleet-wide.

    Nothing is written per project. The switch advances the tracking epoch that every row carries, so what was counted
    before it is never served again, also not when the mode returns. Setting the mode that holds changes nothing, and
    is audited all the same. Fault before ``storage.initialise``.
    """

    def body(session: ClientSession) -> GlobalControl:
        before = _require_fleet(mongo, session)
        if before.reviewer_tracking_mode is not mode:
            switched = {
                "ReviewerTrackingMode": mode.value,
                "ReviewerTrackingEpoch": {"$add": [{"$ifNull": ["$ReviewerTrackingEpoch", 0]}, 1]},
                "Audit.Version": {"$add": [{"$ifNull": ["$Audit.Version", 0]}, 1]},
                "Audit.LastModified": mongo.clock.mongo_now(),
            }
            mongo.collection(GLOBAL_CONTROL).update_one({"_id": GLOBAL_ID}, [{"$set": switched}], session=session)
        after = GlobalControl.from_bson(required(stored(mongo, session, GLOBAL_CONTROL, GLOBAL_ID)))
        epoch, now = after.reviewer_tracking_epoch, transaction_time(mongo, session)
        accept(mongo, session, action, before=_tracking(before), after=_tracking(after), now=now, generation=epoch)
        return after

    return transact(mongo, body)


def set_narrow_gate(
    mongo: Mongo, catalogue: AnyCatalogue, project: UUID, *, enabled: bool, action: Action
) -> ProjectControl:
    """Open or close one project; an opening records this release's versions, as the fleet's does.

    Refuses ProjectNotFound; closing a project without a control: ControlMissing. Of a project that folds or ever did,
    an opening also refuses SettingsExclude, and VersionIncompatible unless the tripwire is what its fold mode asks
    for: who opens it under other settings or past a foreign tripwire would put doubtful rows into service.
    """
    mode = Mode.ENABLED if enabled else Mode.DISABLED

    def body(session: ClientSession) -> ProjectControl:
        context = stored(mongo, session, catalogue.context_collection, project)
        if context is None:
            raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
        found = stored(mongo, session, CONTROL, project)
        if found is None and not enabled:
            raise Refusal(OperateReason.ControlMissing, f"project {project}")
        before = ProjectControl.from_bson(found) if found else _new_control(catalogue, project)
        if found is None:
            mongo.collection(CONTROL).insert_one(before.to_bson(), session=session)
        if before.mode is not mode:
            if enabled:
                _require_openable(mongo, before)
            _turn(mongo, catalogue, session, before, mode)
        after = ProjectControl.from_bson(required(stored(mongo, session, CONTROL, project)))
        generation, now = after.opening_count, transaction_time(mongo, session)
        accept(mongo, session, action, before=_project(before), after=_project(after), now=now, generation=generation)
        return after

    return transact(mongo, body)


def create_under_statistics(mongo: Mongo, catalogue: AnyCatalogue, project: UUID) -> None:
    """Give a project that has no source document yet an open control: no save can have passed it by, so there is
    nothing to wait for. A project that already has either is left as it is."""

    def body(session: ClientSession) -> None:
        if stored(mongo, session, CONTROL, project) is not None:
            return
        if mongo.collection(catalogue.source_collection).find_one({"ProjectId": project}, {"_id": 1}, session=session):
            return
        control = _new_control(catalogue, project).model_copy(update={"mode": Mode.ENABLED})
        mongo.collection(CONTROL).insert_one(control.to_bson(), session=session)

    transact(mongo, body)


def _require_openable(mongo: Mongo, control: ProjectControl) -> None:
    """Refuses SettingsExclude, VersionIncompatible."""
    folding = control.fold_mode is not FoldMode.DISABLED
    if not (folding or control.fold_ever_enabled):
        return
    settings = mongo.settings.statistics
    if not (settings.writes and control.id in settings.allowlist):
        raise Refusal(OperateReason.SettingsExclude, f"project {control.id}")
    tripped = control.storage_version == STORAGE_VERSION + control.tripwire
    if not tripped or (folding and not accepts(control.fold_protocol_version)):
        raise Refusal(
            ServeReason.VersionIncompatible,
            f"project {control.id} has storage version {control.storage_version} in fold mode {control.fold_mode}",
            remedy="statlib fold reset, then open the gate.",
        )


def _turn(mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession, before: ProjectControl, mode: Mode) -> None:
    """Both ways clients must look again; only an opening outdates what is stored."""
    opening = mode is Mode.ENABLED
    clocks = {
        "SourceInvalidationRevision": {"$add": ["$SourceInvalidationRevision", int(opening)]},
        "ClientInvalidationRevision": {"$add": ["$ClientInvalidationRevision", 1]},
    }
    stages = _transition(mongo, catalogue, mode, counter="OpeningCount")
    mongo.collection(CONTROL).update_one({"_id": before.id}, [*stages, {"$set": clocks}], session=session)
    for family in catalogue.families:
        if opening:
            stale_or_create_guard(mongo, session, before.id, family)
    notify(mongo, session, before.id, catalogue.families, before.client_invalidation_revision + 1)


def stale_or_create_guard(mongo: Mongo, session: ClientSession, project: UUID, family: str) -> None:
    """Outdate a family, in the caller's transaction; one without a guard gets a Stale one."""
    guards = mongo.collection(GUARD)
    staled = guards.update_one({"_id": queries.guard_id(project, family)}, queries.stale_family(), session=session)
    if staled.matched_count == 0:
        guard = Guard(id=GuardId(project_id=project, family=family), state=State.STALE)
        guards.insert_one(guard.to_bson(), session=session)


def _transition(mongo: Mongo, catalogue: AnyCatalogue, mode: Mode, *, counter: str) -> list[dict[str, Any]]:
    common: dict[str, Any] = {
        "Mode": mode.value,
        "Audit.Version": {"$add": [{"$ifNull": ["$Audit.Version", 0]}, 1]},
        "Audit.LastModified": mongo.clock.mongo_now(),
    }
    if mode is Mode.ENABLED:
        common |= {
            counter: {"$add": [{"$ifNull": [f"${counter}", 0]}, 1]},
            "OpenedAtUtc": mongo.clock.mongo_now(),
            "StorageVersion": _storage_version(),
            "SourceVersion": SOURCE_VERSION,
            "CatalogueVersion": catalogue.version,
        }
    return [{"$set": common}]


def _storage_version() -> dict[str, Any]:
    """As an expression: a folding project keeps its tripwire through an opening."""
    disabled = {"$eq": [{"$ifNull": ["$FoldMode", FoldMode.DISABLED.value]}, FoldMode.DISABLED.value]}
    tripwire = {"$add": [FOLD_STORAGE_OFFSET, {"$ifNull": ["$FoldProtocolVersion", 0]}]}
    return {"$add": [STORAGE_VERSION, {"$cond": [disabled, 0, tripwire]}]}


def _new_control(catalogue: AnyCatalogue, project: UUID) -> ProjectControl:
    return ProjectControl(id=project, catalogue_version=catalogue.version)


def stored(mongo: Mongo, session: ClientSession, collection: str, document_id: Any) -> dict[str, Any] | None:
    """One document by its id, as the transaction sees it."""
    return mongo.collection(collection).find_one({"_id": document_id}, session=session)


def required(document: dict[str, Any] | None) -> dict[str, Any]:
    """What the transaction has just written."""
    if document is None:
        raise AssertionError("a document written in this transaction is there")
    return document


def _require_fleet(mongo: Mongo, session: ClientSession) -> GlobalControl:
    found = stored(mongo, session, GLOBAL_CONTROL, GLOBAL_ID)
    if found is None:
        raise Fault("there is no fleet control", remedy="Run `statlib up`, or initialise the storage, first.")
    return GlobalControl.from_bson(found)


def transaction_time(mongo: Mongo, session: ClientSession) -> datetime:
    """The server's time, inside a transaction."""
    pipeline = [{"$match": {"_id": GLOBAL_ID}}, {"$project": {"Now": mongo.clock.mongo_now()}}]
    now: datetime = next(iter(mongo.collection(GLOBAL_CONTROL).aggregate(pipeline, session=session)))["Now"]
    return now


def _fleet(control: GlobalControl) -> dict[str, Any]:
    return {"mode": control.mode.value, "modeEpoch": control.mode_epoch}


def _tracking(control: GlobalControl) -> dict[str, Any]:
    return {
        "reviewerTrackingMode": control.reviewer_tracking_mode.value,
        "reviewerTrackingEpoch": control.reviewer_tracking_epoch,
    }


def _project(control: ProjectControl) -> dict[str, Any]:
    return {
        "mode": control.mode.value,
        "openingCount": control.opening_count,
        "openedAtUtc": control.opened_at_utc.isoformat() if control.opened_at_utc else None,
    }
