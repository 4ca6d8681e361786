"""What becomes of a row whose batch or validation failed: durable before anybody calls it handled."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from statlib.backfills.batches import pace_as_json
from statlib.backfills.definitions import Definition
from statlib.backfills.failures import BLOCKING, SHRINKING, Failure, FailureKind
from statlib.backfills.lifecycle import Lifecycle
from statlib.backfills.rows import BackfillRow, Claim
from statlib.backfills.sizing import after_timeout
from statlib.backfills.sql import statement
from statlib.backfills.telemetry import ClaimEvent, Ending, count_claim, count_ending
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import Session, transact


def record_failure(
    postgres: Postgres, definition: Definition, claim: Claim, row: BackfillRow, failure: Failure
) -> Lifecycle | None:
    """Classify durably and give the claim up: the row's lifecycle afterwards; None if the claim was lost.

    Retryable failures are tried again after the definition's backoff, as often as it says; then the row is failed.
    """
    attempts = row.attempts + 1
    lifecycle = _next(definition, row, failure, attempts)
    retrying = lifecycle is row.lifecycle
    pace = None
    if failure.kind in SHRINKING and row.lifecycle is Lifecycle.RUNNING:
        pace = after_timeout(definition.bound, definition.retry, row.batch_rows or definition.bound.rows_max)
    recording = statement("record_failure", postgres.clock)
    locking = statement("lock", postgres.clock)

    def body(session: Session) -> int:
        session.one(locking, stable_id=claim.stable_id)
        return session.run(
            recording,
            **claim.guard,
            lifecycle=lifecycle,
            attempts=attempts,
            delay_s=definition.retry.delay_s(attempts) if retrying else None,
            kind=failure.kind,
            diagnostic=failure.diagnostic,
            batch_rows=pace.rows if pace else None,
            pace=Jsonb(pace_as_json(pace, row.batch_rows or definition.bound.rows_max, 0.0, {})) if pace else None,
            rejected=failure.kind is FailureKind.VALIDATION,
        )

    if transact(postgres, body) != 1:
        count_claim(ClaimEvent.STALE_REJECTED)
        return None
    count_ending(_ending(lifecycle, failure, retrying=retrying), failure.kind)
    return lifecycle


def _next(definition: Definition, row: BackfillRow, failure: Failure, attempts: int) -> Lifecycle:
    if failure.kind in BLOCKING:
        return Lifecycle.BLOCKED
    exhausted = attempts >= definition.retry.attempts_max
    if failure.kind is FailureKind.VALIDATION or failure.kind is FailureKind.ABANDONED or exhausted:
        return Lifecycle.FAILED
    return row.lifecycle


def _ending(lifecycle: Lifecycle, failure: Failure, *, retrying: bool) -> Ending:
    if retrying:
        return Ending.RETRYING
    if failure.kind is FailureKind.VALIDATION:
        return Ending.REJECTED
    return Ending.BLOCKED if lifecycle is Lifecycle.BLOCKED else Ending.FAILED
