"""How the fold of a project stands: its mode, what is pending, what there is to fold with, and what has piled up.

Several reads, of several moments: an account for operators, by which nothing is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.passes.audit import server_time
from statlib.statistics import queries
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import (
    CONTROL,
    DELTA,
    FOLD_QUARANTINE,
    STORAGE_VERSION,
    FoldMode,
    ProjectControl,
)
from statlib.statistics.fold_fleet import FoldFleet, read_fold_fleet
from statlib.statistics.hosts import Host
from statlib.statistics.ledger import headroom
from statlib.statistics.pending import FOLD_PROTOCOL
from statlib.statistics.pending_index import PENDING_INDEX, IndexState, index_state, pending_totals
from statlib.statistics.reasons import OperateReason


@dataclass(frozen=True, slots=True)
class Pending:
    """Documents with anything pending, their entries, those of them that overflowed, and the age of the oldest."""

    studies: int = 0
    entries: int = 0
    overflowed: int = 0
    oldest_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """Rows of the revision ledger, how many more it takes, and the age of its first."""

    rows: int
    headroom: int
    oldest_age_s: float | None


@dataclass(frozen=True, slots=True)
class FoldStatus:
    """``families``: those whose saves fold. ``tripped``: the storage version is what mode and protocol ask for; else
    the project needs a reset.

    ``pending`` is None where the index is not ready: without it the look would scan the whole source.
    ``quarantine_incomplete_since``: from then on a miss in quarantine proves nothing.
    """

    project: UUID
    families: tuple[str, ...]
    mode: FoldMode
    protocol: int
    tripped: bool
    ever_enabled: bool
    enabled_at: datetime | None
    disabling_since: datetime | None
    index: IndexState
    pending: Pending | None
    fleet: FoldFleet
    worker_live: bool
    quarantined: int
    quarantine_incomplete_since: datetime | None
    ledger: Ledger


def fold_status(host: Host, catalogue: AnyCatalogue, project: UUID) -> FoldStatus:
    """Refuses ControlMissing. Reads only."""
    host.require_open()
    mongo = host.mongo
    found = mongo.collection(CONTROL).find_one({"_id": project})
    if found is None:
        raise Refusal(OperateReason.ControlMissing, f"project {project}")
    control = ProjectControl.from_bson(found)
    index, now, fleet = index_state(mongo, catalogue), server_time(mongo), read_fold_fleet(mongo, project)
    protocol = FOLD_PROTOCOL if control.fold_mode is FoldMode.DISABLED else control.fold_protocol_version
    return FoldStatus(
        project=project,
        families=tuple(sorted(catalogue.folding)),
        mode=control.fold_mode,
        protocol=control.fold_protocol_version,
        tripped=control.storage_version == STORAGE_VERSION + control.tripwire,
        ever_enabled=control.fold_ever_enabled,
        enabled_at=control.fold_enabled_at_utc,
        disabling_since=control.fold_disabling_since_utc,
        index=index,
        pending=_pending(mongo, catalogue, project, now) if index is IndexState.READY else None,
        fleet=fleet,
        worker_live=fleet.worker_live(protocol),
        quarantined=mongo.collection(FOLD_QUARANTINE).count_documents({"ProjectId": project}),
        quarantine_incomplete_since=control.fold_quarantine_incomplete_since_utc,
        ledger=_ledger(host, control, now),
    )


def _pending(mongo: Mongo, catalogue: AnyCatalogue, project: UUID, now: datetime) -> Pending:
    pipeline = pending_totals(project)
    found: Mapping[str, Any] | None = next(
        iter(mongo.collection(catalogue.source_collection).aggregate(pipeline, hint=PENDING_INDEX)), None
    )
    if found is None:
        return Pending()
    return Pending(
        studies=found["Studies"],
        entries=found["Entries"],
        overflowed=found["Overflowed"],
        oldest_age_s=(now - found["Oldest"]).total_seconds(),
    )


def _ledger(host: Host, control: ProjectControl, now: datetime) -> Ledger:
    deltas = host.mongo.collection(DELTA)
    first = next(iter(deltas.aggregate(queries.oldest_delta(control.id))), None)
    return Ledger(
        rows=deltas.count_documents({"ProjectId": control.id}),
        headroom=headroom(control, host.ledger),
        oldest_age_s=(now - first["ObservedAtUtc"]).total_seconds() if first else None,
    )
