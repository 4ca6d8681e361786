"""Two schedulers on one database over 200 slots, killed and restarted, their runs killed too, and the clock stepped.

Time is the clock file's, which every process shares; the processes and their deaths are real. What must hold is
judged from the slots' documents and from a file that every run writes to, line by line.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from statlib.kernel.settings import Settings
from statlib.local.replica_set import ReplicaSet
from statlib.mongo.connection import Mongo, connected
from statlib.passes.audit import server_time
from statlib.schedule.cron import QuartzCron
from statlib.schedule.documents import RUN, SLOT, Run, Slot
from statlib.schedule.states import HELD, OPEN, SlotReason, SlotState
from tests.children import Child, child
from tests.conftest import settings_on
from tests.unit.schedule import example_jobs
from tests.unit.schedule.example_jobs import EFFECTS

SLOTS = 200
MINUTE_S = 60.0
LEASE_TTL_S = 240.0  # longer than the clock moves while a run is deliberately held open
CRON = QuartzCron.parse("0 * * * * ?")
FILE = """
[[schedule]]
name = "minutely"
job = "example-append"
cron = "0 * * * * ?"
misfire = "one"
enabled = true
"""


@dataclass
class Stage:
    """The database, the clock, and two places for schedulers."""

    mongo: Mongo
    effects: Path
    gate: Path
    begun: datetime
    running: dict[int, Iterator[Child]] = field(default_factory=dict)
    children: dict[int, Child] = field(default_factory=dict)
    killed_runs: set[str] = field(default_factory=set)

    @property
    def now(self) -> datetime:
        return server_time(self.mongo)

    def start(self, place: int) -> None:
        entered = child("tests.fault.scheduler_host", self.mongo.settings)
        self.children[place] = entered.__enter__()
        self.running[place] = entered  # type: ignore[assignment]

    def kill(self, place: int) -> None:
        self.children.pop(place).kill()
        self.running.pop(place).__exit__(None, None, None)  # type: ignore[attr-defined]

    def to_slot(self, ahead: int = 1) -> datetime:
        """Advance the clock to just after the next slot, or after a later one; returns the last slot passed."""
        now = self.now
        target = now.replace(second=0, microsecond=0) + timedelta(seconds=ahead * MINUTE_S)
        self.mongo.clock.advance((target - now).total_seconds() + 0.05)
        return target

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"never: {what}"
            time.sleep(0.03)

    def settled(self, slot: datetime) -> bool:
        """The slot and all before it have their end."""
        return self.evaluated(slot) and self.mongo.collection(SLOT).find_one({"State": {"$in": _values(OPEN)}}) is None

    def settle(self, slot: datetime) -> None:
        self.until(partial(self.settled, slot), f"the slots until {_at(slot)} have their end")

    def evaluated(self, slot: datetime) -> bool:
        return self.mongo.collection(SLOT).find_one({"Schedule": "minutely", "SlotAtUtc": {"$gte": slot}}) is not None

    def held_run(self) -> Run | None:
        """The run that is under way and has shown its first effect."""
        found = self.mongo.collection(RUN).find_one({"State": SlotState.RUNNING.value})
        run = Run.from_bson(found) if found else None
        return run if run and any(f"start {_at(run.slot_at_utc)}" in line for line in self.lines()) else None

    def kill_run(self) -> None:
        """SIGKILL the process of the run that is under way; only ever one of these schedulers' own."""
        self.until(lambda: self.held_run() is not None, "a run under way")
        run = self.held_run()
        assert run is not None
        self.killed_runs.add(run.id)
        with suppress(ProcessLookupError):
            os.kill(run.pid, signal.SIGKILL)

    def lines(self) -> list[str]:
        return [line.replace("minutely ", "") for line in self.effects.read_text(encoding="utf-8").splitlines()]

    def slots(self) -> list[Slot]:
        return [Slot.from_bson(found) for found in self.mongo.collection(SLOT).find().sort("SlotAtUtc", 1)]

    def runs(self) -> list[Run]:
        return [Run.from_bson(found) for found in self.mongo.collection(RUN).find().sort("StartedAtUtc", 1)]


def _values(states: frozenset[SlotState]) -> list[str]:
    return [state.value for state in states]


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture
def stage(mongo_server: ReplicaSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    settings: Settings = settings_on(mongo_server, tmp_path)
    effects = example_jobs.install(tmp_path, monkeypatch)
    file = tmp_path / "schedule.toml"
    file.write_text(FILE, encoding="utf-8")
    monkeypatch.setenv("STATLIB__SCHEDULE__FILE", str(file))
    monkeypatch.setenv("STATLIB__SCHEDULE__POLL_S", "0.1")
    monkeypatch.setenv("STATLIB__SCHEDULE__LEASE_TTL_S", str(LEASE_TTL_S))
    with connected(settings, app_name="statlib-tests") as mongo:
        opened = Stage(mongo, effects, tmp_path / "gate", server_time(mongo))
        try:
            yield opened
        finally:
            for place in list(opened.children):
                opened.kill(place)
            opened.gate.unlink(missing_ok=True)
            _end_runs(opened)
            mongo.client.drop_database(mongo.database)


def _end_runs(stage: Stage) -> None:
    """Runs outlive their schedulers; by the gate's opening they end by themselves, and are waited for."""
    with suppress(AssertionError):
        stage.until(lambda: not any(_alive(run.pid) for run in stage.runs()), "every run's end", timeout_s=20)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.timeout(900)
def test_each_of_200_slots_runs_once_or_says_why_not_and_none_overlap(stage: Stage) -> None:
    chance = random.Random(20_260_309)
    stage.start(0)
    stage.start(1)
    slot = stage.begun.replace(second=0, microsecond=0)
    done = 0
    while done < SLOTS:
        event = chance.choices(
            ["plain", "kill host", "kill run", "kill both", "overlap", "step"], weights=[16, 3, 2, 2, 2, 1]
        )[0]
        ahead = 1
        if event == "kill host":
            place = chance.randrange(2)
            stage.kill(place)
            slot = stage.to_slot()
            stage.settle(slot)
            stage.start(place)
        elif event == "kill run":
            stage.gate.touch()
            slot = stage.to_slot()
            stage.kill_run()
            stage.gate.unlink()
            stage.settle(slot)
        elif event == "kill both":
            ahead = chance.randrange(2, 6)  # a downtime of every host, with a run under way
            stage.gate.touch()
            slot = stage.to_slot()
            stage.until(lambda: stage.held_run() is not None, "a run under way")
            stage.kill(0)
            stage.kill(1)
            stage.kill_run()
            stage.gate.unlink()
            slot = stage.to_slot(ahead - 1 + round(LEASE_TTL_S / MINUTE_S))
            ahead += round(LEASE_TTL_S / MINUTE_S)
            stage.start(0)
            stage.start(1)
            stage.settle(slot)
        elif event == "overlap":
            stage.gate.touch()
            stage.to_slot()
            stage.until(lambda: stage.held_run() is not None, "a run under way")
            slot = stage.to_slot()
            ahead = 2
            stage.until(partial(stage.evaluated, slot), "the overlapping slot is recorded")
            stage.gate.unlink()
            stage.settle(slot)
        else:
            ahead = chance.randrange(5, 9) if event == "step" else 1
            slot = stage.to_slot(ahead)
            stage.settle(slot)
        done += ahead
    assert_sound(stage, slot)


def assert_sound(stage: Stage, last: datetime) -> None:
    slots, runs = stage.slots(), stage.runs()
    first = min(slot.first_slot_at_utc for slot in slots)
    assert sum(slot.slot_count for slot in slots) >= SLOTS

    # None silently missed, none twice: the records are exactly the slots that the expression has.
    recorded = [slot.slot_at_utc for slot in slots]
    assert all(slot.slot_count == 1 for slot in slots)
    assert recorded == list(CRON.latest(first - timedelta(seconds=1), last, 10 * SLOTS))
    assert first <= (CRON.next_after(stage.begun) or stage.begun) + timedelta(minutes=1)

    # Each has an end, and a reason unless it succeeded.
    by_state = Counter(slot.state for slot in slots)
    assert not set(by_state) & OPEN
    assert all(slot.reason is not None for slot in slots if slot.state is not SlotState.SUCCEEDED)
    for state in (SlotState.SUCCEEDED, SlotState.INTERRUPTED, SlotState.SKIPPED, SlotState.MISSED):
        assert by_state[state] > 0, f"the history never showed {state}"
    assert by_state[SlotState.FAILED] == 0

    # Interrupted are those whose process was killed, and no others.
    interrupted = {run.id for run in runs if run.state is SlotState.INTERRUPTED}
    assert interrupted == stage.killed_runs
    lost = {slot.reason for slot in slots if slot.state is SlotState.INTERRUPTED}
    assert lost == {SlotReason.RUN_DIED, SlotReason.HOST_LOST}

    # Each once: one run for each slot that ran, one start of it in the file, one fenced effect if it succeeded.
    ran = [slot for slot in slots if slot.state in {SlotState.SUCCEEDED, SlotState.INTERRUPTED}]
    assert sorted(run.slot_at_utc for run in runs) == [slot.slot_at_utc for slot in ran]
    starts = Counter(line.split()[1] for line in stage.lines() if line.startswith("start"))
    assert starts == Counter(_at(slot.slot_at_utc) for slot in ran)
    effects = sorted(found["SlotAtUtc"] for found in stage.mongo.collection(EFFECTS).find())
    assert effects == [slot.slot_at_utc for slot in slots if slot.state is SlotState.SUCCEEDED]

    # None overlapping: in the file, a run's start is followed by its own end, unless it was killed.
    killed = {_at(run.slot_at_utc) for run in runs if run.id in stage.killed_runs}
    assert overlaps(stage.lines(), killed) == []
    generations = [run.lease_generation for run in runs]
    assert generations == sorted(set(generations)), "a generation of the lease belongs to one run"


def overlaps(lines: list[str], killed: set[str]) -> list[tuple[str, str]]:
    """Pairs of slots of which the second started before the first had ended."""
    found: list[tuple[str, str]] = []
    under_way: str | None = None
    for line in lines:
        what, at, _ = line.split()
        if what == "start":
            if under_way is not None and under_way not in killed:
                found.append((under_way, at))
            under_way = at
        elif at == under_way:
            under_way = None
        else:
            found.append((at, under_way or ""))
    return found


def test_a_run_outlives_its_killed_scheduler_and_is_recorded(stage: Stage) -> None:
    stage.start(0)
    stage.gate.touch()
    slot = stage.to_slot()
    stage.until(lambda: stage.held_run() is not None, "a run under way")
    stage.kill(0)
    stage.gate.unlink()
    stage.settle(slot)
    assert [found.state for found in stage.slots()] == [SlotState.SUCCEEDED]


def test_a_frozen_run_that_was_overtaken_has_no_further_fenced_effect(stage: Stage) -> None:
    stage.start(0)
    stage.gate.touch()
    stage.to_slot()
    stage.until(lambda: stage.held_run() is not None, "a run under way")
    frozen = stage.held_run()
    assert frozen is not None
    os.kill(frozen.pid, signal.SIGSTOP)
    stage.gate.unlink()
    slot = stage.to_slot(round(LEASE_TTL_S / MINUTE_S) + 1)
    stage.settle(slot)
    os.kill(frozen.pid, signal.SIGCONT)
    stage.until(lambda: not _alive(frozen.pid), "the frozen run's end")
    states = {found.slot_at_utc: (found.state, found.reason) for found in stage.slots()}
    assert states[frozen.slot_at_utc] == (SlotState.INTERRUPTED, SlotReason.HOST_LOST)
    assert states[slot] == (SlotState.SUCCEEDED, None)
    assert [found["SlotAtUtc"] for found in stage.mongo.collection(EFFECTS).find()] == [slot]


def test_a_terminated_scheduler_takes_nothing_new_and_lets_its_run_end(stage: Stage) -> None:
    stage.start(0)
    stage.gate.touch()
    slot = stage.to_slot()
    stage.until(lambda: stage.held_run() is not None, "a run under way")
    stage.children[0].process.terminate()
    assert stage.children[0].hear() == "draining"
    stage.to_slot(2)
    stage.gate.unlink()
    assert stage.children[0].process.wait(timeout=60) == 0
    assert [(found.slot_at_utc, found.state) for found in stage.slots()] == [(slot, SlotState.SUCCEEDED)]
    assert HELD.isdisjoint({found.state for found in stage.slots()})
    assert stage.begun < slot < datetime.now(UTC) + timedelta(hours=1)
