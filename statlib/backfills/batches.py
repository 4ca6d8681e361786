"""One batch: read at most the bound, change at most the bound, move the checkpoint, all in one guarded transaction.

The order is fixed: select a window, mutate it, ask PostgreSQL how many rows that changed, lock the backfill's row, and
as the last statement move the checkpoint under the claim. Whatever fails on the way rolls everything back; a crash
leaves the batch or nothing of it. What a batch may be is enforced here, not believed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from statlib.backfills.definitions import Definition
from statlib.backfills.lifecycle import Lifecycle
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.rows import BackfillRow, Claim, Position, as_json
from statlib.backfills.sizing import Courtesy, Pace, after_batch
from statlib.backfills.sql import statement
from statlib.backfills.telemetry import ClaimEvent, Phase, WorkEvent, count_claim, count_work, record_duration
from statlib.kernel.refusals import Fault, Refusal
from statlib.postgres.connection import Postgres
from statlib.postgres.reasons import PostgresReason
from statlib.postgres.transactions import Limits, Session, transact


@dataclass(frozen=True, slots=True)
class Window:
    """Rows that a select found strictly after one position and no later than another; ``last`` is the greatest."""

    selected: int
    last: Position | None


@dataclass(frozen=True, slots=True)
class Batch:
    """A committed batch. ``reached``: no admitted work is left, and the row is validating."""

    selected: int
    changed: int
    checkpoint: Position | None
    reached: bool
    pace: Pace | None
    duration_ms: float


def run_batch(
    postgres: Postgres,
    definition: Definition,
    claim: Claim,
    row: BackfillRow,
    *,
    readings: dict[str, Any] | None = None,
    courtesy: Courtesy | None = None,
) -> Batch:
    """Do the next batch of a running row. Refuses ClaimLost and BoundExceeded; nothing is committed then.

    A commit of which nobody knows is resolved from the row. ``readings``: what health signals said, stored with the
    pace; ``courtesy``: what the foreground asks of the next one. Also raises what the definition's SQL raises.
    """
    if row.bound is None:
        raise Fault(f"{row.stable_id} runs without a bound")
    count_work(WorkEvent.ATTEMPTED)
    limit = min(row.batch_rows or definition.bound.rows_max, definition.bound.rows_max)
    bound = definition.bound
    limits = Limits(statement_s=bound.transaction_s, lock_s=bound.lock_s, idle_s=bound.transaction_s)
    started = time.monotonic()
    intended: list[Batch] = []

    def body(session: Session) -> Batch:
        batch = _batch(postgres, session, definition, claim, row, limit, started, readings or {}, courtesy)
        intended[:] = [batch]
        return batch

    try:
        batch = transact(postgres, body, limits=limits, reruns_max=0)
    except Refusal as refusal:
        if refusal.reason is PostgresReason.PostgresCommitUnknown and intended:
            batch = _resolved(postgres, claim, row, intended[0])
        else:
            if refusal.reason is BackfillReason.ClaimLost:
                count_claim(ClaimEvent.STALE_REJECTED)
            raise
    count_claim(ClaimEvent.RENEWED)
    count_work(WorkEvent.COMMITTED if batch.selected else WorkEvent.WITHOUT_ROWS, batch.selected)
    record_duration(Phase.EXECUTION, batch.duration_ms)
    return batch


def _batch(  # noqa: PLR0917 - the steps of one transaction, in their order
    postgres: Postgres,
    session: Session,
    definition: Definition,
    claim: Claim,
    row: BackfillRow,
    limit: int,
    started: float,
    readings: dict[str, Any],
    courtesy: Courtesy | None,
) -> Batch:
    before = _changes(session)
    window = select(session, definition, definition.select_statement, after=row.checkpoint, upto=row.bound, limit=limit)
    if window.last is None:
        _finish(postgres, session, claim)
        return Batch(0, 0, row.checkpoint, True, None, _milliseconds(started))
    session.run(
        definition.mutate_statement(after=row.checkpoint is not None), **_positions(row.checkpoint, window.last)
    )
    after = session.required(statement("changes_and_lock"), stable_id=claim.stable_id)["changes"]
    changed = after - before
    if changed > limit * definition.bound.changes_per_row:
        allowed = limit * definition.bound.changes_per_row
        raise Refusal(BackfillReason.BoundExceeded, f"{changed:,} rows changed, at most {allowed:,}")
    reached = window.selected < limit or list(window.last) == list(row.bound or ())
    duration_ms = _milliseconds(started)
    pace = after_batch(definition.bound, limit, duration_ms / 1000, courtesy) if window.selected == limit else None
    moved = session.run(
        checkpoint_statement(postgres, definition),
        **claim.guard,
        position=as_json(window.last),
        lifecycle=Lifecycle.VALIDATING if reached else Lifecycle.RUNNING,
        ttl_s=postgres.settings.backfills.claim_ttl_s,
        batch_rows=pace.rows if pace else limit,
        pace=Jsonb(pace_as_json(pace, limit, duration_ms, readings)) if pace else None,
        selected=window.selected,
        changed=changed,
        transaction_s=definition.bound.transaction_s,
    )
    if moved != 1:
        raise _not_moved(postgres, session, claim)
    return Batch(window.selected, changed, window.last, reached, pace, duration_ms)


def select(
    session: Session,
    definition: Definition,
    select_of: Any,
    *,
    after: Position | None,
    upto: Position | None,
    limit: int,
) -> Window:
    """The next window, checked: at most ``limit`` rows, all strictly after ``after`` and no later than ``upto``."""
    key = definition.key
    if not upto:
        return Window(0, None)
    found = session.required(
        f"WITH batch AS MATERIALIZED (SELECT {key.names} FROM ({select_of(after=after is not None)}) chosen"
        f" LIMIT %(limit)s + 1) SELECT count(*) AS selected, bool_and({key.window(after=after is not None)}) AS inside,"
        f" (SELECT {key.as_json} FROM batch ORDER BY {key.descending} LIMIT 1) AS last FROM batch",
        **_positions(after, upto),
        limit=limit,
    )
    if found["selected"] > limit:
        raise Refusal(BackfillReason.BoundExceeded, f"more than {limit:,} rows selected")
    if found["inside"] is False:
        raise Refusal(BackfillReason.BoundExceeded, "rows selected outside of the window")
    return Window(found["selected"], found["last"])


def has_work(session: Session, definition: Definition, row: BackfillRow) -> bool:
    """Whether admitted work is left between the checkpoint and the bound."""
    window = select(session, definition, definition.own_select, after=row.checkpoint, upto=row.bound, limit=1)
    return window.last is not None


def checkpoint_statement(postgres: Postgres, definition: Definition) -> str:
    """The guarded last statement, with positions compared in the key's types."""
    key = definition.key
    ahead = f"{key.position('%(position)s::jsonb')} > {key.position('checkpoint')}"
    return (
        statement("commit_batch", postgres.clock)
        .replace("{forward}", f"(checkpoint IS NULL OR {ahead})")
        .replace("{within}", f"{key.position('%(position)s::jsonb')} <= {key.position('bound')}")
    )


def pace_as_json(pace: Pace, rows: int, duration_ms: float, readings: dict[str, Any]) -> dict[str, Any]:
    """What the read model shows of the last decision."""
    return {
        "decision": pace.decision.value,
        "because": pace.because,
        "rows": rows,
        "nextRows": pace.rows,
        "durationMs": round(duration_ms, 1),
        "restMs": round(pace.rest_s * 1000, 1),
        "signals": readings,
    }


def _changes(session: Session) -> int:
    reading = session.required(statement("changes"))
    if not reading["counted"]:
        raise Refusal(BackfillReason.PrerequisiteUnmet, "track_counts is off, so changes cannot be counted")
    return int(reading["changes"])


def _finish(postgres: Postgres, session: Session, claim: Claim) -> None:
    finishing = statement("finish_mutation", postgres.clock)
    if session.run(finishing, **claim.guard, ttl_s=postgres.settings.backfills.claim_ttl_s) != 1:
        raise Refusal(BackfillReason.ClaimLost, claim.stable_id)


def _not_moved(postgres: Postgres, session: Session, claim: Claim) -> Refusal:
    """Why the last statement found no row; its lock is still ours, so this is what it saw."""
    found = session.required(statement("lock", postgres.clock), stable_id=claim.stable_id)
    ours = (found["generation"], found["claim_owner"], found["claimed"]) == (claim.generation, claim.owner, True)
    if ours and found["lifecycle"] == Lifecycle.RUNNING:
        return Refusal(BackfillReason.BoundExceeded, "the transaction lasted too long, or moved to no later position")
    return Refusal(BackfillReason.ClaimLost, claim.stable_id)


def _resolved(postgres: Postgres, claim: Claim, before: BackfillRow, intended: Batch) -> Batch:
    """What became of a commit that was not answered: the row says. Refuses ClaimLost, or PostgresCommitUnknown again
    where the row cannot be read, and ClaimLost's opposite by returning the batch."""
    locking = statement("lock", postgres.clock)
    found = transact(postgres, lambda session: session.required(locking, stable_id=claim.stable_id))
    row = BackfillRow.of(found)
    if row.generation != claim.generation:
        raise Refusal(BackfillReason.ClaimLost, claim.stable_id)
    if row.lifecycle is not before.lifecycle or row.checkpoint != before.checkpoint:
        return intended
    raise Refusal(PostgresReason.PostgresUnreachable, "the batch was not committed")


def _positions(after: Position | None, upto: Position | None) -> dict[str, Any]:
    return {"upto": as_json(upto)} | ({} if after is None else {"after": as_json(after)})


def _milliseconds(started: float) -> float:
    return (time.monotonic() - started) * 1000
