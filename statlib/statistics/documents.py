"""The engine's stored documents and their collections."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import Field

from statlib.mongo.documents import Audit, Stored, UtcTime
from statlib.statistics.counters import from_stored

GLOBAL_CONTROL = "pmProjectStatisticsGlobalControl"
CONTROL = "pmProjectStatisticsControl"
ROW = "pmProjectStatisticsRow"
GUARD = "pmProjectStatisticsGuard"
FENCE = "pmProjectStatisticsFence"
RECEIPT = "pmProjectStatisticsReceipt"
RECEIPT_RETIREMENT = "pmProjectStatisticsReceiptRetirement"
DELTA = "pmProjectStatisticsDelta"
DELTA_SEAL = "pmProjectStatisticsDeltaSeal"
OUTBOX = "pmProjectStatisticsOutbox"
LEASE = "pmProjectStatisticsRebuildLease"
MEMBER = "pmProjectStatisticsFleetMember"
FOLD_QUARANTINE = "pmProjectStatisticsFoldQuarantine"

GLOBAL_ID = "global"
STORAGE_VERSION = 1
FOLD_STORAGE_OFFSET = 1_000
"""Added to the storage version of a folding project, with the fold protocol: the tripwire for releases that do not know
pending entries, or not those of this protocol."""
SOURCE_VERSION = 1


class Mode(StrEnum):
    """Whether statistics are kept and served: of the fleet, or of a project (its narrow gate)."""

    DISABLED = "Disabled"
    ENABLED = "Enabled"


class FoldMode(StrEnum):
    """Whether saves of a project leave pending entries. ``DISABLING``: no more, while those that are left drain."""

    DISABLED = "Disabled"
    ENABLED = "Enabled"
    DISABLING = "Disabling"


class TrackingMode(StrEnum):
    """Whether reservations count towards allocation, fleet-wide."""

    TRACKED = "Tracked"
    UNTRACKED = "Untracked"


class State(StrEnum):
    """Of a row or a guard; the edges are in ``lifecycle.py``."""

    MISSING = "Missing"
    REBUILDING = "Rebuilding"
    FRESH = "Fresh"
    STALE = "Stale"


class Heartbeat(Stored):
    """The last sign of life of a fold worker, by the server's clock."""

    renewed_at_utc: UtcTime
    host: str = ""


class GlobalControl(Stored):
    """The fleet's one document. ``mode_epoch`` counts openings, ``reviewer_tracking_epoch`` tracking switches;
    ``fold_worker_heartbeats`` are by fold protocol."""

    id: str = Field(default=GLOBAL_ID, alias="_id")
    mode: Mode = Mode.DISABLED
    mode_epoch: int = 0
    opened_at_utc: UtcTime | None = None
    storage_version: int = STORAGE_VERSION
    source_version: int = SOURCE_VERSION
    catalogue_version: int = 0
    reviewer_tracking_mode: TrackingMode = TrackingMode.TRACKED
    reviewer_tracking_epoch: int = 0
    fold_worker_heartbeats: dict[str, Heartbeat] = Field(default_factory=dict)
    audit: Audit = Audit()


class BootstrapPoint(Stored):
    """Where a family's history begins: the checkpoint identity that its first backfill met."""

    source_revision: int
    projection_revision: int
    mode_epoch: int
    recorded_at_utc: UtcTime


class ProjectControl(Stored):
    """One project's clocks, modes and floors. Every transactional save and every fold writes it.

    ``ledger_rows``: those above ``replay_floor_revision`` that were counted as they were written; ``ledger.rows_of``.
    ``fold_ever_enabled`` never goes back: from then on readers and rebuilds look for pending entries.
    ``fold_quarantine_incomplete_since_utc``: from then on a miss in quarantine proves nothing.
    """

    id: UUID = Field(alias="_id")
    mode: Mode = Mode.DISABLED
    opening_count: int = 0
    opened_at_utc: UtcTime | None = None
    source_invalidation_revision: int = 0
    committed_projection_revision: int = 0
    client_invalidation_revision: int = 0
    storage_version: int = STORAGE_VERSION
    source_version: int = SOURCE_VERSION
    catalogue_version: int = 0
    replay_floor_revision: int = 0
    ledger_rows: int = 0
    identity_floor_utc: UtcTime | None = None
    receipt_time_floor_utc: UtcTime | None = None
    inclusion_recalculation_token: str | None = None
    definition_rewrite_token: str | None = None
    bootstrap: dict[str, BootstrapPoint] = Field(default_factory=dict)
    fold_mode: FoldMode = FoldMode.DISABLED
    fold_protocol_version: int = 0
    fold_ever_enabled: bool = False
    fold_enabled_at_utc: UtcTime | None = None
    fold_disabling_since_utc: UtcTime | None = None
    fold_quarantine_incomplete_since_utc: UtcTime | None = None
    audit: Audit = Audit()

    @property
    def tripwire(self) -> int:
        """What its fold mode adds to the storage version."""
        return 0 if self.fold_mode is FoldMode.DISABLED else FOLD_STORAGE_OFFSET + self.fold_protocol_version


class WriteEpochs(Stored):
    """What was current when a row was calculated: any later opening, staling or tracking switch outdates it."""

    fleet: int
    project: int
    family: int
    tracking: int


class Row(Stored):
    """The counters of one scope."""

    project_id: UUID
    family: str
    scope: str
    generation: int
    token: str
    state: State
    is_published: bool
    counters: list[dict[str, Any]] = Field(default_factory=list)
    dynamic_key_count: int = 0
    last_changed_revision: int = 0
    write_epochs: WriteEpochs
    source_version: int = SOURCE_VERSION
    catalogue_version: int
    configuration_digest: str
    last_failure_reason: str | None = None

    @property
    def values(self) -> dict[str, int]:
        return from_stored(self.counters)

    @property
    def standing(self) -> Row:
        """Itself, to the gates: what it was calculated under is among its fields."""
        return self


class GuardId(Stored):
    project_id: UUID
    family: str


class Candidate(Stored):
    """A publication under way: who may make the next rows visible, under which lease generation."""

    generation: int
    token: str
    owner: str


class Guard(Stored):
    """Publication guard of a family in a project."""

    id: GuardId = Field(alias="_id")
    state: State = State.MISSING
    visible_generation: int = 0
    visible_token: str = ""
    family_write_epoch: int = 0
    active_fence_count: int = 0
    candidate: Candidate | None = None
    version: int = 0


class Receipt(Stored):
    """Evidence that one source operation committed, unique by (project, namespace, operation id)."""

    project_id: UUID
    operation_namespace: str
    operation_id: str
    expected_source_revision: int
    committed_source_before_revision: int
    committed_source_after_revision: int
    source_digest: str
    source_aggregate_id: UUID
    has_trusted_source_identity: bool
    created_at_utc: UtcTime
    observed_at_utc: UtcTime
    is_pinned: bool = False


class DeltaKind(StrEnum):
    OPERATION = "Operation"
    PUBLICATION = "Publication"
    INVALIDATION = "Invalidation"


class Delta(Stored):
    """One entry of the revision ledger: every advance of the projection revision has at least one."""

    project_id: UUID
    revision: int
    record: int
    kind: DeltaKind
    operation_namespace: str = ""
    operation_id: str = ""
    moves: list[dict[str, Any]] = Field(default_factory=list)
    observed_at_utc: UtcTime


class DeltaSeal(Stored):
    """What is left of a compacted range of the ledger: its revisions, how many rows they had, and between what times
    those were observed."""

    project_id: UUID
    first_revision: int
    last_revision: int
    rows: int
    observed_from_utc: UtcTime
    observed_to_utc: UtcTime
    sealed_at_utc: UtcTime


class OutboxSlot(Stored):
    """Coalesced client invalidation: only the newest revision per family needs delivering."""

    id: GuardId = Field(alias="_id")
    client_invalidation_revision: int
    queued_at_utc: UtcTime


class FenceKind(StrEnum):
    """Operations that rewrite many source documents; a project has at most one of each under way."""

    SEARCH_IMPORT = "SearchImport"
    SEARCH_REMOVAL = "SearchRemoval"
    BULK_STUDY_UPDATE = "BulkStudyUpdate"
    INCLUSION_RECALCULATION = "InclusionRecalculation"
    DEFINITION_REWRITE = "DefinitionRewrite"


TOKEN_FIELDS = {
    FenceKind.INCLUSION_RECALCULATION: "InclusionRecalculationToken",
    FenceKind.DEFINITION_REWRITE: "DefinitionRewriteToken",
}
"""Of the kinds that hide the source while they run: the control's field that says so."""


class FenceId(Stored):
    project_id: UUID
    kind: FenceKind


class Fence(Stored):
    """The last operation of one kind in a project: under way while ``active``, interrupted once its lease ran out.

    ``families`` are those that it makes unservable; ``counted``: their guards count it, as they do wherever the project
    has a control. ``token`` is what hides the source, if the kind does. ``intent`` (JSON values) says what it does,
    ``progress`` how far it is.
    """

    id: FenceId = Field(alias="_id")
    active: bool
    owner: str
    lease_generation: int
    expires_at_utc: UtcTime
    started_at_utc: UtcTime
    counted: bool = False
    families: list[str] = Field(default_factory=list)
    token: str
    intent: dict[str, Any] = Field(default_factory=dict)
    progress: dict[str, Any] = Field(default_factory=dict)


class Member(Stored):
    """One live host: a process that may write, read or maintain, and the settings it does so under."""

    id: str = Field(alias="_id")
    deployment: str
    host: str
    pid: int
    binary_version: str
    allowlist: list[UUID]
    writes: bool
    families: list[str]
    fold: bool = False
    fold_protocols: list[int] = Field(default_factory=list)
    fold_worker: bool = False
    renewed_at_utc: UtcTime


class Quarantined(Stored):
    """What the fold took out of a document without applying it: its identity, so that a repeat is still known.

    ``entry`` is a copy where the project has few records. An unrecorded range has no operation, and its revisions.
    """

    project_id: UUID
    study_id: UUID
    operation_namespace: str = ""
    operation_id: str = ""
    reason: str
    submission_digest: str | None = None
    from_revision: int | None = None
    to_revision: int | None = None
    entry: dict[str, Any] | None = None
    quarantined_at_utc: UtcTime
