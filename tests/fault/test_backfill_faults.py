"""Workers, their server processes and the whole server killed in the middle of a batch; a worker frozen and woken."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from statlib.backfills.claims import acquire
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.local.postgres import postgres_server
from tests.backfilling import ALWAYS_FOLDING, BARRIER, Bench, InThread, barrier, bench, fill_notes, until, waits_for
from tests.children import child
from tests.postgres import Database, Databases
from tests.statements import STATEMENTS_OF_A_BATCH, interrupted

MODULE = "tests.fault.backfill_worker"
LOCKED = "SELECT 1 FROM pg_locks WHERE relation = 'note'::regclass AND mode = 'RowExclusiveLock'"
EVERY_STATEMENT = range(1, STATEMENTS_OF_A_BATCH + 2)  # the last: right after the commit


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """A server that these tests may break: killing one of its processes ends the connections of all."""
    with postgres_server(settings=Settings()) as server:
        databases = Databases(server)
        databases.prepare(tmp_path_factory.mktemp("own"))
        yield databases


def assert_whole(b: Bench, number: int) -> None:
    """Rows and checkpoint went together."""
    row = b.row()
    assert row["bound"] == [3, 5]
    committed = number > STATEMENTS_OF_A_BATCH
    assert b.folded() == row["rowsChanged"]
    if committed:
        assert row["checkpoint"] is not None
    elif number < STATEMENTS_OF_A_BATCH:
        assert (b.folded(), row["checkpoint"]) == (0, None)


def assert_resumes(b: Bench) -> None:
    """A successor goes on strictly after the committed checkpoint: every row is changed once."""
    b.expire_claims()
    assert b.drive() == "completed"
    assert {touched for *_, touched in b.notes()} == {1}


@pytest.mark.req("BF-CLAIM-22", "BF-CLAIM-23", "BF-EXEC-27", "BF-CONF-04")
@pytest.mark.parametrize("number", EVERY_STATEMENT)
def test_a_worker_killed_at_any_statement_leaves_its_batch_or_nothing_of_it(database: Database, number: int) -> None:
    fill_notes(database)
    with bench(database, ALWAYS_FOLDING) as b:
        b.start()
        with child(MODULE, database.settings, "always", "at", str(number)) as killed:
            killed.say("go")
            assert killed.process.wait(timeout=60) == -signal.SIGKILL
        until(lambda: not database.admin(LOCKED), "the server noticed that its client is gone")
        assert_whole(b, number)
        assert_resumes(b)


@pytest.mark.req("BF-CLAIM-22", "BF-EXEC-27", "BF-AUTH-14")
@pytest.mark.parametrize("number", EVERY_STATEMENT)
@pytest.mark.parametrize("broken", ["server process", "server"])
def test_a_server_killed_at_any_statement_needs_no_mending_hand(
    own_server: Databases, tmp_path: Path, broken: str, number: int
) -> None:
    database = own_server.new(tmp_path)
    fill_notes(database)

    def break_it(connection: psycopg.Connection) -> None:
        if broken == "server":
            own_server.server.kill()
            own_server.server.start()
        else:
            os.kill(connection.info.backend_pid, signal.SIGKILL)

    with bench(database, ALWAYS_FOLDING) as b:
        b.start()
        with interrupted(number, break_it) as sent, suppress(Refusal, psycopg.Error):
            b.worker().turn()
        assert sent[0] >= number
        until(lambda: answers(b.row), "the server recovered")
        assert_whole(
            b, 0 if b.row()["checkpoint"] is None and number < STATEMENTS_OF_A_BATCH else STATEMENTS_OF_A_BATCH
        )
        assert_resumes(b)
    own_server.drop(database.name)


def answers(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except (Refusal, psycopg.Error):
        return False
    return True


@pytest.mark.req("BF-CLAIM-13", "BF-CLAIM-17", "BF-CLAIM-24", "BF-CONF-05")
@pytest.mark.parametrize("definition", ["waiting-to-fold", "waiting-to-prove"])
def test_a_worker_frozen_past_its_claim_and_woken_commits_nothing(database: Database, definition: str) -> None:
    fill_notes(database)
    with bench(database, ALWAYS_FOLDING) as b:
        b.start()
        if definition == "waiting-to-prove":
            b.mutate_all()
        with child(MODULE, database.settings, definition, "turn") as frozen:
            with barrier(database, BARRIER):
                frozen.say("go")
                until(lambda: waits_for(database, BARRIER), "the worker is inside")
                frozen.freeze()
            until(lambda: not database.admin(LOCKED), "the server ended the silent transaction, and its locks")
            b.expire_claims()
            assert b.drive() == "completed"
            notes, row = b.notes(), b.database.admin("SELECT to_jsonb(b) FROM statlib_backfill b")
            frozen.thaw()
            assert frozen.hear() in {"lost", "failed"}
            assert (b.notes(), b.database.admin("SELECT to_jsonb(b) FROM statlib_backfill b")) == (notes, row)
            assert {touched for *_, touched in notes} == {1}


@pytest.mark.req("BF-CLAIM-17")
@pytest.mark.parametrize("hours", [-1, 1])
def test_a_worker_s_own_clock_decides_nothing(database: Database, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    fill_notes(database)
    real, steady = time.time, time.monotonic
    with bench(database, ALWAYS_FOLDING) as b:
        b.start()
        standing = acquire(b.postgres, b.registry, "rightful")
        monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
        monkeypatch.setattr(time, "monotonic", lambda: steady() + hours * 3600)
        assert b.worker().turn() is None, "the claim stands by the server's clock"
        assert standing is not None
        b.expire_claims()
        assert b.drive() == "completed"
        assert {touched for *_, touched in b.notes()} == {1}


@pytest.mark.req("BF-AUTH-12", "BF-AUTH-13")
def test_a_worker_sleeps_until_it_is_woken_or_looks_by_itself(database: Database) -> None:
    fill_notes(database)
    with bench(database, ALWAYS_FOLDING) as b, child(MODULE, database.settings, "always", "plain"):
        starting = InThread(b.start)
        starting.ended()
        until(lambda: b.lifecycle() == "completed", "woken, or found by polling")
