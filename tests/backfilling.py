"""What tests of backfills repair: a table of notes, its definition in several shapes, and the seams that drive it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import psycopg

from statlib.backfills.batches import run_batch
from statlib.backfills.claims import acquire, release
from statlib.backfills.controls import control
from statlib.backfills.definitions import BatchBound, Definition, RetryPolicy, key
from statlib.backfills.lifecycle import Lifecycle, Operator
from statlib.backfills.read_model import show_backfill
from statlib.backfills.registry import Registry, register
from statlib.backfills.rows import BackfillRow
from statlib.backfills.sql import statement
from statlib.backfills.worker import Step, Worker
from statlib.kernel.cancellation import CancelCause
from statlib.passes.actions import Action
from statlib.postgres.connection import Postgres, connected
from statlib.postgres.transactions import transact
from tests.postgres import Database

DEADLINE_S = 60.0
NOTES = """
CREATE TABLE note (shelf integer NOT NULL, place integer NOT NULL, text text NOT NULL, folded text,
  touched integer NOT NULL DEFAULT 0, PRIMARY KEY (shelf, place));
GRANT SELECT, UPDATE, DELETE ON note TO statlib_runtime;
"""
FOLD = (
    "UPDATE note SET folded = lower(text), touched = touched + 1 WHERE {window} AND folded IS DISTINCT FROM lower(text)"
)
UNFOLDED = "SELECT shelf, place FROM note WHERE {window} AND folded IS DISTINCT FROM lower(text)"
FOLD_NOTES = Definition(
    id="fold-notes",
    title="Fold the case of notes",
    key=key(("shelf", "integer"), ("place", "integer")),
    source="note",
    mutate=FOLD,
    validate=UNFOLDED,
    bound=BatchBound(rows_max=4, transaction_s=5.0, lock_s=2.0, target_s=5.0, floor_rows=1, validation_rows_max=5),
    retry=RetryPolicy(attempts_max=3, backoff_s=0.001, backoff_max_s=0.002),
)


def fill_notes(database: Database, shelves: int = 3, places: int = 5) -> None:
    """``shelves`` × ``places`` notes whose first key column has ties."""
    database.admin(NOTES)
    database.admin(
        "INSERT INTO note (shelf, place, text) SELECT s, p, 'Note ' || s || '/' || p"
        " FROM generate_series(1, %s) s, generate_series(1, %s) p", shelves, places,
    )  # fmt: skip


def waiting_for(lock: int, sql: str = FOLD) -> str:
    """``sql`` as a mutation that first waits for an advisory lock: a barrier inside of the batch's transaction."""
    return f"WITH barrier AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared({lock})) " + sql.replace(
        "WHERE {window}", "WHERE (SELECT count(*) FROM barrier) = 1 AND {window}"
    )


def shaped(**changes: Any) -> Definition:
    return replace(FOLD_NOTES, **changes)


@dataclass(frozen=True)
class Bench:
    """A database, what this process knows, and operators and workers on it."""

    database: Database
    postgres: Postgres
    registry: Registry

    @property
    def id(self) -> str:
        return self.registry.ids[0]

    def ask(self, operator: Operator, *, request_id: str | None = None, **options: Any) -> dict[str, Any]:
        return dict(control(self.postgres, self.registry, operator, action(operator, self.id, request_id), **options))

    def start(self) -> dict[str, Any]:
        return self.ask(Operator.START)

    def worker(self, **options: Any) -> Worker:
        return Worker(self.postgres, self.registry, **options)

    def row(self) -> dict[str, Any]:
        return show_backfill(self.postgres, self.registry, self.id)

    def lifecycle(self) -> str:
        return str(self.row()["lifecycle"])

    def expire_claims(self) -> None:
        """Move the clock that every claim of this database is judged by past the claims that are held now."""
        self.postgres.clock.advance(self.postgres.settings.backfills.claim_ttl_s + 1)

    def drive(self, worker: Worker | None = None, *, turns_max: int = 200) -> str:
        """Take turns until nothing can be claimed; the lifecycle then. Endless work is interrupted, and fails."""
        driver = worker or self.worker()
        overdue = threading.Timer(DEADLINE_S, lambda: driver.cancellation.cancel(CancelCause.STOPPING))
        overdue.start()
        try:
            for _ in range(turns_max):
                if driver.turn() is None:
                    if not self.row()["nextEligibleAtUtc"] or self.lifecycle() not in {"running", "validating"}:
                        return self.lifecycle()
                    self.postgres.clock.advance(1)
                if driver.cancellation.cancelled:
                    raise AssertionError(f"still {self.lifecycle()} after {DEADLINE_S:.0f} s: {self.row()}")
            raise AssertionError(f"still {self.lifecycle()} after {turns_max} turns: {self.row()}")
        finally:
            overdue.cancel()

    def mutate_all(self) -> None:
        """Batch by batch through the bound, and let the claim go: the row is validating, and nothing is proved."""
        claimed = acquire(self.postgres, self.registry, "mutator")
        assert claimed is not None
        row = claimed.row
        reading = statement("read", self.postgres.clock)
        while row.lifecycle is Lifecycle.RUNNING:
            run_batch(self.postgres, self.registry.get(self.id), claimed.claim, row)
            row = BackfillRow.of(transact(self.postgres, lambda s: s.required(reading, stable_id=self.id, limit=1)))
        release(self.postgres, claimed.claim)

    def notes(self) -> list[tuple[Any, ...]]:
        return self.database.admin("SELECT shelf, place, folded, touched FROM note ORDER BY shelf, place")

    def folded(self) -> int:
        return int(self.database.admin("SELECT count(*) FROM note WHERE folded = lower(text)")[0][0])


def action(operator: Operator, stable_id: str, request_id: str | None = None, **payload: Any) -> Action:
    return Action(
        principal="operator",
        authority="token",
        action=operator.value,
        target=stable_id,
        request_id=request_id or str(uuid4()),
        payload=payload,
    )


@contextmanager
def bench(database: Database, *definitions: Definition, registered: bool = True) -> Iterator[Bench]:
    """The definitions registered on the database, with connections as the runtime role."""
    with connected(database.settings, app_name="statlib-tests") as postgres:
        registry = Registry(definitions or (FOLD_NOTES,))
        if registered:
            register(postgres, registry)
        yield Bench(database, postgres, registry)


@contextmanager
def barrier(database: Database, lock: int) -> Iterator[psycopg.Connection]:
    """Hold an advisory lock that a mutation or a validation waits for; released at the end, or by a rollback."""
    with database.session() as holder:
        holder.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        yield holder


def until(held: Callable[[], object], what: str = "") -> None:
    """Wait for a condition, with a deadline that a busy machine meets."""
    deadline = time.monotonic() + DEADLINE_S
    while not held():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {DEADLINE_S:.0f} s: {what or held}")
        time.sleep(0.01)


def waits_for(database: Database, lock: int) -> bool:
    """Whether some session waits for the advisory lock now."""
    rows = database.admin("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted", lock)
    return bool(rows)


class InThread(threading.Thread):
    """A call that runs beside the test; ``outcome`` is what it returned, and what it raised is raised by ``ended``."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.outcome: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self._call()
        except BaseException as error:
            self.error = error

    def ended(self) -> Any:
        self.join(DEADLINE_S)
        assert not self.is_alive(), "the call did not end"
        if self.error is not None:
            raise self.error
        return self.outcome


def steps_of(worker: Worker) -> tuple[Step, ...]:
    turn = worker.turn()
    return turn.steps if turn is not None else ()


BARRIER = 4711
WAITING_TO_FOLD = shaped(
    mutate=waiting_for(BARRIER, "UPDATE note SET folded = lower(text), touched = touched + 1 WHERE {window}")
)
ALWAYS_FOLDING = shaped(mutate="UPDATE note SET folded = lower(text), touched = touched + 1 WHERE {window}")
WAITING_TO_PROVE = shaped(validate=waiting_for(BARRIER, UNFOLDED))
DEFINITIONS = {
    "plain": FOLD_NOTES,
    "waiting-to-fold": WAITING_TO_FOLD,
    "waiting-to-prove": WAITING_TO_PROVE,
    "always": ALWAYS_FOLDING,
}
