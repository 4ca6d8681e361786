"""The scheduler's loop: look, record what fell due, take what is due, start it, and sleep until the next slot.

Any number of them share one database and know nothing of each other. A scheduler keeps no state that another could
not take over: killing one loses nothing but its own time.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from multiprocessing.context import ForkServerProcess
from types import FrameType

from pymongo.errors import PyMongoError

from statlib.kernel import telemetry
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import ScheduleSettings
from statlib.mongo.connection import Mongo
from statlib.passes.audit import server_time
from statlib.schedule import falling_due, hooks, runner, slots
from statlib.schedule.bounds import STOP_GRACE_S
from statlib.schedule.definitions import Hook, Schedule
from statlib.schedule.documents import SCHEDULE, SLOT, HookState
from statlib.schedule.reasons import ScheduleReason
from statlib.schedule.slot_store import lease_id
from statlib.schedule.states import HELD, OPEN, SlotState
from statlib.schedule.storage import initialise

Say = Callable[[str], None]
_AFTER_SLOT_S = 0.01  # wake just after a slot, so that it has fallen due by the server's clock too


class Look(StrEnum):
    DONE = "Done"
    REFUSED = "Refused"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class _View:
    """What one look at the database found of a schedule."""

    evaluated_through_utc: datetime
    lease_free: bool
    state: SlotState | None


@dataclass
class _Started:
    """A run of this host."""

    claim: slots.Claim
    process: ForkServerProcess


@dataclass
class Scheduler:
    """One host's scheduler. ``say`` is told one line for whatever an operator would want to know."""

    mongo: Mongo
    schedules: Sequence[Schedule]
    say: Say
    _runs: dict[str, _Started] = field(default_factory=dict)
    _superseded: set[str] = field(default_factory=set)
    _deliveries: set[Future[HookState]] = field(default_factory=set)

    @property
    def settings(self) -> ScheduleSettings:
        return self.mongo.settings.schedule

    def start(self) -> None:
        """Make the collections and register every schedule. Refuses NothingScheduled."""
        if not self.schedules:
            raise Refusal(ScheduleReason.NothingScheduled, "no schedule of the file is enabled")
        initialise(self.mongo)
        for schedule in self.schedules:
            falling_due.register(self.mongo, schedule)

    def serve(self) -> None:
        """Look and sleep until SIGTERM or SIGINT, then drain. Must be called in the main thread."""
        with _wakeups() as wait, ThreadPoolExecutor(2, "statlib-hook") as pool:
            while not wait.stopped:
                wait(self._look_guarded(pool), self._sentinels())
            self._drain(wait)

    def once(self) -> None:
        """One look; then wait until what it started has ended and owed hooks were tried."""
        with _wakeups() as wait, ThreadPoolExecutor(2, "statlib-hook") as pool:
            self.look(pool)
            while self._runs and not wait.stopped:
                wait(self.settings.poll_s, self._sentinels())
                self._reap()
            if wait.stopped:
                self._drain(wait)
            self._deliver(pool)

    def look(self, pool: ThreadPoolExecutor) -> datetime:
        """One pass over every schedule; returns the server's time that it was made for."""
        self._reap()
        views, now = self._views()
        for schedule in self.schedules:
            if schedule.name not in self._superseded:
                try:
                    self._visit(schedule, views[schedule.name], now)
                except Refusal as refusal:
                    self._refused(schedule, refusal)
        self._deliver(pool)
        return now

    def _look_guarded(self, pool: ThreadPoolExecutor) -> float:
        """Look, and return how long to sleep."""
        try:
            now = self.look(pool)
        except PyMongoError as error:
            telemetry.count("schedule.looks", outcome=Look.FAILED)
            self.say(f"the database did not answer ({type(error).__name__}); trying again")
            return self.settings.poll_s
        telemetry.count("schedule.looks", outcome=Look.DONE)
        return self._sleep_s(now)

    def _refused(self, schedule: Schedule, refusal: Refusal) -> None:
        telemetry.count("schedule.looks", outcome=Look.REFUSED)
        self.say(f"{schedule.name}: refused: {refusal}")
        if refusal.reason is ScheduleReason.ScheduleSuperseded:
            self._superseded.add(schedule.name)
            self.say(f"{schedule.name}: remedy: {refusal.remedy}")

    def _visit(self, schedule: Schedule, view: _View, now: datetime) -> None:
        state = view.state
        if state in HELD and view.lease_free:
            if slots.recover(self.mongo, schedule, ttl_s=self.settings.lease_ttl_s):
                self.say(f"{schedule.name}: settled the slot of a lost host")
            state = SlotState.DUE  # it may be due again; claiming finds out
        following = schedule.slots.next_after(view.evaluated_through_utc)
        if following is not None and following <= now:
            falling_due.evaluate(self.mongo, schedule, now=now, tolerance_s=self.settings.tolerance_s)
            state = SlotState.DUE if state not in HELD else state
        if state is SlotState.DUE and len(self._runs) < self.settings.concurrency:
            self._take(schedule)

    def _take(self, schedule: Schedule) -> None:
        claim = slots.claim(self.mongo, schedule, ttl_s=self.settings.lease_ttl_s)
        if claim is None:
            return
        process = runner.start(claim)
        self._runs[schedule.name] = _Started(claim, process)
        self.say(f"{schedule.name}: {claim.slot_at_utc:%Y-%m-%dT%H:%M:%SZ} runs as process {process.pid}")

    def _sentinels(self) -> list[int]:
        return [started.process.sentinel for started in self._runs.values()]

    def _reap(self) -> None:
        for name, started in list(self._runs.items()):
            code = started.process.exitcode
            if code is None:
                continue
            how = f"its process was ended by signal {-code}" if code < 0 else f"its process ended with {code}"
            if slots.settle_dead(self.mongo, started.claim, how):
                self.say(f"{name}: {how} without recording an outcome")
            else:
                self.say(f"{name}: {started.claim.slot_at_utc:%Y-%m-%dT%H:%M:%SZ} has ended")
            del self._runs[name]

    def _deliver(self, pool: ThreadPoolExecutor) -> None:
        self._deliveries = {delivery for delivery in self._deliveries if not delivery.done()}
        known: Mapping[str, Hook] = {s.name: s.on_failure for s in self.schedules if s.on_failure is not None}
        while known and (debt := hooks.claim_owed(self.mongo, known, self.settings)) is not None:
            self._deliveries.add(pool.submit(hooks.deliver, self.mongo, debt, self.settings))

    def _drain(self, wait: _Wait) -> None:
        """Let own runs finish, then stop what has not; nothing new is taken."""
        if self._runs:
            self.say(f"waiting for {plural(len(self._runs), 'run')}, at most {self.settings.drain_s:g} s")
        self._await_runs(wait, self.settings.drain_s)
        for started in self._runs.values():
            started.process.terminate()
        self._await_runs(wait, STOP_GRACE_S)
        for started in self._runs.values():
            started.process.kill()
            started.process.join()
        self._reap()

    def _await_runs(self, wait: _Wait, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._runs and (left := deadline - time.monotonic()) > 0:
            wait(min(left, self.settings.poll_s), self._sentinels())
            self._reap()

    def _views(self) -> tuple[dict[str, _View], datetime]:
        now = server_time(self.mongo)
        ids = [lease_id(schedule.name) for schedule in self.schedules]
        names = [schedule.name for schedule in self.schedules]
        opened = self.mongo.collection(SLOT).find(
            {"Schedule": {"$in": names}, "State": {"$in": [state.value for state in OPEN]}},
            {"Schedule": 1, "State": 1},
        )
        states = {slot["Schedule"]: SlotState(slot["State"]) for slot in opened}
        views = {}
        for document in self.mongo.collection(SCHEDULE).find({"_id": {"$in": ids}}):
            name = document["_id"]["Schedule"]
            expires = document.get("ExpiresAtUtc")
            views[name] = _View(document["EvaluatedThroughUtc"], expires is None or expires <= now, states.get(name))
        return views, now

    def _sleep_s(self, now: datetime) -> float:
        """Until the slot after ``now``, the server's time, at most ``poll_s``."""
        following = [s.slots.next_after(now) for s in self.schedules if s.name not in self._superseded]
        waits = [(slot - now).total_seconds() for slot in following if slot is not None]
        return min([self.settings.poll_s, *(wait + _AFTER_SLOT_S for wait in waits)])


class _Wait:
    """Sleeps that a signal ends at once: a stop, or the end of a run."""

    def __init__(self, pipe: int) -> None:
        self.stopped = False
        self._pipe = pipe

    def __call__(self, seconds: float, ends: Sequence[int]) -> None:
        """At most ``seconds``; ``ends`` are descriptors that become readable when a run has ended."""
        readable, _, _ = select.select([self._pipe, *ends], [], [], seconds)
        if self._pipe in readable:
            os.read(self._pipe, 4096)

    def stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.stopped = True


@contextmanager
def _wakeups() -> Iterator[_Wait]:
    """Take SIGTERM and SIGINT for the length of a block; outside the main thread, take neither."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    wait = _Wait(reading)
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, wait.stop) for number in (signal.SIGTERM, signal.SIGINT)} if main else {}
    descriptor = signal.set_wakeup_fd(writing, warn_on_full_buffer=False) if main else -1
    try:
        yield wait
    finally:
        if main:
            signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)
