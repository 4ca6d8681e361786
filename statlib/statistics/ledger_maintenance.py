"""Compacting a project's ledger: one pass deletes complete old revisions, seals their range and moves the floor.

A pass is one transaction of at most ``LEDGER_PASS_ROWS_MAX`` rows. It writes what it rests on, the control and the
family guards: whoever publishes, fences or saves meanwhile makes one of the two start over. A pass that died has done
all of its work or none, and the next one goes on from the floor that it finds.

Nothing that is served is read from the ledger, and repeats are known by their receipts, which no pass touches: it
changes neither counters nor clocks.

Checkpoints and history would pin the revisions that they start from; this release keeps none, so the watermark is the
committed revision. ``_watermark`` is where they come in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from bson import ObjectId
from pymongo import ASCENDING, DESCENDING, UpdateOne
from pymongo.client_session import ClientSession

from statlib.kernel import telemetry
from statlib.kernel.cancellation import require_not_cancelled
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import transact
from statlib.passes.audit import Action, accept
from statlib.statistics.bounds import (
    LEDGER_GUARDS_MAX,
    LEDGER_IDENTITY_PROOF_ROWS_MAX,
    LEDGER_PASS_ROWS_MAX,
    LEDGER_SEALS_MAX,
)
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import CONTROL, DELTA, DELTA_SEAL, FENCE, GUARD, LEASE, DeltaSeal, Guard
from statlib.statistics.hosts import Host
from statlib.statistics.ledger import rows_of
from statlib.statistics.ledger_selection import LedgerRow, Selected, identity_floor, select
from statlib.statistics.reasons import LedgerReason, OperateReason, ServeReason
from statlib.statistics.state import ProjectState, require_state
from statlib.statistics.unit import Overtaken

_LAST = "\U0010ffff"  # no name comes after it


class Compaction(StrEnum):
    COMPACTED = "Compacted"
    NO_ELIGIBLE_COMPLETE_REVISION = "NoEligibleCompleteRevision"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What one pass did. ``safe_watermark``: the last revision that it would have been allowed to compact, were it old
    enough. That it deleted nothing does not mean that the ledger is empty."""

    project: UUID
    outcome: Compaction
    deleted: int
    replay_floor_revision: int
    safe_watermark: int

    def as_recorded(self) -> dict[str, Any]:
        return {
            "project": str(self.project),
            "outcome": self.outcome.value,
            "deleted": self.deleted,
            "replayFloorRevision": self.replay_floor_revision,
            "safeWatermark": self.safe_watermark,
        }


def compact_ledger(host: Host, catalogue: AnyCatalogue, project: UUID, action: Action | None = None) -> Compacted:
    """One pass. ``action``: an operator's, audited with it.

    A row is old enough once it is older than the redelivery window. Refuses LedgerMaintenanceDisabled,
    SettingsExclude, ProjectNotFound, ControlMissing, VersionIncompatible, RebuildActive, PublicationOperationActive,
    PublicationGuardBusy, PublicationGuardCapacity, SealCapacity; ConcurrentStatisticsWrite where something else wrote
    what it had read, and CommitOutcomeUnknown: after both, repeat it.
    """
    host.require_open()
    if not host.mongo.settings.statistics.ledger_maintenance:
        raise Refusal(LedgerReason.LedgerMaintenanceDisabled, f"of host {host.member_id}")
    if not host.includes(project):
        raise Refusal(OperateReason.SettingsExclude, f"project {project}")
    this = _Pass(host, catalogue, project, action)
    try:
        done = transact(host.mongo, this.body, reruns_max=0)
    except Overtaken as overtaken:
        raise _lost(project) from overtaken
    except Refusal as refusal:
        if refusal.reason is not MongoReason.Contended:
            raise
        raise _lost(project) from refusal
    telemetry.count("ledger.compacted", done.deleted, unit="{row}")
    return done


def _lost(project: UUID) -> Refusal:
    telemetry.count("ledger.passes_lost")
    return Refusal(LedgerReason.ConcurrentStatisticsWrite, f"project {project}")


@dataclass(frozen=True)
class _Pass:
    host: Host
    catalogue: AnyCatalogue
    project: UUID
    action: Action | None

    @property
    def mongo(self) -> Mongo:
        return self.host.mongo

    def body(self, session: ClientSession) -> Compacted:
        state = require_state(self.mongo, self.catalogue, session, self.project, ())
        if not state.versions_match:
            raise Refusal(ServeReason.VersionIncompatible, f"project {self.project}")
        guards = self._require_nobody_at_work(session)
        page, selected = self._select(session, state)
        if selected is not None:
            require_not_cancelled()
            self._compact(session, state, guards, page, selected)
        control = state.control
        floor = control.replay_floor_revision if selected is None else selected.last_revision
        outcome = Compaction.NO_ELIGIBLE_COMPLETE_REVISION if selected is None else Compaction.COMPACTED
        deleted = 0 if selected is None else len(selected.rows)
        done = Compacted(self.project, outcome, deleted, floor, _watermark(state))
        if self.action is not None:
            before = {"replayFloorRevision": control.replay_floor_revision, "rows": rows_of(control)}
            accept(self.mongo, session, self.action, before=before, after=done.as_recorded(), now=state.now)
        return done

    def _require_nobody_at_work(self, session: ClientSession) -> list[Guard]:
        """Returns the project's guards. Whoever begins after this read writes one of them, and so meets this pass."""
        now = self.mongo.clock.mongo_now()
        alive = {**_of(self.project, "Family"), "$expr": {"$gt": ["$ExpiresAtUtc", now]}}
        if self.mongo.collection(LEASE).find_one(alive, {"_id": 1}, session=session) is not None:
            raise Refusal(LedgerReason.RebuildActive, f"project {self.project}")
        active = {**_of(self.project, "Kind"), "Active": True}
        if self.mongo.collection(FENCE).find_one(active, {"_id": 1}, session=session) is not None:
            raise Refusal(LedgerReason.PublicationOperationActive, f"project {self.project}")
        found = self.mongo.collection(GUARD).find(_of(self.project, "Family"), session=session)
        guards = [Guard.from_bson(guard) for guard in found.limit(LEDGER_GUARDS_MAX + 1)]
        if len(guards) > LEDGER_GUARDS_MAX:
            raise Refusal(LedgerReason.PublicationGuardCapacity, f"more than {LEDGER_GUARDS_MAX} guards")
        if busy := [guard.id.family for guard in guards if guard.active_fence_count or guard.candidate is not None]:
            raise Refusal(LedgerReason.PublicationGuardBusy, f"{', '.join(sorted(busy))} of project {self.project}")
        return guards

    def _select(self, session: ClientSession, state: ProjectState) -> tuple[list[LedgerRow], Selected | None]:
        window = timedelta(seconds=self.mongo.settings.statistics.redelivery_window_s)
        page = self._rows_above(session, state.control.replay_floor_revision, LEDGER_PASS_ROWS_MAX + 1)
        selected = select(
            page,
            floor=state.control.replay_floor_revision,
            watermark=_watermark(state),
            older_than=state.now - window,
        )
        return page, selected

    def _rows_above(self, session: ClientSession, revision: int, rows_max: int) -> list[LedgerRow]:
        found = self.mongo.collection(DELTA).find(
            {"ProjectId": self.project, "Revision": {"$gt": revision}},
            {"Revision": 1, "ObservedAtUtc": 1},
            session=session,
        )
        in_order = found.sort([("Revision", ASCENDING), ("Record", ASCENDING)]).limit(rows_max)
        return [LedgerRow(row["_id"], row["Revision"], row["ObservedAtUtc"]) for row in in_order]

    def _compact(
        self,
        session: ClientSession,
        state: ProjectState,
        guards: Sequence[Guard],
        page: Sequence[LedgerRow],
        selected: Selected,
    ) -> None:
        """The most contended document first: a pass that will lose loses early."""
        control, deleted = state.control, len(selected.rows)
        whole = len(page) <= LEDGER_PASS_ROWS_MAX
        fields: dict[str, Any] = {
            "ReplayFloorRevision": selected.last_revision,
            "LedgerRows": len(page) - deleted if whole else max(0, control.ledger_rows - deleted),
            "Audit.LastModified": state.now,
        }
        remaining = self._rows_above(session, selected.last_revision, LEDGER_IDENTITY_PROOF_ROWS_MAX + 1)
        if len(remaining) <= LEDGER_IDENTITY_PROOF_ROWS_MAX:
            observed = (row.observed_at for row in remaining)
            fields["IdentityFloorUtc"] = identity_floor(control.identity_floor_utc, selected, observed)
        as_read = {"_id": self.project, "Audit.Version": control.audit.version}
        update = {"$set": fields, "$inc": {"Audit.Version": 1}}
        if self.mongo.collection(CONTROL).update_one(as_read, update, session=session).matched_count != 1:
            raise Overtaken
        self._touch(session, guards)
        self._seal(session, selected, state.now)
        gone = {"_id": {"$in": [row.id for row in selected.rows]}}
        if self.mongo.collection(DELTA).delete_many(gone, session=session).deleted_count != deleted:
            raise Overtaken

    def _touch(self, session: ClientSession, guards: Sequence[Guard]) -> None:
        if not guards:
            return
        writes = [
            UpdateOne({"_id": guard.id.to_bson(), "Version": guard.version}, {"$inc": {"Version": 1}})
            for guard in guards
        ]
        if self.mongo.collection(GUARD).bulk_write(writes, session=session).matched_count != len(writes):
            raise Overtaken

    def _seal(self, session: ClientSession, selected: Selected, now: datetime) -> None:
        """Prolong the seal that ends where this range begins, or set a new one. Refuses SealCapacity."""
        seals = self.mongo.collection(DELTA_SEAL)
        newest_first = seals.find({"ProjectId": self.project}, session=session).sort("LastRevision", DESCENDING)
        found = list(newest_first.limit(LEDGER_SEALS_MAX + 1))
        adjacent = [seal for seal in found if seal["LastRevision"] == selected.first_revision - 1]
        if len(found) > LEDGER_SEALS_MAX or (len(found) == LEDGER_SEALS_MAX and not adjacent):
            raise Refusal(LedgerReason.SealCapacity, f"{LEDGER_SEALS_MAX} of project {self.project}")
        if adjacent:
            prolonged = {
                "$set": {"LastRevision": selected.last_revision, "SealedAtUtc": now},
                "$inc": {"Rows": len(selected.rows)},
                "$min": {"ObservedFromUtc": selected.observed_from},
                "$max": {"ObservedToUtc": selected.observed_to},
            }
            seals.update_one({"_id": adjacent[0]["_id"]}, prolonged, session=session)
            return
        seal = DeltaSeal(
            project_id=self.project,
            first_revision=selected.first_revision,
            last_revision=selected.last_revision,
            rows=len(selected.rows),
            observed_from_utc=selected.observed_from,
            observed_to_utc=selected.observed_to,
            sealed_at_utc=now,
        )
        seals.insert_one({"_id": ObjectId(), **seal.to_bson()}, session=session)


def _watermark(state: ProjectState) -> int:
    return state.control.committed_projection_revision


def _of(project: UUID, second: str) -> Mapping[str, Any]:
    """Filter: ids of this project with ``second`` as their other field, as one range of the index on ids."""
    return {"_id": {"$gte": {"ProjectId": project, second: ""}, "$lt": {"ProjectId": project, second: _LAST}}}
