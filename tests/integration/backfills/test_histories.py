"""Random histories of workers, crashes, takeovers, frozen owners and operators, held against what must always hold."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from statlib.backfills.batches import run_batch
from statlib.backfills.claims import acquire
from statlib.backfills.lifecycle import TRANSITIONS, Lifecycle, Operator
from statlib.backfills.registry import Registry, register
from statlib.backfills.rows import BackfillRow, Claimed
from statlib.backfills.sql import statement
from statlib.backfills.validation import complete, examine
from statlib.kernel.refusals import Refusal
from statlib.local.postgres import ADMINISTRATIVE_ROLE
from statlib.postgres.connection import connected
from statlib.postgres.transactions import transact
from tests.backfilling import ALWAYS_FOLDING, Bench, fill_notes
from tests.postgres import Databases

# read before fixtures clear what is ours; with it a run plays that many, each time others
ASKED = int(os.environ.get("STATLIB_HISTORIES", "0"))
EXAMPLES, STEPS = ASKED or 24, 40
MOVES = [Operator.START, Operator.PAUSE, Operator.RESUME, Operator.RETRY]


def machine(databases: Databases, folder: Path) -> type[RuleBasedStateMachine]:
    class Histories(RuleBasedStateMachine):
        """``claims`` are of owners that live, crash or freeze: whoever acts with one may long have been overtaken."""

        def __init__(self) -> None:
            super().__init__()
            self.database = databases.new(folder)
            fill_notes(self.database, shelves=2, places=4)
            self.connection = connected(self.database.settings)
            postgres = self.connection.__enter__()
            self.bench = Bench(self.database, postgres, registry_of())
            register(postgres, self.bench.registry)
            address = self.database.server.address(ADMINISTRATIVE_ROLE, self.database.name)
            self.watcher = psycopg.connect(address, autocommit=True)  # kept: a login costs more than a step
            self.claims: list[Claimed] = []
            self.before: dict[str, Any] = self.bench.row()
            self.validated = False

        def teardown(self) -> None:
            self.watcher.close()
            self.connection.__exit__(None, None, None)
            databases.drop(self.database.name)

        @rule(operator=st.sampled_from(MOVES))
        def operate(self, operator: Operator) -> None:
            with suppress(Refusal):
                self.bench.ask(operator)

        @rule()
        def claim(self) -> None:
            found = acquire(self.bench.postgres, self.bench.registry, f"owner-{len(self.claims)}")
            if found is not None:
                self.claims.append(found)

        @rule()
        def time_passes(self) -> None:
            self.bench.expire_claims()

        @rule(which=st.integers(0, 100))
        def somebody_commits_a_batch(self, which: int) -> None:
            if not self.claims:
                return
            claimed = self.claims[which % len(self.claims)]
            row = self.current()
            current = row.generation == claimed.claim.generation and row.lifecycle is Lifecycle.RUNNING
            if row.bound is None:
                return
            with suppress(Refusal):
                run_batch(self.bench.postgres, ALWAYS_FOLDING, claimed.claim, row)
                assert current, "an owner that was overtaken committed"

        @rule(which=st.integers(0, 100))
        def somebody_validates(self, which: int) -> None:
            if not self.claims:
                return
            claimed = self.claims[which % len(self.claims)]
            row = self.current()
            if row.bound is None:
                return
            examined = examine(self.bench.postgres, ALWAYS_FOLDING, row, after=None)
            with suppress(Refusal):
                complete(self.bench.postgres, claimed.claim, examined)
                assert not examined.problem or row.lifecycle is not Lifecycle.VALIDATING or not examined.done
                self.validated = True

        @rule()
        def a_worker_takes_a_turn(self) -> None:
            turn = self.bench.worker().turn()
            if turn is not None and "completed" in turn.steps:
                self.validated = True

        @rule()
        def it_is_registered_again(self) -> None:
            register(self.bench.postgres, self.bench.registry)

        @invariant()
        def what_must_hold_holds(self) -> None:
            now, before = self.bench.row(), self.before
            self.before = now
            assert now["generation"] >= before["generation"]
            assert before["bound"] in (None, now["bound"]), "the bound was captured again"
            assert (now["checkpoint"] or []) >= (before["checkpoint"] or []), "the checkpoint moved back"
            assert (now["checkpoint"] or []) <= (now["bound"] or []), "the checkpoint moved past the bound"
            if now["lifecycle"] != before["lifecycle"]:
                assert reachable(Lifecycle(before["lifecycle"]), Lifecycle(now["lifecycle"]))
            asked = "SELECT shelf, place, folded, touched FROM note ORDER BY shelf, place"
            notes = self.watcher.execute(asked).fetchall()
            repaired = {(shelf, place) for shelf, place, _, touched in notes if touched}
            assert {touched for *_, touched in notes} <= {0, 1}, "a row was mutated twice"
            upto = tuple(now["checkpoint"] or ())
            assert repaired == {(shelf, place) for shelf, place, *_ in notes if (shelf, place) <= upto}
            if now["lifecycle"] == "completed":
                assert self.validated
                assert len(repaired) == len(notes), "completed with work left"
            assert self.watcher.execute("SELECT count(*) FROM statlib_backfill").fetchall() == [(1,)]

        def current(self) -> BackfillRow:
            reading = statement("read", self.bench.postgres.clock)
            found = transact(self.bench.postgres, lambda s: s.required(reading, stable_id=self.bench.id, limit=1))
            return BackfillRow.of(found)

    return Histories


def registry_of() -> Registry:
    return Registry((ALWAYS_FOLDING,))


def reachable(before: Lifecycle, after: Lifecycle) -> bool:
    """By any number of edges: a worker's turn takes several."""
    seen, frontier = {before}, {before}
    while frontier:
        frontier = {to for of, to in TRANSITIONS if of in frontier} - seen
        seen |= frontier
    return after in seen


@pytest.mark.timeout(0 if ASKED else 300)
@pytest.mark.req("BF-EXEC-09", "BF-EXEC-10", "BF-VALID-08", "BF-ID-03", "BF-CLAIM-04", "BF-LIFE-10")
def test_no_history_moves_a_checkpoint_back_mutates_twice_or_completes_unproved(
    postgres_databases: Databases, tmp_path: Path
) -> None:
    run_state_machine_as_test(
        machine(postgres_databases, tmp_path),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not ASKED,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
