"""The conformance suite of data backfills: production seams, and barriers that are locks of the database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest

from statlib.admin.backfill_routes import rules
from statlib.admin.principals import Capability
from statlib.backfills.batches import run_batch
from statlib.backfills.bounds import DIAGNOSTIC_CHARS_MAX
from statlib.backfills.claims import acquire, release
from statlib.backfills.lifecycle import Operator
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.registry import Registry, register
from statlib.backfills.rows import Claimed
from statlib.backfills.service import Backfills
from statlib.backfills.worker import Step, Worker
from statlib.kernel.cancellation import CancelCause
from statlib.kernel.refusals import Refusal
from statlib.postgres.connection import connected
from tests.backfilling import (
    ALWAYS_FOLDING,
    BARRIER,
    FOLD_NOTES,
    WAITING_TO_FOLD,
    WAITING_TO_PROVE,
    Bench,
    InThread,
    barrier,
    bench,
    fill_notes,
    shaped,
    until,
    waits_for,
)
from tests.boundaries import Boundary, new_request_id
from tests.children import child
from tests.integration.backfills.conftest import Steered
from tests.postgres import Database

Steering = Callable[..., Steered]


def other(b: Bench, definition: Any = ALWAYS_FOLDING) -> Worker:
    """A worker of another, compatible process."""
    return Worker(b.postgres, Registry((definition,)))


def one_batch(b: Bench, claimed: Claimed | None, definition: Any = ALWAYS_FOLDING) -> None:
    assert claimed is not None
    run_batch(b.postgres, definition, claimed.claim, claimed.row)


@pytest.mark.req("BF-CLAIM-01", "BF-CLAIM-16")
@pytest.mark.req("BF-CONF-01", "BF-CLAIM-02", "BF-CLAIM-04", "BF-CLAIM-24", "BF-CLAIM-25")
def test_conformance_01_claim_race(database: Database) -> None:
    fill_notes(database)
    with bench(database, WAITING_TO_FOLD) as b:
        b.start()
        together = threading.Barrier(6)

        def contend() -> Claimed | None:
            together.wait(60)
            return acquire(b.postgres, b.registry, threading.current_thread().name)

        rivals = [InThread(contend) for _ in range(6)]
        won = [claimed for rival in rivals if (claimed := rival.ended()) is not None]
        assert len(won) == 1, "one row has one owner"
        first = won[0]
        with barrier(database, BARRIER):
            old = InThread(lambda: one_batch(b, first, WAITING_TO_FOLD))
            until(lambda: waits_for(database, BARRIER), "the first owner is inside of its batch")
            assert other(b).turn() is None, "a claim that stands is not taken over"
            b.expire_claims()
            successor = acquire(b.postgres, b.registry, "successor")
            assert successor is not None
            assert successor.taken_over
            assert successor.claim.generation == first.claim.generation + 1
            one_batch(b, successor)
            checkpoint = b.row()["checkpoint"]
        with pytest.raises(Refusal) as refused:
            old.ended()
        assert refused.value.reason is BackfillReason.ClaimLost
        assert b.row()["checkpoint"] == checkpoint == [1, 4]
        assert [touched for *_, touched in b.notes()] == [1] * 4 + [0] * 11


@pytest.mark.req("BF-CONF-02", "BF-EXEC-16", "BF-EXEC-17", "BF-EXEC-19", "BF-EXEC-23", "BF-EXEC-24")
@pytest.mark.parametrize(
    "definition",
    [
        shaped(select="SELECT shelf, place FROM note WHERE {window} AND %(limit)s > 0 ORDER BY shelf, place"),
        shaped(select="SELECT shelf, place FROM note WHERE {window} OR shelf = 1 ORDER BY 1, 2 LIMIT %(limit)s"),
        shaped(
            select="SELECT shelf, place FROM note WHERE {window} AND %(limit)s > 0 ORDER BY shelf, place",
            mutate=FOLD_NOTES.mutate + " AND shelf = 1",
        ),
        shaped(mutate="UPDATE note SET folded = lower(text) WHERE {window} OR true"),
        shaped(mutate="WITH more AS (UPDATE note SET touched = touched + 1 WHERE shelf = 3) UPDATE note SET "
                      "folded = 'x' WHERE {window} AND shelf < 3"),
    ],
    ids=["selects more", "selects beyond", "selects more than it changes", "changes more", "changes elsewhere"],
)  # fmt: skip
def test_conformance_02_bounded_batch(database: Database, definition: Any) -> None:
    fill_notes(database)
    with bench(database) as b:
        b.start()
        one_batch(b, acquire(b.postgres, b.registry, "owner"), FOLD_NOTES)
        assert (b.folded(), b.row()["checkpoint"]) == (4, [1, 4]), "a larger set moves by one bound"
        b.expire_claims()
        before = b.notes()
        with pytest.raises(Refusal) as refused:
            one_batch(b, acquire(b.postgres, b.registry, "owner"), definition)
        assert refused.value.reason is BackfillReason.BoundExceeded
        assert (b.notes(), b.row()["checkpoint"]) == (before, [1, 4])
        assert [item[2] for item in before].count(None) == 11


@pytest.mark.req("BF-EXEC-19", "BF-EXEC-20", "BF-EXEC-21", "BF-EXEC-22", "BF-EXEC-27")
def test_conformance_02_bounded_batch_in_time(database: Database) -> None:
    fill_notes(database)
    sleeping = "SELECT pg_sleep(3) FROM note WHERE {window} LIMIT 1"
    slow = shaped(mutate=sleeping, bound=_bound(transaction_s=0.3, lock_s=0.3, target_s=0.1))
    with bench(database, slow) as b:
        b.start()
        assert b.worker().turn().steps == (Step.FAILED,)  # type: ignore[union-attr]
        row = b.row()
        assert (row["failureKind"], row["checkpoint"], row["lifecycle"], b.folded()) == ("timeout", None, "running", 0)
        assert row["batchRows"] < 4
        # a worker that was told to stop begins no further batch
        worker = other(b, WAITING_TO_FOLD)
        with barrier(database, BARRIER):
            b.postgres.clock.advance(1)
            stopping = InThread(worker.turn)
            until(lambda: waits_for(database, BARRIER))
            worker.cancellation.cancel(CancelCause.STOPPING)
        assert len(stopping.ended().steps) == 1


@pytest.mark.req("BF-CONF-03", "BF-EXEC-26", "BF-EXEC-27")
@pytest.mark.parametrize("when", ["checkpoint", "commit"])
def test_conformance_03_rollback(database: Database, when: str) -> None:
    fill_notes(database)
    with bench(database) as b:
        b.start()
        table = "statlib_backfill" if when == "checkpoint" else "note"
        timing = "BEFORE UPDATE OF checkpoint ON statlib_backfill FOR EACH ROW"
        if when == "commit":
            timing = "AFTER UPDATE ON note DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
        database.admin(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'told by the test' USING ERRCODE = 'check_violation'; END $$"
        )
        database.admin(
            f"CREATE {'CONSTRAINT ' if when == 'commit' else ''}TRIGGER refuse {timing} EXECUTE FUNCTION refuse()"
        )
        with pytest.raises(psycopg.errors.CheckViolation):
            one_batch(b, acquire(b.postgres, b.registry, "owner"), FOLD_NOTES)
        assert (b.folded(), b.row()["checkpoint"]) == (0, None)
        database.admin(f"DROP TRIGGER refuse ON {table}")
        b.expire_claims()
        assert b.drive() == "completed"


@pytest.mark.req("BF-AUTH-11", "BF-EXEC-02", "BF-EXEC-07", "BF-EXEC-13")
@pytest.mark.req("BF-CONF-04", "BF-CLAIM-22", "BF-CLAIM-23", "BF-VALID-04", "BF-EXEC-04")
@pytest.mark.parametrize("moment", ["before the commit", "after the commit", "during validation"])
def test_conformance_04_restart(database: Database, moment: str) -> None:
    fill_notes(database)
    validating = moment == "during validation"
    name = "waiting-to-prove" if validating else "waiting-to-fold"
    with bench(database) as b:
        b.start()
        if moment == "after the commit":
            one_batch(b, acquire(b.postgres, b.registry, "owner"), FOLD_NOTES)
            b.expire_claims()
        with (
            barrier(database, BARRIER),
            child("tests.fault.backfill_worker", database.settings, name, "plain") as killed,
        ):
            until(lambda: waits_for(database, BARRIER), "the worker is in the middle")
            killed.kill()
        expected = {"before the commit": None, "after the commit": [1, 4], "during validation": [3, 5]}[moment]
        row = b.row()
        assert (row["checkpoint"], row["bound"]) == (expected, [3, 5])
        assert b.folded() == {"before the commit": 0, "after the commit": 4, "during validation": 15}[moment]
        database.admin("INSERT INTO note (shelf, place, text) VALUES (9, 9, 'Beyond')")
        b.expire_claims()
        assert b.drive() == "completed"
        assert b.row()["bound"] == [3, 5], "the bound is not captured again"
        assert b.notes()[-1] == (9, 9, None, 0)
        assert {touched for *_, touched in b.notes()[:-1]} == {1}


@pytest.mark.req("BF-CONF-16", "BF-CLAIM-11")
@pytest.mark.req("BF-CONF-05", "BF-CLAIM-06", "BF-CLAIM-07", "BF-CLAIM-08", "BF-CLAIM-09", "BF-CLAIM-12", "BF-CLAIM-13")
@pytest.mark.req("BF-LIFE-13", "BF-LIFE-19", "BF-VALID-09")
@pytest.mark.parametrize("overtaken_by", ["pause", "expiry", "takeover"])
@pytest.mark.parametrize("work", ["batch", "validation step", "completion"])
def test_conformance_05_stale_owner(database: Database, overtaken_by: str, work: str) -> None:
    fill_notes(database)
    definition = WAITING_TO_FOLD
    if work != "batch":
        rows = 5 if work == "validation step" else 100
        definition = shaped(validate=WAITING_TO_PROVE.validate, bound=_bound(validation_rows_max=rows))
    with bench(database, definition) as b:
        b.start()
        if work != "batch":
            b.mutate_all()
        with barrier(database, BARRIER):
            stale = InThread(b.worker().turn)
            until(lambda: waits_for(database, BARRIER), "the owner is inside")
            _overtake(b, overtaken_by)
            at_takeover = b.row()
            notes = b.notes()
        turn = stale.ended()
        assert turn.steps[-1] is Step.LOST, turn.steps
        now = b.row()
        for field in ("checkpoint", "lifecycle", "generation", "validatedThrough", "validationOutcome", "attempts"):
            assert now[field] == at_takeover[field], field
        assert b.notes() == notes, "nothing of the stale owner was committed"


def _overtake(b: Bench, how: str) -> None:
    if how == "pause":
        b.ask(Operator.PAUSE)
        return
    b.expire_claims()
    if how == "takeover":
        assert acquire(b.postgres, b.registry, "successor") is not None


@pytest.mark.req("BF-ID-09", "BF-ID-10", "BF-ID-16", "BF-ID-19", "BF-ID-20", "BF-ID-22")
@pytest.mark.req("BF-CONF-06", "BF-ID-03", "BF-ID-04", "BF-ID-06", "BF-ID-07", "BF-ID-08", "BF-ID-17", "BF-ID-24")
@pytest.mark.parametrize("order", [("older", "newer"), ("newer", "older")])
@pytest.mark.parametrize("winner", ["older", "newer"])
def test_conformance_06_rolling_deployment(database: Database, order: tuple[str, str], winner: str) -> None:
    fill_notes(database)
    settings = database.settings
    automatic = settings.model_copy(update={"backfills": settings.backfills.model_copy(update={"automatic": True})})
    with connected(automatic) as postgres:
        processes = {
            name: Backfills(postgres, Registry((shaped(title=name, mutate=ALWAYS_FOLDING.mutate, required=True),)))
            for name in order
        }
        for _ in range(2):  # late, repeated and out of order
            for name in order:
                register(postgres, processes[name].registry)
                processes[name].start_required()
        b = Bench(database, postgres, processes[order[0]].registry)
        assert database.admin("SELECT count(*) FROM statlib_backfill") == [(1,)]
        assert database.admin("SELECT count(*) FROM statlib_backfill_audit WHERE action = 'start'") == [(1,)]
        assert b.row()["metadata"]["title"] == order[1], "the last registration's metadata are shown"
        stranger = Worker(postgres, Registry((shaped(id="something-else"),)))
        assert stranger.turn() is None, "what a process does not know it cannot claim"
        mine = processes[winner].registry
        theirs = next(found.registry for name, found in processes.items() if name != winner)
        first = acquire(postgres, mine, winner)
        register(postgres, theirs)  # the other is deployed meanwhile, and the claim stays
        assert acquire(postgres, theirs, "the other") is None
        one_batch(b, first, mine.get("fold-notes"))
        b.expire_claims()
        second = acquire(postgres, theirs, "the other")
        one_batch(b, second, theirs.get("fold-notes"))
        with pytest.raises(Refusal) as refused:
            one_batch(b, first, mine.get("fold-notes"))
        assert refused.value.reason is BackfillReason.ClaimLost
        assert [touched for *_, touched in b.notes()] == [1] * 8 + [0] * 7
        assert {name: str(one.checks()["backfills"]) for name, one in processes.items()} == dict.fromkeys(
            order, "gated"
        )
        assert database.admin("SELECT count(*) FROM statlib_backfill") == [(1,)], "one readiness obligation"


@pytest.mark.req("BF-LIFE-15")
@pytest.mark.req("BF-CONF-07", "BF-VALID-01", "BF-VALID-08", "BF-VALID-11", "BF-LIFE-29", "BF-LIFE-32", "BF-ID-05")
def test_conformance_07_validation(database: Database) -> None:
    fill_notes(database)
    forgetful = shaped(mutate=FOLD_NOTES.mutate + " AND place <> 2")
    with bench(database, forgetful) as b:
        b.start()
        for _ in range(2):
            assert b.drive() == "failed"
            row = b.row()
            assert (row["failureKind"], row["validationOutcome"], row["checkpoint"]) == (
                "validation",
                "failure",
                [3, 5],
            )
            assert "from [1, 2] to" in row["diagnostic"]
            assert b.ask(Operator.RETRY)["lifecycle"] == "validating", "a retry does not bypass validation"
        database.admin("UPDATE note SET folded = lower(text)")
        assert b.drive() == "completed"
        with (
            database.session("statlib_runtime") as runtime,
            pytest.raises(psycopg.errors.IntegrityConstraintViolation),
        ):
            runtime.execute("UPDATE statlib_backfill SET attempts = 7")
        register(b.postgres, b.registry)
        with pytest.raises(Refusal) as refused:
            b.ask(Operator.START)
        assert refused.value.reason is BackfillReason.BackfillConflict
        assert b.lifecycle() == "completed"


@pytest.mark.req("BF-LIFE-15", "BF-LIFE-30", "BF-CLAIM-21", "BF-SEC-10", "BF-SEC-11")
@pytest.mark.req("BF-CONF-08", "BF-LIFE-24", "BF-LIFE-25", "BF-LIFE-26", "BF-LIFE-27", "BF-LIFE-28", "BF-LIFE-31")
@pytest.mark.parametrize(
    ("mutate", "lifecycle", "kind", "attempts"),
    [
        ("SELECT pg_sleep(30) FROM note WHERE {window}", "failed", "timeout", 3),
        ("UPDATE note SET text = NULL WHERE {window}", "blocked", "invariant", 1),
        ("UPDATE absent SET text = NULL WHERE {window}", "blocked", "prerequisite", 1),
        ("UPDATE note SET folded = 'x' WHERE {window} OR true", "failed", "bound", 3),
    ],
)
def test_conformance_08_bounded_failure(
    database: Database, mutate: str, lifecycle: str, kind: str, attempts: int
) -> None:
    fill_notes(database)
    bad = shaped(mutate=mutate, bound=_bound(transaction_s=0.2, lock_s=0.2, target_s=0.1))
    with bench(database, bad) as b:
        b.start()
        claimed = acquire(b.postgres, b.registry, "owner")
        one_batch(b, claimed, FOLD_NOTES)
        assert claimed is not None
        release(b.postgres, claimed.claim)
        assert (b.lifecycle(), b.row()["claimOwner"]) == ("running", None)
        for _ in range(2):
            assert b.drive() == lifecycle
            row = b.row()
            assert (row["failureKind"], row["attempts"], row["claimed"]) == (kind, attempts, False)
            assert row["diagnostic"].startswith("repairing the next rows: ")
            assert not {"Note", "UPDATE", "SELECT"} & set(row["diagnostic"].split()), "no row's content, and no query"
            assert len(row["diagnostic"]) <= DIAGNOSTIC_CHARS_MAX
            assert b.ask(Operator.RETRY)["lifecycle"] == "running"
            assert (b.row()["bound"], b.row()["checkpoint"], b.row()["attempts"]) == ([3, 5], [1, 4], 0)
        assert b.folded() == 4


@pytest.mark.req("BF-CONF-09", "BF-SEC-01", "BF-SEC-02", "BF-SEC-05")
def test_conformance_09_admin_authorisation(steered: Steering) -> None:
    s = steered(FOLD_NOTES)
    before = s.bench.row()
    others = [None, *(capability for capability in Capability if capability is not Capability.DEPLOYMENT_OPERATOR)]
    for capability in others:
        token = None if capability is None else s.boundary.token(capability, name=f"only-{capability}")
        with s.boundary.http(token) as http:
            for method, path in _every_route():
                answer = http.request(method, path, json={} if method == "POST" else None, headers=new_request_id())
                assert answer.status_code == (401 if capability is None else 403), (capability, path)
                assert "running" not in answer.text
                assert "pending" not in answer.text
    after = s.bench.row()
    assert {**after, "observedAtUtc": None} == {**before, "observedAtUtc": None}
    refused = s.bench.database.admin("SELECT DISTINCT outcome, reason FROM statlib_backfill_audit")
    assert refused == [("Rejected", "Forbidden")]


@pytest.mark.req("BF-LIFE-16", "BF-CLAIM-05", "BF-CLAIM-10")
@pytest.mark.req("BF-CONF-10", "BF-ADMIN-14", "BF-ADMIN-15", "BF-ADMIN-16", "BF-ADMIN-17", "BF-ADMIN-20", "BF-ADMIN-21")
@pytest.mark.req("BF-SEC-06", "BF-SEC-07", "BF-LIFE-12")
def test_conformance_10_admin_idempotency(steered: Steering) -> None:
    s = steered(FOLD_NOTES)
    b = s.bench
    with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client:
        together = threading.Barrier(4)

        def begin(request_id: str) -> Any:
            together.wait(60)
            return client.move_backfill(Operator.START, b.id, request_id=request_id)

        ids = ("same-request", "same-request", "another-1", "another-2")
        starters = [InThread(partial(begin, request_id)) for request_id in ids]
        answers = [starter.ended() for starter in starters]
        assert {(one.lifecycle, one.generation, one.bound) for one in answers} == {("running", 1, (3, 5))}
        moves = "SELECT count(*) FROM statlib_backfill_audit WHERE before->>'lifecycle' <> after->>'lifecycle'"
        assert b.database.admin(moves) == [(1,)]
        b.database.admin("INSERT INTO note (shelf, place, text) VALUES (9, 9, 'Later')")
        # a response that was lost after its commit: asked again, also after the state went on
        client.move_backfill(Operator.PAUSE, b.id)
        again = client.move_backfill(Operator.START, b.id, request_id="same-request")
        assert (again.lifecycle, again.generation, again.bound) == ("running", 1, (3, 5))
        assert b.row()["lifecycle"] == "paused"
        with pytest.raises(Refusal) as other_payload:
            client.move_backfill(Operator.START, b.id, generation=1, request_id="same-request")
        assert other_payload.value.reason.name == "RequestConflict"
        for operator in (Operator.START, Operator.RETRY):
            with pytest.raises(Refusal) as refused:
                client.move_backfill(operator, b.id)
            assert refused.value.reason is BackfillReason.BackfillConflict
            assert refused.value.state["lifecycle"] == "paused"
        with pytest.raises(Refusal) as stale:
            client.move_backfill(Operator.RESUME, b.id, generation=1)
        assert stale.value.reason is BackfillReason.GenerationConflict
        assert client.move_backfill(Operator.PAUSE, b.id).generation == 2, "a repeated pause converges"
        assert client.move_backfill(Operator.RESUME, b.id, generation=2).generation == 3
        assert client.move_backfill(Operator.RESUME, b.id).generation == 3
        assert b.row()["bound"] == [3, 5]
        trail = [(one.action, one.outcome) for one in client.backfill_audit(b.id)]
        assert ("postBackfillStart", "Replayed") in trail
        assert ("postBackfillRetry", "Rejected") in trail


@pytest.mark.req("BF-ADMIN-24", "BF-ADMIN-32", "BF-ADMIN-35")
@pytest.mark.req("BF-CONF-11", "BF-ADMIN-23", "BF-ADMIN-25", "BF-ADMIN-26", "BF-ADMIN-27", "BF-ADMIN-28", "BF-ADMIN-29")
@pytest.mark.req(
    "BF-ADMIN-33", "BF-ADMIN-34", "BF-ADMIN-36", "BF-ADMIN-37", "BF-ADMIN-39", "BF-ADMIN-40", "BF-ADMIN-42"
)
def test_conformance_11_explicit_validation(steered: Steering) -> None:
    s = steered(WAITING_TO_PROVE)
    b = s.bench
    with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client:
        with pytest.raises(Refusal) as unknown:
            client.validate_backfill("no-such-backfill")
        assert unknown.value.reason is BackfillReason.BackfillUnknown
        pending = client.validate_backfill(b.id)
        assert (pending.outcome, pending.lifecycle) == ("current-state", "pending")
        b.start()
        assert client.validate_backfill(b.id).outcome == "failure", "a running row is validated as it stands"
        assert b.lifecycle() == "running"
        assert b.drive() == "completed"
        kept = _execution_state(b)
        first = client.validate_backfill(b.id, request_id="validate-once")
        assert (first.outcome, first.disposition, first.lifecycle) == ("success", "completed", "completed")
        shown = client.data_backfill(b.id)
        assert (shown.explicit_outcome, shown.explicit_request_id) == ("success", "validate-once")
        assert _execution_state(b) == kept
        b.database.admin("UPDATE note SET folded = 'wrong' WHERE shelf = 2")
        rotten = client.validate_backfill(b.id)
        assert (rotten.outcome, client.data_backfill(b.id).lifecycle) == ("failure", "completed")
        assert rotten.diagnostic is not None
        assert "from [2, 1] to [2, 5]" in rotten.diagnostic
        assert client.validate_backfill(b.id, request_id="validate-once") == first, "a lost answer is recovered"
        with barrier(b.database, BARRIER):
            running = InThread(lambda: client.validate_backfill(b.id, request_id="validate-slow"))
            until(lambda: waits_for(b.database, BARRIER))
            meanwhile = client.validate_backfill(b.id, request_id="validate-meanwhile")
            duplicate = client.validate_backfill(b.id, request_id="validate-slow")
            assert {meanwhile.outcome, duplicate.outcome} == {"current-state"}
            assert {meanwhile.disposition, duplicate.disposition} == {"coalesced"}
            assert b.row()["claimOwner"] is None, "validating makes no claim"
        assert running.ended().outcome == "failure"
        assert client.validate_backfill(b.id, request_id="validate-slow").outcome == "failure"
        assert _execution_state(b) == kept
        outcomes = {one.outcome for one in client.backfill_audit(b.id) if one.action == "postBackfillValidate"}
        assert outcomes == {"Accepted", "Completed", "Coalesced", "Replayed"}


@pytest.mark.req("BF-ADMIN-23", "BF-ADMIN-41", "BF-ADMIN-43")
def test_conformance_11_explicit_validation_is_read_only(steered: Steering) -> None:
    writing = shaped(id="writing", validate="SELECT shelf, place FROM note WHERE {window} AND sly()")
    s = steered(writing)
    s.bench.database.admin(
        "CREATE FUNCTION sly() RETURNS boolean LANGUAGE sql VOLATILE AS"
        " 'UPDATE note SET touched = touched + 100; SELECT false'"
    )
    with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client:
        s.bench.start()
        assert client.validate_backfill("writing").outcome == "current-state"
        assert {touched for *_, touched in s.bench.notes()} == {0}


@pytest.mark.req("BF-LIFE-11", "BF-VALID-10")
@pytest.mark.req("BF-CONF-12", "BF-ADMIN-02", "BF-ADMIN-09", "BF-ADMIN-10", "BF-ADMIN-11", "BF-ADMIN-19", "BF-MAP-08")
def test_conformance_12_client_projection(steered: Steering) -> None:
    s = steered(FOLD_NOTES)
    with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client:
        shown = client.data_backfill(s.bench.id)
        assert (shown.rows_total, shown.checkpoint, shown.bound, shown.validation_outcome) == (None, None, None, None)
        s.bench.ask(Operator.START)
        assert client.data_backfill(s.bench.id).lifecycle == "running", "each read asks PostgreSQL"
        posted = {path.rsplit("/", 1)[1] for method, path in _every_route() if method == "POST"}
        assert posted == {operator.value for operator in Operator}
        with s.boundary.http(s.boundary.token(Capability.DEPLOYMENT_OPERATOR)) as http:
            for forbidden in ("reset", "rewind", "complete", "release", "cancel"):
                url = f"/api/admin/backfills/{s.bench.id}/{forbidden}"
                assert http.post(url, json={}, headers=new_request_id()).status_code in {404, 405}
            assert http.delete(f"/api/admin/backfills/{s.bench.id}").status_code == 405
        with pytest.raises(Refusal) as unknown:
            client.data_backfill("never-heard-of")
        assert unknown.value.reason is BackfillReason.BackfillUnknown


AUTOMATIC = [False, True]


@pytest.mark.req("BF-READY-03", "BF-READY-08", "BF-READY-26", "BF-ADMIN-18")
@pytest.mark.req("BF-CONF-13", "BF-READY-01", "BF-READY-02", "BF-READY-04", "BF-READY-07", "BF-READY-09", "BF-READY-14")
@pytest.mark.req("BF-READY-16", "BF-READY-18", "BF-READY-21", "BF-READY-24", "BF-READY-25")
@pytest.mark.parametrize("migrates", [False, True])
@pytest.mark.parametrize("automatic", AUTOMATIC)
def test_conformance_13_configuration_matrix(
    configured: Callable[..., Any], database: Database, migrates: bool, automatic: bool
) -> None:
    fill_notes(database)
    forgetful = shaped(mutate=FOLD_NOTES.mutate + " AND place <> 2", required=True)
    with configured(forgetful, automatic=automatic, migrates=migrates) as s:
        b = s.bench
        assert b.lifecycle() == ("running" if automatic else "pending")
        assert _ready(s.boundary) is not automatic
        with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client:
            if not automatic:
                client.move_backfill(Operator.START, b.id)  # an operator's intent: workers recover it in this mode too
            claimed = acquire(b.postgres, b.registry, "dies")
            assert claimed is not None
            b.expire_claims()
            client.move_backfill(Operator.PAUSE, b.id)
            assert _ready(s.boundary) is not automatic, "paused gates in automatic mode alone"
            assert client.move_backfill(Operator.RESUME, b.id).lifecycle == "running"
            b.database.admin("UPDATE statlib_backfill SET lifecycle = 'blocked'")
            assert _ready(s.boundary) is not automatic
            client.move_backfill(Operator.RETRY, b.id)
            assert b.drive() == "failed"
            assert _ready(s.boundary) is not automatic
            assert client.data_backfill(b.id).gating is automatic
            b.database.admin("UPDATE note SET folded = lower(text)")
            assert client.move_backfill(Operator.RETRY, b.id).lifecycle == "validating"
            assert _ready(s.boundary) is not automatic, "reaching the bound is not enough"
            assert b.drive() == "completed"
        assert _ready(s.boundary)
    with configured(forgetful, automatic=automatic, migrates=migrates) as again:
        assert _ready(again.boundary), "a restart finds the gate in PostgreSQL"


@pytest.mark.req("BF-READY-05", "BF-READY-06", "BF-READY-27")
@pytest.mark.parametrize("automatic", AUTOMATIC)
def test_conformance_13_configuration_matrix_without_the_schema(
    configured: Callable[..., Any], bare_database: Database, automatic: bool
) -> None:
    with configured(shaped(required=True), automatic=automatic, migrates=False, on=bare_database) as s:
        with s.boundary.http() as http:
            answer = http.get("/readyz")
        assert (answer.status_code, answer.json()["checks"]["schema"]) == (503, "incompatible")
        assert bare_database.admin("SELECT to_regclass('statlib_backfill') IS NULL") == [(True,)], (
            "nothing was migrated"
        )
        with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client, pytest.raises(Refusal) as refused:
            client.backfills()
        assert refused.value.reason.name == "SchemaIncompatible"
    with configured(shaped(required=True), automatic=False, migrates=True, on=bare_database) as s:
        assert _ready(s.boundary)


def _bound(**changes: Any) -> Any:
    return replace(FOLD_NOTES.bound, **changes)


def _ready(boundary: Boundary) -> bool:
    with boundary.http() as http:
        answer = http.get("/readyz")
    assert "fold-notes" not in answer.text, "an unauthenticated answer names nothing"
    assert answer.json()["ready"] is (answer.status_code == 200)
    return answer.status_code == 200


def _every_route() -> list[tuple[str, str]]:
    return [(rule.method, rule.path.replace("{stable_id}", "fold-notes")) for rule, _ in rules.all]


def _execution_state(b: Bench) -> list[tuple[Any, ...]]:
    return b.database.admin("SELECT to_jsonb(b) FROM statlib_backfill b")
