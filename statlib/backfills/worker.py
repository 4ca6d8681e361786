"""A worker's turn: claim one backfill, advance it step by step while the turn lasts, and let it go again.

It re-reads PostgreSQL before every step; what woke it, and what it remembers, decide nothing. Between steps it looks
for its own cancellation and for the foreground's needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import psycopg
from psycopg.types.json import Jsonb

from statlib.backfills.batches import pace_as_json, run_batch
from statlib.backfills.claims import acquire, release
from statlib.backfills.definitions import Definition
from statlib.backfills.failures import Failure, FailureKind, classify
from statlib.backfills.handling import record_failure
from statlib.backfills.health import Health, Signal, read_health
from statlib.backfills.interpretation import interpretable, require_prerequisite
from statlib.backfills.lifecycle import Lifecycle
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.registry import Registry
from statlib.backfills.rows import BackfillRow, Claim
from statlib.backfills.sizing import Courtesy, Decision, Pace, proof_rows
from statlib.backfills.sql import statement
from statlib.backfills.telemetry import ClaimEvent, count_claim
from statlib.backfills.validation import commit_step, complete, examine, hold, let_go
from statlib.kernel.cancellation import Cancellation
from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Refusal
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import transact

REST_S = 0.5  # how long a worker rests for the foreground before it looks again
HEALTH_EVERY_S = 0.2  # signals are read no more often than this


class Step(StrEnum):
    """What one step of a turn came to."""

    COMMITTED = "committed"  # a batch
    MUTATED = "mutated"  # the bound is reached: validating now
    VALIDATED = "validated"  # a step of the validation
    COMPLETED = "completed"
    FAILED = "failed"  # recorded on the row, which waits for its backoff or for an operator
    LOST = "lost"  # the claim is somebody else's, or nobody's
    RESTED = "rested"  # the foreground came first
    WAITING = "waiting"  # somebody else validates it at this moment


GOES_ON = frozenset({Step.COMMITTED, Step.MUTATED, Step.VALIDATED, Step.RESTED})


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that has ended: which backfill, and each step, in order; at most the last ``STEPS_KEPT``."""

    stable_id: str
    generation: int
    steps: tuple[Step, ...]


STEPS_KEPT = 1_000


@dataclass
class Worker:
    """One worker of this process. ``signals`` may be empty: then it never rests for anybody."""

    postgres: Postgres
    registry: Registry
    signals: Sequence[Signal] = ()
    cancellation: Cancellation = field(default_factory=Cancellation)
    owner: str = field(default_factory=new_token)
    _health: Health = field(default_factory=lambda: Health({}, ""), init=False)
    _health_at: float = field(default=float("-inf"), init=False)
    _proof_rows: int | None = field(default=None, init=False)

    def turn(self) -> Turn | None:
        """Take one turn; None if there was nothing to claim. Refuses PostgresUnreachable while the database is away."""
        claimed = acquire(self.postgres, interpretable(self.postgres, self.registry), self.owner)
        if claimed is None:
            return None
        claim, row = claimed.claim, claimed.row
        definition = self.registry.get(claim.stable_id)
        steps: list[Step] = []
        ends = time.monotonic() + self.postgres.settings.backfills.turn_s
        try:
            self._require_not_exhausted(definition, claim, row, steps)
            while not steps or steps[-1] in GOES_ON:
                steps.append(self._step(definition, claim, first=not steps))
                del steps[:-STEPS_KEPT]
                if self.cancellation.cancelled or time.monotonic() > ends:
                    break
        finally:
            let_go(self.postgres, claim.stable_id, self.owner)
            release(self.postgres, claim)
        return Turn(claim.stable_id, claim.generation, tuple(steps))

    def _require_not_exhausted(self, definition: Definition, claim: Claim, row: BackfillRow, steps: list[Step]) -> None:
        if row.attempts >= definition.retry.attempts_max:
            told = f"{row.attempts} claims ran out without progress"
            record_failure(self.postgres, definition, claim, row, Failure(FailureKind.ABANDONED, told))
            steps.append(Step.FAILED)

    def _step(self, definition: Definition, claim: Claim, *, first: bool) -> Step:
        row = self._current(claim)
        if row is None:
            count_claim(ClaimEvent.LOST)
            return Step.LOST
        doing = "validating" if row.lifecycle is Lifecycle.VALIDATING else "repairing the next rows"
        try:
            if self._rests(claim, row):
                return Step.RESTED
            if first:
                require_prerequisite(self.postgres, definition)
            if row.lifecycle is Lifecycle.VALIDATING:
                return self._validate(definition, claim, row)
            courtesy = self._courtesy()
            readings = self._health.readings
            batch = run_batch(self.postgres, definition, claim, row, readings=readings, courtesy=courtesy)
        except Exception as error:
            if isinstance(error, Refusal) and error.reason is BackfillReason.ClaimLost:
                return Step.LOST
            return self._failed(definition, claim, row, classify(error, doing))
        self._rest_after(batch.duration_ms, courtesy)
        return Step.MUTATED if batch.reached else Step.COMMITTED

    def _validate(self, definition: Definition, claim: Claim, row: BackfillRow) -> Step:
        if not hold(self.postgres, claim.stable_id, self.owner):
            return Step.WAITING
        courtesy = self._courtesy()
        examined = examine(self.postgres, definition, row, after=row.validated, rows=self._proof_rows)
        if examined.problem:
            failure = Failure(FailureKind.VALIDATION, examined.problem)
            return self._failed(definition, claim, row, failure)
        if not examined.done:
            commit_step(self.postgres, claim, examined)
            rows = self._proof_rows or definition.bound.validation_rows_max
            self._proof_rows = proof_rows(definition.bound, rows, examined.duration_ms / 1000, courtesy)
            self._rest_after(examined.duration_ms, courtesy)
            return Step.VALIDATED
        complete(self.postgres, claim, examined)
        return Step.COMPLETED

    def _failed(self, definition: Definition, claim: Claim, row: BackfillRow, failure: Failure) -> Step:
        """Record it; where even that cannot be done, the claim runs out and counts as a try when it is taken over."""
        recorded = record_failure(self.postgres, definition, claim, row, failure)
        return Step.LOST if recorded is None else Step.FAILED

    def _current(self, claim: Claim) -> BackfillRow | None:
        """The row as it is now, if the claim still stands."""
        reading = statement("read", self.postgres.clock)
        found = transact(
            self.postgres, lambda session: session.one(reading, stable_id=claim.stable_id, limit=1), read_only=True
        )
        if found is None or not found["claimed"]:
            return None
        ours = found["generation"] == claim.generation and found["claim_owner"] == claim.owner
        return BackfillRow.of(found) if ours else None

    def _courtesy(self) -> Courtesy | None:
        """What the last reading of the signals asks for."""
        if not self._health.courteous_because:
            return None
        chosen = self.postgres.settings.backfills
        return Courtesy(chosen.courteous_batch_s, chosen.courteous_share, self._health.courteous_because)

    def _rest_after(self, worked_ms: float, courtesy: Courtesy | None) -> None:
        """Let the foreground at the processors and the log in between; a cancellation ends it."""
        if courtesy is not None:
            self.cancellation.wait(courtesy.rest_s(worked_ms / 1000))

    def _rests(self, claim: Claim, row: BackfillRow) -> bool:
        if not self.signals:
            return False
        if time.monotonic() - self._health_at >= HEALTH_EVERY_S:
            self._health, self._health_at = read_health(self.postgres, self.signals), time.monotonic()
        if not self._health.rest_because:
            return False
        rows = row.batch_rows or 1
        pace = pace_as_json(Pace(rows, Decision.YIELD, self._health.rest_because), rows, 0.0, self._health.readings)
        noting = statement("note_yield", self.postgres.clock)
        ttl_s = self.postgres.settings.backfills.claim_ttl_s
        noted = transact(
            self.postgres, lambda session: session.run(noting, **claim.guard, pace=Jsonb(pace), ttl_s=ttl_s)
        )
        if noted:
            count_claim(ClaimEvent.RENEWED)
        self.cancellation.wait(REST_S)
        return True


def work(worker: Worker, *, sleep: Callable[[float], object], idle_s: float) -> None:
    """Take turns until the worker is cancelled. ``sleep`` waits between them, at most as long as it is told, and may
    return early when there may be work. A database that is away is waited for."""
    while not worker.cancellation.cancelled:
        try:
            turn = worker.turn()
        except (Refusal, psycopg.Error):  # the database is away or restarts; what was claimed runs out
            worker.cancellation.wait(min(1.0, idle_s))
            continue
        if turn is None or turn.steps[-1:] == (Step.WAITING,):
            sleep(idle_s)
