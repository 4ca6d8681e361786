"""From registration to validated completion, and what may happen on the way."""

from __future__ import annotations

import psycopg
import pytest

from statlib.backfills.batches import run_batch
from statlib.backfills.claims import acquire, release
from statlib.backfills.definitions import BatchBound
from statlib.backfills.health import ForegroundSessions, read_health
from statlib.backfills.lifecycle import TRANSITIONS, Lifecycle, Operator
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.registry import Registry, register
from statlib.backfills.rows import BackfillRow
from statlib.backfills.sizing import COURTEOUS_REST_S_MAX
from statlib.backfills.sql import statement
from statlib.backfills.worker import Step, Worker
from statlib.kernel.cancellation import CancelCause
from statlib.kernel.refusals import Refusal
from statlib.local.postgres import RUNTIME_ROLE
from statlib.postgres.connection import connected
from statlib.postgres.transactions import transact
from tests.backfilling import FOLD, FOLD_NOTES, NOTES, Bench, bench, fill_notes, shaped, steps_of
from tests.postgres import Database


@pytest.mark.req("BF-AUTH-02", "BF-EXEC-01", "BF-EXEC-06", "BF-EXEC-11", "BF-EXEC-12", "BF-LIFE-03", "BF-LIFE-04")
def test_a_backfill_goes_from_registration_to_validated_completion(database: Database) -> None:
    fill_notes(database)
    with bench(database) as b:
        assert b.worker().turn() is None, "nothing that was not started is claimed"
        b.start()
        assert b.row()["bound"] == [3, 5]
        assert b.drive() == "completed"
        row = b.row()
        assert (row["checkpoint"], row["rowsChanged"], row["rowsSelected"]) == ([3, 5], 15, 15)
        assert [touched for *_, touched in b.notes()] == [1] * 15, "tied rows are neither skipped nor repeated"


@pytest.mark.req("BF-EXEC-03", "BF-LIFE-21")
def test_an_empty_source_set_is_started_and_proved_without_a_batch(database: Database) -> None:
    database.admin(NOTES)
    with bench(database) as b:
        assert b.start()["bound"] == []
        database.admin("INSERT INTO note (shelf, place, text) VALUES (1, 1, 'Later')")
        assert b.drive() == "completed"
        assert (b.row()["batches"], b.folded()) == (0, 0)


@pytest.mark.req("BF-LIFE-13", "BF-LIFE-10")
def test_a_pending_backfill_cannot_be_paused(database: Database) -> None:
    fill_notes(database)
    with bench(database) as b, pytest.raises(Refusal) as refused:
        b.ask(Operator.PAUSE)
    assert refused.value.reason is BackfillReason.BackfillConflict
    assert refused.value.state["lifecycle"] == "pending"


@pytest.mark.req("BF-LIFE-14", "BF-LIFE-20")
def test_paused_right_after_the_start_and_resumed_it_still_does_all_its_work(database: Database) -> None:
    fill_notes(database)
    failing = shaped(mutate="UPDATE note SET folded = lower(text), touched = touched / 0 WHERE {window}")
    with bench(database, failing) as b:
        b.start()
        b.ask(Operator.PAUSE)
        assert b.ask(Operator.RESUME)["lifecycle"] == "running"
        assert b.drive() == "blocked", "a failing first batch never leads to completion"
        assert b.ask(Operator.RETRY)["lifecycle"] == "running"
        assert b.drive(Worker(b.postgres, Registry((FOLD_NOTES,)))) == "completed"
        assert b.folded() == 15


@pytest.mark.req("BF-EXEC-24", "BF-LIFE-26")
def test_a_range_query_that_times_out_shrinks_fails_visibly_and_holds_up_no_other(database: Database) -> None:
    fill_notes(database)
    slow = shaped(
        id="slow",
        select="SELECT shelf, place FROM note, (SELECT pg_sleep(30)) s WHERE {window} ORDER BY 1, 2 LIMIT %(limit)s",
        bound=BatchBound(rows_max=4, transaction_s=0.2, lock_s=0.2, target_s=0.1, floor_rows=1),
    )
    with bench(database, slow, FOLD_NOTES) as b:
        b.start()
        other = Bench(b.database, b.postgres, Registry((FOLD_NOTES,)))
        other.start()
        sizes = []
        for _ in range(20):
            b.worker().turn()
            b.postgres.clock.advance(1)
            sizes.append(b.row()["batchRows"])
        assert other.lifecycle() == "completed"
        row = b.row()
        assert (row["lifecycle"], row["failureKind"], row["attempts"]) == ("failed", "timeout", 3)
        assert sizes[-1] == 1, "split down to the floor"
        assert row["pace"]["decision"] == "split"


@pytest.mark.req("BF-VALID-03", "BF-VALID-05", "BF-EXEC-15")
def test_target_rows_that_vanish_before_validation_are_named_and_vanished_source_rows_are_not(
    database: Database,
) -> None:
    fill_notes(database)
    database.admin(
        "CREATE TABLE copy (shelf integer, place integer, text text, PRIMARY KEY (shelf, place));"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON copy TO statlib_runtime"
    )
    copying = shaped(
        mutate="INSERT INTO copy SELECT shelf, place, text FROM note WHERE {window} ON CONFLICT DO NOTHING",
        validate="SELECT shelf, place FROM (SELECT * FROM note WHERE {window}) n LEFT JOIN copy c USING (shelf, place)"
        " WHERE c.text IS NULL",
    )
    with bench(database, copying) as b:
        b.start()
        claimed = acquire(b.postgres, b.registry, "mutator")
        assert claimed is not None
        row, reading = claimed.row, statement("read", b.postgres.clock)
        while row.lifecycle is Lifecycle.RUNNING:
            run_batch(b.postgres, copying, claimed.claim, row)
            row = BackfillRow.of(transact(b.postgres, lambda s: s.required(reading, stable_id=b.id, limit=1)))
        release(b.postgres, claimed.claim)
        database.admin("DELETE FROM copy WHERE shelf = 2 AND place BETWEEN 2 AND 4")
        database.admin("DELETE FROM note WHERE shelf = 1")
        assert b.drive() == "failed"
        assert b.row()["diagnostic"] == "3 rows lack the postcondition, from [2, 2] to [2, 4]"


@pytest.mark.req("BF-ID-18", "BF-ID-24", "BF-ID-25")
def test_a_row_whose_positions_do_not_fit_is_left_alone_and_others_go_on(database: Database) -> None:
    fill_notes(database)
    second = shaped(id="second", mutate=FOLD + " AND false", validate=FOLD_NOTES.validate + " AND false")
    with bench(database, FOLD_NOTES, second) as b:
        b.start()
        database.admin("UPDATE statlib_backfill SET checkpoint = '[\"x\"]' WHERE stable_id = 'fold-notes'")
        other = Bench(database, b.postgres, Registry((second,)))
        other.start()
        assert b.drive() == "running"
        assert (other.lifecycle(), b.row()["claimOwner"], b.folded()) == ("completed", None, 0)
        b.ask(Operator.PAUSE)
        with pytest.raises(Refusal) as refused:
            b.ask(Operator.RESUME)
        assert refused.value.reason is BackfillReason.StateUninterpretable


@pytest.mark.req("BF-LIFE-26", "BF-LIFE-35")
def test_claims_that_run_out_without_progress_end_as_failed(database: Database) -> None:
    fill_notes(database)
    with bench(database) as b:
        b.start()
        for _ in range(3):
            assert acquire(b.postgres, b.registry, "dies") is not None
            b.expire_claims()
        turn = b.worker().turn()
        assert turn is not None
        assert turn.steps == (Step.FAILED,)
        assert (b.lifecycle(), b.row()["failureKind"]) == ("failed", "abandoned")


@pytest.mark.req("BF-CLAIM-19")
def test_a_claim_shorter_than_two_batches_is_refused_at_registration(database: Database) -> None:
    short = database.settings.model_copy(
        update={"backfills": database.settings.backfills.model_copy(update={"claim_ttl_s": 6.0})}
    )
    with connected(short) as postgres, pytest.raises(Refusal) as refused:
        register(postgres, Registry((FOLD_NOTES,)))
    assert refused.value.reason is BackfillReason.ClaimTooShort


@pytest.mark.req("BF-LIFE-02", "BF-LIFE-10")
def test_the_database_knows_the_same_transitions_and_refuses_every_other(database: Database) -> None:
    stored = database.admin("SELECT from_lifecycle, to_lifecycle FROM statlib_backfill_transition")
    assert {(Lifecycle(before), Lifecycle(after)) for before, after in stored} == set(TRANSITIONS)
    checked = database.admin(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'statlib_backfill_lifecycle_check'"
    )[0][0]
    assert {one for one in Lifecycle if f"'{one}'" in checked} == set(Lifecycle)


@pytest.mark.req("BF-LIFE-05", "BF-LIFE-06", "BF-LIFE-07", "BF-LIFE-08", "BF-LIFE-09", "BF-LIFE-10")
def test_the_database_itself_refuses_every_move_that_is_not_in_the_table(database: Database) -> None:
    fill_notes(database)
    moving = (
        "UPDATE statlib_backfill SET lifecycle = '{state}',"
        " bound = CASE WHEN '{state}' <> 'pending' THEN '[3, 5]'::jsonb END,"
        " completed_at = CASE WHEN '{state}' = 'completed' THEN clock_timestamp() END, validation_outcome = 'success'"
    )
    trigger = "ALTER TABLE statlib_backfill {able} TRIGGER statlib_backfill_keep"
    putting = "; ".join((trigger.format(able="DISABLE"), moving, trigger.format(able="ENABLE")))
    with bench(database), database.session() as owner:
        owner.autocommit = True
        for before in Lifecycle:
            for after in set(Lifecycle) - {before}:
                owner.execute(putting.format(state=before).encode())
                if (before, after) in TRANSITIONS:
                    owner.execute(moving.format(state=after).encode())
                else:
                    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
                        owner.execute(moving.format(state=after).encode())


@pytest.mark.req("BF-ID-29", "BF-LIFE-17")
def test_what_went_wrong_behind_the_checkpoint_is_named_and_met_by_no_rerun(database: Database) -> None:
    fill_notes(database)
    with bench(database) as b:
        b.start()
        claimed = acquire(b.postgres, b.registry, "owner")
        assert claimed is not None
        run_batch(b.postgres, FOLD_NOTES, claimed.claim, claimed.row)
        database.admin("UPDATE note SET folded = 'by an old writer' WHERE shelf = 1 AND place = 2")
        for operator in (Operator.PAUSE, Operator.RESUME):
            b.ask(operator)
            assert (b.row()["bound"], b.row()["checkpoint"]) == ([3, 5], [1, 4])
        for _ in range(2):
            assert b.drive() == "failed"
            assert b.row()["diagnostic"] == "1 rows lack the postcondition, from [1, 2] to [1, 2]"
            b.ask(Operator.RETRY)
        assert [touched for *_, touched in b.notes()] == [1] * 15


@pytest.mark.req("BF-AUTH-15", "BF-AUTH-18")
def test_a_row_and_its_audit_grow_neither_with_batches_nor_with_tries(database: Database) -> None:
    fill_notes(database, places=20)
    one_by_one = shaped(bound=BatchBound(rows_max=1, transaction_s=5.0, lock_s=2.0, target_s=5.0, floor_rows=1))
    sizes = "SELECT pg_column_size(b.*) - coalesce(pg_column_size(pace), 0) FROM statlib_backfill b"
    with bench(database, one_by_one) as b:
        b.start()
        worker = b.worker()
        claimed = acquire(b.postgres, b.registry, "owner")
        assert claimed is not None
        run_batch(b.postgres, one_by_one, claimed.claim, claimed.row)
        early, records = database.admin(sizes)[0][0], database.admin("SELECT count(*) FROM statlib_backfill_audit")
        b.expire_claims()
        assert b.drive(worker) == "completed"
        assert b.row()["batches"] == 60
        assert database.admin("SELECT count(*) FROM statlib_backfill_audit") == records
        assert abs(database.admin(sizes)[0][0] - early) <= 64


@pytest.mark.req("BF-SEC-08")
def test_a_change_whose_audit_cannot_be_written_does_not_happen(database: Database) -> None:
    fill_notes(database)
    database.admin(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'told by the test' USING ERRCODE = 'check_violation'; END $$"
    )
    database.admin(
        "CREATE TRIGGER refuse BEFORE INSERT ON statlib_backfill_audit FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with bench(database) as b:
        with pytest.raises(psycopg.errors.CheckViolation):
            b.start()
        assert (b.lifecycle(), b.row()["bound"], b.row()["generation"]) == ("pending", None, 0)


def test_a_worker_beside_a_foreground_is_courteous_and_says_so(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_notes(database)
    with (
        bench(database) as b,
        psycopg.connect(database.server.address(RUNTIME_ROLE, database.name), autocommit=True) as foreground,
    ):
        b.start()
        worker = b.worker(signals=(ForegroundSessions(0),))
        foreground.execute("SELECT 1")
        waited = list[float]()

        def wait(seconds: float) -> bool:
            waited.append(seconds)
            worker.cancellation.cancel(CancelCause.STOPPING)
            return True

        monkeypatch.setattr(worker.cancellation, "wait", wait)
        assert steps_of(worker) == (Step.COMMITTED,)
        pace = b.row()["pace"]
    assert "foregroundSessions is 1, at most 0" in pace["because"]
    assert pace["signals"] == {"foregroundSessions": 1.0}
    assert pace["restMs"] > 0
    assert len(waited) == 1
    assert 0 < waited[0] <= COURTEOUS_REST_S_MAX


def test_statlib_s_own_processes_are_no_foreground(database: Database) -> None:
    with bench(database) as b, bench(database):
        assert read_health(b.postgres, [ForegroundSessions(0)]).readings == {"foregroundSessions": 0.0}
