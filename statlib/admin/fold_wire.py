"""What travels over the boundary about the fold. JSON names are camelCase."""

from __future__ import annotations

from datetime import datetime
from typing import Self
from uuid import UUID

from statlib.admin.wire import Request, Wire
from statlib.statistics.documents import ProjectControl
from statlib.statistics.fold_status import FoldStatus
from statlib.statistics.pending_index import PendingIndex


class FoldRequest(Request):
    """Nothing but the project is asked."""


class FoldControl(Wire):
    fold_mode: str
    protocol: int
    storage_version: int
    opening_count: int
    enabled_at_utc: datetime | None
    disabling_since_utc: datetime | None
    opened_at_utc: datetime | None

    @classmethod
    def of(cls, control: ProjectControl) -> Self:
        return cls(
            fold_mode=control.fold_mode,
            protocol=control.fold_protocol_version,
            storage_version=control.storage_version,
            opening_count=control.opening_count,
            enabled_at_utc=control.fold_enabled_at_utc,
            disabling_since_utc=control.fold_disabling_since_utc,
            opened_at_utc=control.opened_at_utc,
        )


class IndexStanding(Wire):
    """``built``: by this very call; ``seconds``: how long that took, to be kept beside the size of the collection."""

    state: str
    built: bool
    seconds: float

    @classmethod
    def of(cls, index: PendingIndex) -> Self:
        return cls(state=index.state, built=index.built, seconds=index.seconds)


class PendingTotals(Wire):
    studies: int
    entries: int
    overflowed: int
    oldest_age_s: float | None


class Heartbeat(Wire):
    """The last sign of life of a fold worker of one protocol."""

    protocol: int
    age_s: float


class FoldHost(Wire):
    """A live host, as the fold sees it. ``included``: it has the project under statistics."""

    id: str
    deployment: str
    protocols: tuple[int, ...]
    fold: bool
    included: bool


class LedgerRoom(Wire):
    rows: int
    headroom: int
    oldest_age_s: float | None


class FoldStanding(Wire):
    """``families``: those whose saves fold. ``pending`` is null while its index is not ready. ``tripped`` false: the
    project needs a reset."""

    project: UUID
    families: tuple[str, ...]
    fold_mode: str
    protocol: int
    tripped: bool
    ever_enabled: bool
    enabled_at_utc: datetime | None
    disabling_since_utc: datetime | None
    index: str
    pending: PendingTotals | None
    worker_live: bool
    heartbeats: tuple[Heartbeat, ...]
    hosts: tuple[FoldHost, ...]
    quarantined: int
    quarantine_incomplete_since_utc: datetime | None
    ledger: LedgerRoom

    @classmethod
    def of(cls, status: FoldStatus) -> Self:
        pending, ledger = status.pending, status.ledger
        return cls(
            project=status.project,
            families=status.families,
            fold_mode=status.mode,
            protocol=status.protocol,
            tripped=status.tripped,
            ever_enabled=status.ever_enabled,
            enabled_at_utc=status.enabled_at,
            disabling_since_utc=status.disabling_since,
            index=status.index,
            pending=PendingTotals(
                studies=pending.studies,
                entries=pending.entries,
                overflowed=pending.overflowed,
                oldest_age_s=pending.oldest_age_s,
            )
            if pending
            else None,
            worker_live=status.worker_live,
            heartbeats=tuple(Heartbeat(protocol=p, age_s=a) for p, a in sorted(status.fleet.heartbeat_ages_s.items())),
            hosts=tuple(
                FoldHost(id=m.id, deployment=m.deployment, protocols=m.protocols, fold=m.fold, included=m.included)
                for m in status.fleet.members
            ),
            quarantined=status.quarantined,
            quarantine_incomplete_since_utc=status.quarantine_incomplete_since,
            ledger=LedgerRoom(rows=ledger.rows, headroom=ledger.headroom, oldest_age_s=ledger.oldest_age_s),
        )
