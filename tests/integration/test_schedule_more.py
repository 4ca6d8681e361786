"""A scheduler's own process and a run's own process: serving, draining, being overtaken."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from pymongo.errors import OperationFailure

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.schedule import runner, storage
from statlib.schedule.documents import SLOT
from statlib.schedule.falling_due import register
from statlib.schedule.scheduler import Scheduler
from statlib.schedule.slots import recover
from statlib.schedule.states import SlotReason, SlotState
from tests.integration.test_schedule import TTL_S, Deployment, a_schedule
from tests.integration.test_schedule import deployment as deployment  # noqa: PLC0414 - a fixture


def with_schedule_settings(mongo: Mongo, **changes: float) -> Mongo:
    chosen = mongo.settings.schedule.model_copy(update=changes)
    settings = mongo.settings.model_copy(update={"schedule": chosen})
    return Mongo(mongo.client, mongo.database, mongo.clock, settings)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


@contextmanager
def stopped_when(condition: Callable[[], bool]) -> Iterator[None]:
    """Send this process SIGTERM once ``condition`` holds, or after a while; the block must take the signal."""

    def stop() -> None:
        try:
            wait_until(condition)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    yield
    thread.join(timeout=30)


def serve(mongo: Mongo, deployment: Deployment, until: Callable[[], bool]) -> list[str]:
    said: list[str] = []
    scheduler = Scheduler(mongo, [deployment.due()], said.append)
    scheduler.start()
    with stopped_when(until):
        scheduler.serve()
    return said


def test_a_serving_scheduler_outlives_a_database_that_does_not_answer_once(deployment: Deployment) -> None:
    admin = deployment.mongo.client.admin
    fault = {"failCommands": ["find"], "errorCode": 8000, "appName": "statlib-tests"}
    schedule = deployment.due()
    said: list[str] = []
    scheduler = Scheduler(deployment.mongo, [schedule], said.append)
    scheduler.start()
    admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=fault)
    try:
        with stopped_when(lambda: any("has ended" in line for line in said)):
            scheduler.serve()
    finally:
        admin.command("configureFailPoint", "failCommand", mode="off")
    assert said[0] == "the database did not answer (OperationFailure); trying again"
    assert deployment.states()[0] == (SlotState.SUCCEEDED, None)


def test_a_run_that_outlasts_the_drain_is_stopped_on_record(deployment: Deployment) -> None:
    deployment.gate.touch()
    mongo = with_schedule_settings(deployment.mongo, drain_s=0.3)
    said = serve(mongo, deployment, lambda: deployment.effect_lines() == ["start"])
    assert "waiting for 1 run, at most 0.3 s" in said
    assert deployment.states()[0] == (SlotState.INTERRUPTED, SlotReason.STOPPED)
    assert deployment.effect_lines() == ["start"]


def test_a_scheduler_whose_definition_was_replaced_says_so_once_and_takes_nothing(deployment: Deployment) -> None:
    said: list[str] = []
    scheduler = Scheduler(deployment.mongo, [a_schedule()], said.append)
    scheduler.start()
    register(deployment.mongo, a_schedule(cron="30 * * * * ?"))
    deployment.to_slot(2)
    with ThreadPoolExecutor(1) as pool:
        scheduler.look(pool)
        scheduler.look(pool)
    assert [line.split(": ")[:2] for line in said] == [["minutely", "refused"], ["minutely", "remedy"]]
    assert deployment.slots() == []


def test_a_run_that_was_overtaken_stops_itself_and_records_nothing(deployment: Deployment) -> None:
    schedule = deployment.due(job="example-hang")
    taken = deployment.claim(schedule)

    def overtake() -> None:
        wait_until(lambda: deployment.effect_lines() == ["start"])
        deployment.mongo.clock.advance(TTL_S)
        wait_until(lambda: recover(deployment.mongo, schedule, ttl_s=TTL_S))

    thread = threading.Thread(target=overtake, daemon=True)
    thread.start()
    with pytest.raises(Refusal) as refused:
        runner.carry_out(with_schedule_settings(deployment.mongo, lease_ttl_s=2.0), taken)
    thread.join(timeout=30)
    assert refused.value.reason is MongoReason.LeaseLost
    assert deployment.states() == [(SlotState.INTERRUPTED, SlotReason.HOST_LOST)]


def test_a_collection_that_another_scheduler_made_first_is_taken_as_it_is(deployment: Deployment) -> None:
    storage._create(deployment.mongo, SLOT)
    with pytest.raises(OperationFailure):
        storage._create(deployment.mongo, "system.absent")
