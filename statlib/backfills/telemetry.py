"""What operators can tell apart from metrics. A projection: nothing is ever read back from it."""

from __future__ import annotations

from enum import StrEnum

from statlib.backfills.failures import FailureKind
from statlib.kernel import telemetry


class ClaimEvent(StrEnum):
    ACQUIRED = "acquired"
    TAKEN_OVER = "taken-over"
    RENEWED = "renewed"
    LOST = "lost"
    STALE_REJECTED = "stale-rejected"


class WorkEvent(StrEnum):
    ATTEMPTED = "attempted"
    COMMITTED = "committed"
    WITHOUT_ROWS = "without-rows"


class Ending(StrEnum):
    RETRYING = "retrying"
    BLOCKED = "blocked"
    FAILED = "failed"
    VALIDATED = "validated"
    REJECTED = "rejected"


class Phase(StrEnum):
    EXECUTION = "execution"
    VALIDATION = "validation"


def count_claim(event: ClaimEvent) -> None:
    telemetry.count("backfill.claims", event=event)


def count_work(event: WorkEvent, rows: int = 0) -> None:
    telemetry.count("backfill.batches", event=event)
    if rows:
        telemetry.count("backfill.rows", rows, event=event)


def count_ending(ending: Ending, kind: FailureKind | None = None) -> None:
    telemetry.count("backfill.endings", ending=ending, kind=kind or FailureKind.NONE)


def record_duration(phase: Phase, duration_ms: float) -> None:
    telemetry.record("backfill.duration", duration_ms, unit="ms", phase=phase)
