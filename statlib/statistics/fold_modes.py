"""Fold mode of a project: enabling, disabling and resetting it.

Enabling and resetting are openings: one transaction that outdates rows, counts itself and notes the server's time, so
that no envelope minted before it is rebased and nothing is rebuilt before the grace has passed. A reset is one as
well, since what it ends is a time in which some host may have saved past statistics.

Disabling only begins here. The fold worker ends it, once every save that had met the mode has landed and been folded.

Invariant: a project whose mode is not Disabled carries the tripwire of its stamped protocol, so that no release that
does not know pending entries takes its rows for whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import transact
from statlib.passes.audit import Action, accept
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import (
    CONTROL,
    FOLD_STORAGE_OFFSET,
    GLOBAL_CONTROL,
    GLOBAL_ID,
    STORAGE_VERSION,
    FoldMode,
    GlobalControl,
    ProjectControl,
)
from statlib.statistics.fold_fleet import read_fold_fleet, stamp_of_fleet
from statlib.statistics.gates import matches
from statlib.statistics.hosts import Host
from statlib.statistics.modes import required, stale_or_create_guard, stored, transaction_time
from statlib.statistics.pending_index import IndexState, index_state
from statlib.statistics.population import notify
from statlib.statistics.reasons import OperateReason, ServeReason

Turn = Callable[[ClientSession, ProjectControl], None]


def enable_fold(host: Host, catalogue: AnyCatalogue, project: UUID, action: Action) -> ProjectControl:
    """Let saves of the project leave pending entries. Every family that folds is outdated by it.

    Where the mode is Enabled already, nothing changes, and that is audited all the same. Refuses ProjectNotFound,
    ControlMissing, FoldDisabling, SettingsExclude, FoldCoverageIncomplete, PendingIndexMissing, FoldFleetUnsupported,
    VersionIncompatible. The narrow gate may be closed: it decides what is served, not how saves are kept.
    """
    mongo, index = host.mongo, index_state(host.mongo, catalogue)

    def turn(session: ClientSession, before: ProjectControl) -> None:
        if before.fold_mode is FoldMode.ENABLED:
            return
        if before.fold_mode is FoldMode.DISABLING:
            raise Refusal(OperateReason.FoldDisabling, f"project {project}")
        if not host.includes(project):
            raise Refusal(OperateReason.SettingsExclude, f"project {project}")
        protocol = _foldable(mongo, catalogue, session, project, index)
        fleet = GlobalControl.from_bson(required(stored(mongo, session, GLOBAL_CONTROL, GLOBAL_ID)))
        if not matches(fleet, before, catalogue.version):
            raise Refusal(ServeReason.VersionIncompatible, f"project {project}")
        enabled = {
            "FoldMode": FoldMode.ENABLED.value,
            "FoldProtocolVersion": protocol,
            "FoldEverEnabled": True,
            "FoldEnabledAtUtc": mongo.clock.mongo_now(),
            "FoldDisablingSinceUtc": None,
            "StorageVersion": _tripped(protocol),
        }
        _open(mongo, session, before, catalogue.folding, enabled)

    return _turned(mongo, catalogue, project, action, turn)


def disable_fold(host: Host, catalogue: AnyCatalogue, project: UUID, action: Action) -> ProjectControl:
    """Begin to end fold mode: from now on saves are transactional. What is pending is still folded and overlaid, and
    the fold worker ends the mode once nothing is left.

    Where the mode is Disabled or Disabling already, nothing changes, and that is audited all the same. Refuses
    ProjectNotFound, ControlMissing.
    """
    mongo = host.mongo

    def turn(session: ClientSession, before: ProjectControl) -> None:
        if before.fold_mode is not FoldMode.ENABLED:
            return
        now = mongo.clock.mongo_now()
        _set(mongo, session, project, {"FoldMode": FoldMode.DISABLING.value, "FoldDisablingSinceUtc": now})

    return _turned(mongo, catalogue, project, action, turn)


def reset_fold(host: Host, catalogue: AnyCatalogue, project: UUID, action: Action) -> ProjectControl:
    """Outdate every family of the project, those that do not fold included, and renew its tripwire; its mode stays.

    For the end of a time in which hosts had the project off their allowlist or an earlier release was at it, and for
    a tripwire that is not as it should be. Of a project that folds, or is still disabling, it refuses what enabling
    refuses, but not SettingsExclude or VersionIncompatible. Refuses ProjectNotFound, ControlMissing.
    """
    mongo, index = host.mongo, index_state(host.mongo, catalogue)

    def turn(session: ClientSession, before: ProjectControl) -> None:
        renewed: dict[str, Any] = {"StorageVersion": STORAGE_VERSION}
        if before.fold_mode is not FoldMode.DISABLED:
            protocol = _foldable(mongo, catalogue, session, project, index)
            renewed = {"StorageVersion": _tripped(protocol), "FoldProtocolVersion": protocol}
        _open(mongo, session, before, catalogue.families, renewed)

    return _turned(mongo, catalogue, project, action, turn)


def _turned(mongo: Mongo, catalogue: AnyCatalogue, project: UUID, action: Action, turn: Turn) -> ProjectControl:
    def body(session: ClientSession) -> ProjectControl:
        if stored(mongo, session, catalogue.context_collection, project) is None:
            raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
        found = stored(mongo, session, CONTROL, project)
        if found is None:
            raise Refusal(OperateReason.ControlMissing, f"project {project}")
        before = ProjectControl.from_bson(found)
        turn(session, before)
        after = ProjectControl.from_bson(required(stored(mongo, session, CONTROL, project)))
        now, generation = transaction_time(mongo, session), after.opening_count
        accept(
            mongo, session, action, before=as_audited(before), after=as_audited(after), now=now, generation=generation
        )
        return after

    return transact(mongo, body)


def _foldable(mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession, project: UUID, index: IndexState) -> int:
    """The protocol to stamp. Refuses FoldCoverageIncomplete, PendingIndexMissing, FoldFleetUnsupported."""
    if catalogue.transitions is None:
        raise Refusal(
            OperateReason.FoldCoverageIncomplete, f"nothing that is saved in {catalogue.source_collection} folds"
        )
    if index is not IndexState.READY:
        raise Refusal(OperateReason.PendingIndexMissing, f"it is {index.value.lower()}")
    return stamp_of_fleet(read_fold_fleet(mongo, project, session))


def _open(
    mongo: Mongo, session: ClientSession, before: ProjectControl, families: Iterable[str], fields: dict[str, Any]
) -> None:
    """``fields``, with everything that makes an opening, over ``families``."""
    chosen = tuple(families)
    client = before.client_invalidation_revision + 1
    opening = {
        "OpeningCount": before.opening_count + 1,
        "OpenedAtUtc": mongo.clock.mongo_now(),
        "SourceInvalidationRevision": before.source_invalidation_revision + 1,
        "ClientInvalidationRevision": client,
    }
    _set(mongo, session, before.id, {**fields, **opening})
    for family in chosen:
        stale_or_create_guard(mongo, session, before.id, family)
    notify(mongo, session, before.id, chosen, client)


def _set(mongo: Mongo, session: ClientSession, project: UUID, fields: dict[str, Any]) -> None:
    audit = {
        "Audit.Version": {"$add": [{"$ifNull": ["$Audit.Version", 0]}, 1]},
        "Audit.LastModified": mongo.clock.mongo_now(),
    }
    mongo.collection(CONTROL).update_one({"_id": project}, [{"$set": {**fields, **audit}}], session=session)


def _tripped(protocol: int) -> int:
    return STORAGE_VERSION + FOLD_STORAGE_OFFSET + protocol


def as_audited(control: ProjectControl) -> dict[str, Any]:
    """The fold fields of a control, as its audit keeps and the boundary answers them."""
    times = {
        "enabledAtUtc": control.fold_enabled_at_utc,
        "disablingSinceUtc": control.fold_disabling_since_utc,
        "openedAtUtc": control.opened_at_utc,
    }
    return {
        "foldMode": control.fold_mode.value,
        "protocol": control.fold_protocol_version,
        "storageVersion": control.storage_version,
        "openingCount": control.opening_count,
        **{name: at.isoformat() if at else None for name, at in times.items()},
    }
