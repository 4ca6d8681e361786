"""A schedule's slots on a real database, with real processes: due, run, skipped, missed, interrupted."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import ScheduleSettings, Settings
from statlib.mongo.connection import Mongo, connected
from statlib.mongo.leases import acquire, renew
from statlib.mongo.reasons import MongoReason
from statlib.passes.audit import AUDIT, server_time
from statlib.schedule import hooks, slots
from statlib.schedule.bounds import CLAIMS_MAX, RECORDED_MAX
from statlib.schedule.definitions import Hook, Misfire, OnInterruption, Schedule
from statlib.schedule.documents import RUN, SCHEDULE, SLOT, HookState, Run, Slot
from statlib.schedule.falling_due import evaluate, register
from statlib.schedule.reasons import ScheduleReason
from statlib.schedule.scheduler import Scheduler
from statlib.schedule.slot_store import Ended, lease_id
from statlib.schedule.slots import Claim, begin, claim, conclude, recover
from statlib.schedule.states import SlotReason, SlotState
from statlib.schedule.storage import initialise
from tests.children import _as_environment
from tests.unit.schedule import example_jobs
from tests.unit.schedule.example_jobs import EFFECTS

MINUTELY = "0 * * * * ?"
TTL_S = 30.0


def a_schedule(**changes: Any) -> Schedule:
    return Schedule.model_validate({"name": "minutely", "job": "example-append", "cron": MINUTELY, **changes})


@dataclass
class Deployment:
    """One database with one schedule, and a clock of its own that stands just before a slot."""

    mongo: Mongo
    effects: Path
    gate: Path

    @property
    def now(self) -> datetime:
        return server_time(self.mongo)

    def to_slot(self, minutes: int = 1) -> None:
        """Advance until one second after the next slot, or after a later one."""
        now = self.now
        following = (now + timedelta(minutes=minutes)).replace(second=1, microsecond=0)
        self.mongo.clock.advance((following - now).total_seconds())

    def evaluate(self, schedule: Schedule) -> None:
        evaluate(self.mongo, schedule, now=self.now, tolerance_s=60)

    def due(self, **changes: Any) -> Schedule:
        """A registered schedule with one slot that is due."""
        schedule = a_schedule(**changes)
        register(self.mongo, schedule)
        self.to_slot()
        self.evaluate(schedule)
        return schedule

    def claim(self, schedule: Schedule) -> Claim:
        taken = claim(self.mongo, schedule, ttl_s=TTL_S)
        assert taken is not None
        return taken

    def once(self, *schedules: Schedule) -> list[str]:
        """What ``statlib schedule run --once`` does; returns what it said."""
        said: list[str] = []
        scheduler = Scheduler(self.mongo, schedules, said.append)
        scheduler.start()
        scheduler.once()
        return said

    def slots(self) -> list[Slot]:
        return [Slot.from_bson(found) for found in self.mongo.collection(SLOT).find().sort("SlotAtUtc", 1)]

    def states(self) -> list[tuple[SlotState, SlotReason | None]]:
        return [(slot.state, slot.reason) for slot in self.slots()]

    def runs(self) -> list[Run]:
        order = [("SlotAtUtc", 1), ("Attempt", 1)]
        return [Run.from_bson(found) for found in self.mongo.collection(RUN).find().sort(order)]

    def run(self) -> Run:
        (only,) = self.runs()
        return only

    def effect_lines(self) -> list[str]:
        return [line.split()[0] for line in self.effects.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def deployment(emptied: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    settings = emptied.model_copy(
        update={"schedule": ScheduleSettings(poll_s=0.2, lease_ttl_s=TTL_S, hook_timeout_s=5, hook_attempts=2)}
    )
    effects = example_jobs.install(tmp_path, monkeypatch)
    for name, value in {**_as_environment(settings), "STATLIB__SCHEDULE__LEASE_TTL_S": str(TTL_S)}.items():
        monkeypatch.setenv(name, value)
    with connected(settings, app_name="statlib-tests") as mongo:
        initialise(mongo)
        yield Deployment(mongo, effects, tmp_path / "gate")


def test_a_slot_that_falls_due_is_run_once_and_recorded_with_its_run_and_audit(deployment: Deployment) -> None:
    schedule = deployment.due()
    deployment.once(schedule)
    deployment.once(schedule)
    assert deployment.states() == [(SlotState.SUCCEEDED, None)]
    assert deployment.effect_lines() == ["start", "end"]
    assert deployment.mongo.collection(EFFECTS).count_documents({}) == 1
    run = deployment.run()
    assert (run.state, run.attempt, run.target, run.counts) == (
        SlotState.SUCCEEDED,
        1,
        "example-append",
        {"appended": 1},
    )
    assert run.principal == f"job:example-append@{os.uname().nodename}"
    audited = list(deployment.mongo.collection(AUDIT).find({"RequestId": run.id}).sort("_id", 1))
    assert [record["Outcome"] for record in audited] == ["Intended", "Accepted"]
    assert {record["Principal"] for record in audited} == {run.principal}


def test_a_new_schedule_owes_nothing_of_the_time_before_it(deployment: Deployment) -> None:
    schedule = a_schedule()
    register(deployment.mongo, schedule)
    deployment.evaluate(schedule)
    assert deployment.slots() == []


@pytest.mark.parametrize("misfire", Misfire)
def test_after_a_downtime_every_slot_is_recorded_and_at_most_the_newest_is_run(
    deployment: Deployment, misfire: Misfire
) -> None:
    schedule = a_schedule(misfire=misfire, cron="0 0/5 * * * ?")
    register(deployment.mongo, schedule)
    start = deployment.now
    deployment.to_slot(23)  # 4 or 5 slots, the newest of them minutes ago
    behind = (deployment.now - schedule.slots.last_until(deployment.now)).total_seconds()  # type: ignore[operator]
    if behind <= 60:
        deployment.mongo.clock.advance(61)
    deployment.once(schedule)
    missed = (SlotState.MISSED, SlotReason.NO_SCHEDULER)
    expected = schedule.slots.count(start, deployment.now)
    newest = (SlotState.SUCCEEDED, None) if misfire is Misfire.ONE else missed
    assert deployment.states() == [missed] * (expected - 1) + [newest]
    assert deployment.slots()[-1].late
    assert [slot.slot_at_utc for slot in deployment.slots()] == list(schedule.slots.latest(start, deployment.now, 99))


def test_after_a_long_downtime_the_oldest_slots_share_one_record_that_counts_them(deployment: Deployment) -> None:
    schedule = a_schedule()
    register(deployment.mongo, schedule)
    start = deployment.now
    deployment.to_slot(10 * 24 * 60)
    deployment.evaluate(schedule)
    found = deployment.slots()
    assert len(found) == RECORDED_MAX + 1
    assert [slot.slot_count for slot in found[1:]] == [1] * RECORDED_MAX
    assert sum(slot.slot_count for slot in found) == schedule.slots.count(start, deployment.now)
    assert found[0].first_slot_at_utc == schedule.slots.next_after(start)
    assert found[0].slot_at_utc + timedelta(minutes=1) == found[1].slot_at_utc


def test_a_slot_that_falls_due_while_its_predecessor_runs_is_skipped(deployment: Deployment) -> None:
    schedule = deployment.due()
    taken = deployment.claim(schedule)
    run = begin(deployment.mongo, taken)
    deployment.mongo.clock.advance(TTL_S - 10)
    renew(deployment.mongo, taken.lease, 200)
    deployment.to_slot(2)
    deployment.evaluate(schedule)
    conclude(deployment.mongo, taken, run, Ended(SlotState.SUCCEEDED))
    skipped = (SlotState.SKIPPED, SlotReason.PREDECESSOR_RUNNING)
    assert deployment.states() == [(SlotState.SUCCEEDED, None), skipped, skipped]


def test_a_slot_that_no_host_was_free_for_is_superseded_by_the_next(deployment: Deployment) -> None:
    schedule = deployment.due()
    deployment.to_slot()
    deployment.evaluate(schedule)
    assert deployment.states() == [(SlotState.MISSED, SlotReason.SUPERSEDED), (SlotState.DUE, None)]


def test_only_one_of_many_hosts_gets_a_slot(deployment: Deployment) -> None:
    schedule = deployment.due()
    barrier = threading.Barrier(4)

    def take(_: int) -> Claim | None:
        barrier.wait(timeout=30)
        return claim(deployment.mongo, schedule, ttl_s=TTL_S)

    with ThreadPoolExecutor(4) as pool:
        taken = [one for one in pool.map(take, range(4)) if one is not None]
    assert len(taken) == 1
    assert deployment.states() == [(SlotState.CLAIMED, None)]


def test_only_one_of_many_hosts_records_what_fell_due(deployment: Deployment) -> None:
    schedule = a_schedule()
    register(deployment.mongo, schedule)
    start = deployment.now
    deployment.to_slot(5)
    now = deployment.now
    barrier = threading.Barrier(4)

    def look(_: int) -> None:
        barrier.wait(timeout=30)
        evaluate(deployment.mongo, schedule, now=now, tolerance_s=60)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look, range(4)))
    assert [slot.slot_at_utc for slot in deployment.slots()] == list(schedule.slots.latest(start, now, 99))


def test_a_lost_host_s_run_is_interrupted_and_not_run_again(deployment: Deployment) -> None:
    schedule = deployment.due()
    begin(deployment.mongo, deployment.claim(schedule))
    assert not recover(deployment.mongo, schedule, ttl_s=TTL_S), "its lease still holds"
    deployment.mongo.clock.advance(TTL_S)
    assert recover(deployment.mongo, schedule, ttl_s=TTL_S)
    assert claim(deployment.mongo, schedule, ttl_s=TTL_S) is None
    assert deployment.states() == [(SlotState.INTERRUPTED, SlotReason.HOST_LOST)]
    assert deployment.run().state is SlotState.INTERRUPTED
    audited = deployment.mongo.collection(AUDIT).find().sort("_id", 1)
    assert [record["Reason"] for record in audited] == [None, "RunInterrupted"]


def test_a_lost_host_s_run_is_repeated_once_where_the_schedule_says_so(deployment: Deployment) -> None:
    schedule = deployment.due(on_interruption=OnInterruption.RUN_AGAIN)
    for _ in range(2):
        begin(deployment.mongo, deployment.claim(schedule))
        deployment.mongo.clock.advance(TTL_S)
        recover(deployment.mongo, schedule, ttl_s=TTL_S)
    assert claim(deployment.mongo, schedule, ttl_s=TTL_S) is None
    assert deployment.states() == [(SlotState.INTERRUPTED, SlotReason.HOST_LOST)]
    assert [run.attempt for run in deployment.runs()] == [1, 2]


def test_a_slot_whose_host_was_lost_before_it_began_goes_to_another(deployment: Deployment) -> None:
    schedule = deployment.due()
    deployment.claim(schedule)
    deployment.mongo.clock.advance(TTL_S)
    deployment.once(schedule)
    assert deployment.states() == [(SlotState.SUCCEEDED, None)]
    assert deployment.effect_lines() == ["start", "end"]


def test_a_slot_that_can_never_be_begun_fails_after_a_bounded_number_of_claims(deployment: Deployment) -> None:
    schedule = deployment.due()
    for _ in range(CLAIMS_MAX):
        slots.settle_dead(deployment.mongo, deployment.claim(schedule), "died")
    assert claim(deployment.mongo, schedule, ttl_s=TTL_S) is None
    assert deployment.states() == [(SlotState.FAILED, SlotReason.RUN_DIED)]
    assert deployment.run().state is SlotState.FAILED


@pytest.mark.parametrize("step", ["begin", "conclude"])
def test_a_holder_that_was_overtaken_changes_nothing(deployment: Deployment, step: str) -> None:
    schedule = deployment.due()
    taken = deployment.claim(schedule)
    run = begin(deployment.mongo, taken) if step == "conclude" else None
    deployment.mongo.clock.advance(TTL_S)
    recover(deployment.mongo, schedule, ttl_s=TTL_S)
    before = (deployment.slots(), deployment.runs())
    with pytest.raises(Refusal) as refused:
        begin(deployment.mongo, taken) if run is None else conclude(
            deployment.mongo, taken, run, Ended(SlotState.SUCCEEDED)
        )
    assert refused.value.reason is MongoReason.LeaseLost
    assert (deployment.slots(), deployment.runs()) == before


def test_a_recorded_end_may_be_repeated(deployment: Deployment) -> None:
    schedule = deployment.due()
    taken = deployment.claim(schedule)
    run = begin(deployment.mongo, taken)
    for _ in range(2):
        conclude(deployment.mongo, taken, run, Ended(SlotState.SUCCEEDED))
    assert deployment.states() == [(SlotState.SUCCEEDED, None)]


@pytest.mark.parametrize(
    ("job", "state", "reason"),
    [
        ("example-die", SlotState.INTERRUPTED, SlotReason.RUN_DIED),
        ("example-refuse", SlotState.FAILED, SlotReason.REFUSED),
        ("example-crash", SlotState.FAILED, SlotReason.FAULT),
        ("example-report-capacity", SlotState.FAILED, SlotReason.REFUSED),
        ("example-hang", SlotState.INTERRUPTED, SlotReason.TOO_LONG),
    ],
)
def test_whatever_becomes_of_a_run_is_recorded_and_its_scheduler_goes_on(
    deployment: Deployment, job: str, state: SlotState, reason: SlotReason
) -> None:
    failing = deployment.due(name="failing", job=job, max_duration_s=0.5 if job == "example-hang" else 60)
    sound = a_schedule()
    register(deployment.mongo, sound)
    deployment.to_slot()
    deployment.once(failing, sound)
    by_schedule = {slot.schedule: (slot.state, slot.reason) for slot in deployment.slots()}
    assert by_schedule == {"failing": (state, reason), "minutely": (SlotState.SUCCEEDED, None)}
    assert (
        deployment.mongo.collection(SCHEDULE).count_documents({"$expr": {"$gt": ["$ExpiresAtUtc", deployment.now]}})
        == 0
    )


def test_a_replaced_definition_settles_what_the_old_one_owed(deployment: Deployment) -> None:
    old = deployment.due()
    deployment.to_slot(2)
    new = a_schedule(cron="30 * * * * ?")
    register(deployment.mongo, new)
    assert [state for state, _ in deployment.states()] == [SlotState.MISSED] * 3
    assert {reason for _, reason in deployment.states()} == {SlotReason.DEFINITION_CHANGED}
    for step in (deployment.evaluate, deployment.claim):
        with pytest.raises(Refusal) as refused:
            step(old)
        assert refused.value.reason is ScheduleReason.ScheduleSuperseded
    assert acquire(deployment.mongo, SCHEDULE, lease_id(old.name), TTL_S), "the refused claim left no lease"


def test_a_scheduler_without_enabled_schedules_is_refused(deployment: Deployment) -> None:
    with pytest.raises(Refusal) as refused:
        deployment.once()
    assert refused.value.reason is ScheduleReason.NothingScheduled


@dataclass
class Receiver:
    """A webhook's other end: answers with ``statuses`` in turn, keeps what it was sent."""

    url: str
    received: list[tuple[str, dict[str, Any]]]


@pytest.fixture
def receiver() -> Any:
    received: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.headers["Idempotency-Key"], json.loads(body)))
            self.send_response(503 if len(received) == 1 else 204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Receiver(f"http://127.0.0.1:{server.server_port}/", received)
    server.shutdown()
    thread.join(timeout=30)
    assert not thread.is_alive()
    server.server_close()


@pytest.fixture
def _no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statlib.schedule.hooks.HOOK_BACK_OFF_S", 0.01)


@pytest.mark.usefixtures("_no_back_off")
def test_a_failed_run_is_told_to_the_webhook_until_it_takes_it(deployment: Deployment, receiver: Receiver) -> None:
    schedule = deployment.due(job="example-crash", on_failure=Hook(url=receiver.url))
    deployment.once(schedule)
    deployment.once(schedule)
    run = deployment.run()
    assert (run.hook, run.hook_attempts) == (HookState.DELIVERED, 2)
    assert [key for key, _ in receiver.received] == [run.id] * 2
    told = receiver.received[-1][1]
    assert (told["schedule"], told["state"], told["reason"]) == ("minutely", "Failed", "Fault")


@pytest.mark.usefixtures("_no_back_off")
@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("import sys; sys.exit('no reply')", "the command ended with 1: no reply"),
        ("import time; time.sleep(60)", "the command did not end within 0.3 s"),
    ],
)
def test_a_hook_that_keeps_failing_is_given_up_on_record(deployment: Deployment, code: str, failure: str) -> None:
    chosen = deployment.mongo.settings.schedule.model_copy(update={"hook_timeout_s": 0.3 if "sleep" in code else 30.0})
    settings = deployment.mongo.settings.model_copy(update={"schedule": chosen})
    deployment.mongo = Mongo(deployment.mongo.client, deployment.mongo.database, deployment.mongo.clock, settings)
    schedule = deployment.due(job="example-refuse", on_failure=Hook(command=(sys.executable, "-c", code)))
    deployment.once(schedule)
    run = deployment.run()
    assert (run.hook, run.hook_attempts, run.hook_failure) == (HookState.UNDELIVERED, 2, failure)


def test_a_run_that_succeeded_tells_nobody(deployment: Deployment, receiver: Receiver) -> None:
    schedule = deployment.due(on_failure=Hook(url=receiver.url))
    deployment.once(schedule)
    assert deployment.run().hook is HookState.NONE
    assert receiver.received == []


def test_a_delivery_that_its_host_did_not_finish_is_repeated_by_another(
    deployment: Deployment, receiver: Receiver
) -> None:
    schedule = deployment.due(on_failure=Hook(url=receiver.url))
    taken = deployment.claim(schedule)
    conclude(deployment.mongo, taken, begin(deployment.mongo, taken), Ended(SlotState.FAILED, SlotReason.FAULT))
    known = {schedule.name: Hook(url=receiver.url)}
    chosen = deployment.mongo.settings.schedule

    def take() -> hooks.Debt | None:
        return hooks.claim_owed(deployment.mongo, known, chosen)

    assert take() is not None
    assert take() is None, "a second host must not deliver beside the first"
    deployment.mongo.clock.advance(3600)
    assert take() is not None


def test_the_server_itself_refuses_a_second_open_slot(deployment: Deployment) -> None:
    deployment.due()
    slot = deployment.slots()[0].to_bson()
    second = {**slot, "_id": "second", "SlotAtUtc": datetime(2030, 1, 1, tzinfo=UTC)}
    with pytest.raises(DuplicateKeyError):
        deployment.mongo.collection(SLOT).insert_one(second)
