"""Validation: the definition's own proof through the bound, read in bounded steps, and the only way to completed.

Each step reads in a transaction in which the server refuses every write, whatever the definition's SQL says. What it
found is committed afterwards, under the claim (a worker's) or under lifecycle and generation (an operator's).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from statlib.backfills.batches import select
from statlib.backfills.definitions import Definition
from statlib.backfills.failures import bounded
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.rows import BackfillRow, Claim, Position, as_json
from statlib.backfills.sql import statement
from statlib.backfills.telemetry import (
    ClaimEvent,
    Ending,
    Phase,
    count_claim,
    count_ending,
    record_duration,
)
from statlib.kernel.refusals import Refusal
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import Limits, Session, transact


@dataclass(frozen=True, slots=True)
class Examined:
    """One step. ``upto``: validated through here; ``done``: that is the bound; ``problem``: what does not hold."""

    upto: Position
    done: bool
    problem: str
    duration_ms: float


def examine(
    postgres: Postgres, definition: Definition, row: BackfillRow, *, after: Position | None, rows: int | None = None
) -> Examined:
    """Read one step, strictly after ``after``: at most ``rows``, and never more than is declared. Changes nothing;
    raises what the definition's SQL raises."""
    bound = row.bound or ()
    limit = min(rows or definition.bound.validation_rows_max, definition.bound.validation_rows_max)
    limits = Limits(statement_s=definition.bound.transaction_s, lock_s=definition.bound.lock_s)
    started = time.monotonic()

    def body(session: Session) -> Examined:
        if not bound:
            return Examined((), True, "", 0.0)
        window = select(session, definition, definition.own_select, after=after, upto=bound, limit=limit)
        done = window.last is None or window.selected < limit or list(window.last) == list(bound)
        upto = bound if done or window.last is None else window.last
        return Examined(upto, done, _problem(session, definition, after, upto, limit), 0.0)

    found = transact(postgres, body, limits=limits, read_only=True)
    duration_ms = (time.monotonic() - started) * 1000
    record_duration(Phase.VALIDATION, duration_ms)
    return Examined(found.upto, found.done, found.problem, duration_ms)


def _problem(session: Session, definition: Definition, after: Position | None, upto: Position, limit: int) -> str:
    key = definition.key
    positions = {"upto": as_json(upto)} | ({} if after is None else {"after": as_json(after)})
    found = session.required(
        f"WITH wrong AS MATERIALIZED (SELECT {key.names} FROM"
        f" ({definition.validate_statement(after=after is not None)}) found LIMIT %(limit)s)"
        f" SELECT count(*) AS wrong, (SELECT {key.as_json} FROM wrong ORDER BY {key.ascending} LIMIT 1) AS first,"
        f" (SELECT {key.as_json} FROM wrong ORDER BY {key.descending} LIMIT 1) AS last FROM wrong",
        **positions,
        limit=limit,
    )
    if not found["wrong"]:
        return ""
    places = f"from {json.dumps(found['first'])} to {json.dumps(found['last'])}"
    return bounded(f"{found['wrong']:,} rows lack the postcondition, {places}")


def commit_step(postgres: Postgres, claim: Claim, examined: Examined) -> None:
    """Remember how far a worker's validation came. Refuses ClaimLost."""
    _guarded(
        postgres,
        "commit_validation_step",
        claim,
        position=as_json(examined.upto),
        duration_ms=round(examined.duration_ms),
        ttl_s=postgres.settings.backfills.claim_ttl_s,
    )
    count_claim(ClaimEvent.RENEWED)


def complete(postgres: Postgres, claim: Claim, examined: Examined) -> None:
    """End a worker's successful validation. Refuses ClaimLost: a stale validator completes nothing."""
    _guarded(postgres, "complete_claimed", claim, duration_ms=round(examined.duration_ms))
    count_ending(Ending.VALIDATED)


def hold(postgres: Postgres, stable_id: str, holder: str) -> bool:
    """Take or keep the one place for a validation of this id; whether it is ours. It lasts as long as a claim does."""
    holding = statement("hold_validation", postgres.clock)
    values = {"stable_id": stable_id, "holder": holder, "hold_s": postgres.settings.backfills.claim_ttl_s}
    return transact(postgres, lambda session: session.run(holding, **values)) == 1


def let_go(postgres: Postgres, stable_id: str, holder: str) -> None:
    """Give the place up; harmless when it is no longer ours."""
    ending = statement("end_validation")
    transact(postgres, lambda session: session.run(ending, stable_id=stable_id, holder=holder))


def _guarded(postgres: Postgres, name: str, claim: Claim, **values: object) -> None:
    guarded = statement(name, postgres.clock)
    locking = statement("lock", postgres.clock)

    def body(session: Session) -> int:
        session.one(locking, stable_id=claim.stable_id)  # the clock is read once the row is ours
        return session.run(guarded, **claim.guard, **values)

    if transact(postgres, body) != 1:
        count_claim(ClaimEvent.STALE_REJECTED)
        raise Refusal(BackfillReason.ClaimLost, claim.stable_id)
