"""The process of one run: it takes over a claimed slot, carries it out, keeps its lease, and records its end.

A run has a process of its own, so that whatever becomes of it becomes of nothing else: a scheduler outlives its
runs, and a run outlives its scheduler. Processes are forked from a server that has imported this module and holds no
connection and no thread, because importing takes longer than most passes do.

Invariant: a runner that cannot prove its lease stops, first by itself, then by force; and it never runs longer than
its schedule's maximum by more than twice the grace.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from types import FrameType
from typing import NoReturn

from pymongo.errors import PyMongoError

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings, load_settings
from statlib.mongo.connection import Mongo, connected
from statlib.mongo.leases import release, renew
from statlib.mongo.reasons import MongoReason
from statlib.schedule.bounds import STOP_GRACE_S
from statlib.schedule.definitions import TargetKind
from statlib.schedule.documents import Run
from statlib.schedule.jobs import JobContext, PassReport, find_job
from statlib.schedule.order import Order
from statlib.schedule.slot_store import Ended
from statlib.schedule.slots import Claim, begin, conclude
from statlib.schedule.states import SlotReason, SlotState
from statlib.statistics.hosts import Role, registered

EXIT_OVERTAKEN = 4  # the slot was no longer this run's; another host has settled it
_CONCLUDE_WAIT_S = 1.0


class Stopped(BaseException):
    """Ends a job from outside; no ``except Exception`` of a job's takes it for a failure of its own."""

    def __init__(self, reason: SlotReason) -> None:
        super().__init__(reason)
        self.reason = reason


def start(claim: Claim) -> ForkServerProcess:
    """Start the process of a run; it has a session of its own, so that Ctrl-C reaches its scheduler alone."""
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload([__name__])
    # The server keeps the environment of its own start; a run is to have its scheduler's.
    arguments = (Order.of(claim).model_dump_json(), dict(os.environ))
    process = forking.Process(target=_main, args=arguments, name=f"statlib-run-{claim.schedule.name}")
    process.start()
    return process


def _main(order_json: str, environment: dict[str, str]) -> NoReturn:
    os.setsid()
    os.dup2(2, 1)  # what a run says is no part of its scheduler's answer, and must not hold that pipe open
    os.environ.clear()
    os.environ.update(environment)
    claim = Order.model_validate_json(order_json).claim()
    with connected(load_settings(), app_name="statlib-run") as mongo:
        try:
            carry_out(mongo, claim)
        except Refusal as refusal:
            sys.stderr.write(f"{claim.schedule.name}: refused: {refusal}\n")
            sys.exit(EXIT_OVERTAKEN)
    sys.exit(0)


def carry_out(mongo: Mongo, claim: Claim) -> None:
    """Begin, run, conclude. Refuses LeaseLost or SlotTaken when another host has the slot."""
    with _kept(mongo, claim):
        run = begin(mongo, claim)
        ended = _run_target(mongo, claim, run)
        _conclude(mongo, claim, run, ended)
    release(mongo, claim.lease)


def _run_target(mongo: Mongo, claim: Claim, run: Run) -> Ended:
    kind = claim.schedule.kind
    try:
        return _runbook(mongo.settings, claim) if kind is TargetKind.RUNBOOK else _job(mongo, claim, run)
    except Stopped as stopped:
        return Ended(SlotState.INTERRUPTED, stopped.reason)
    except Refusal as refusal:
        return Ended(SlotState.FAILED, SlotReason.REFUSED, str(refusal))
    except Exception as error:  # a run's failure is its outcome, whatever it is
        return Ended(SlotState.FAILED, SlotReason.FAULT, type(error).__name__)


def _job(mongo: Mongo, claim: Claim, run: Run) -> Ended:
    job = find_job(claim.schedule.target)
    deadline = mongo.clock.monotonic() + claim.schedule.max_duration_s
    context = JobContext(mongo, claim.schedule.name, claim.slot_at_utc, run.principal, deadline, claim.lease)
    with _stoppable(claim.schedule.max_duration_s), registered(mongo, Role.PROJECT_MANAGEMENT):
        report: PassReport = job.run(context)
    if report.succeeded:
        return Ended(SlotState.SUCCEEDED, detail=report.reason, counts=dict(report.counts))
    return Ended(SlotState.FAILED, SlotReason.REFUSED, f"{report.outcome}: {report.reason}", counts=dict(report.counts))


def _runbook(settings: Settings, claim: Claim) -> Ended:
    from statlib.runbook.catalogue import find_runbook  # noqa: PLC0415 - a job's run needs none of it
    from statlib.runbook.credentials import credentials_in  # noqa: PLC0415
    from statlib.runbook.engine import Stop  # noqa: PLC0415
    from statlib.runbook.execution import run_headless  # noqa: PLC0415
    from statlib.runbook.parameters import parse_parameters  # noqa: PLC0415

    book = find_runbook(claim.schedule.target)
    given = dict(claim.schedule.parameters)
    ended = run_headless(
        book,
        parse_parameters(book.parameters, given, secrets=credentials_in(settings), runbook=book.name),
        settings=settings,
        archive=settings.schedule.archive,
        timeout_s=claim.schedule.max_duration_s,
    )
    halted = ended.conclusion.halted
    cause = f"{halted.cause} {halted.detail}".strip() if halted else ended.conclusion.verdict.value
    state, reason = _FROM_EXIT_CODE.get(ended.exit_code, (SlotState.FAILED, SlotReason.FAULT))
    if halted and halted.cause == Stop.TIMEOUT:
        reason = SlotReason.TOO_LONG
    return Ended(state, reason, cause, ended.exit_code, str(ended.path))


_FROM_EXIT_CODE: dict[int, tuple[SlotState, SlotReason | None]] = {
    0: (SlotState.SUCCEEDED, None),
    3: (SlotState.FAILED, SlotReason.GATE_FAILED),
    4: (SlotState.FAILED, SlotReason.REFUSED),
    5: (SlotState.INTERRUPTED, SlotReason.STOPPED),
    6: (SlotState.FAILED, SlotReason.FAULT),
}


def _conclude(mongo: Mongo, claim: Claim, run: Run, ended: Ended) -> None:
    """Until the database takes it, or the lease is lost; the keeper of the lease ends a process that cannot."""
    while True:
        try:
            return conclude(mongo, claim, run, ended)
        except PyMongoError:
            time.sleep(_CONCLUDE_WAIT_S)
        except Refusal as refusal:
            if refusal.reason not in {MongoReason.CommitOutcomeUnknown, MongoReason.Contended}:
                raise
            time.sleep(_CONCLUDE_WAIT_S)


@contextmanager
def _stoppable(max_duration_s: float) -> Iterator[None]:
    """SIGTERM, SIGINT and the end of ``max_duration_s`` raise Stopped in the job, wherever it is."""

    def raise_stopped(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        raise Stopped(SlotReason.TOO_LONG if number == signal.SIGALRM else SlotReason.STOPPED)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = [signal.signal(number, raise_stopped) for number in numbers]
    signal.setitimer(signal.ITIMER_REAL, max_duration_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _kept(mongo: Mongo, claim: Claim) -> Iterator[None]:
    """Renew the lease in a thread while the block runs; stop this process when that is no longer possible."""
    over = threading.Event()
    keeper = threading.Thread(target=_keep, args=(mongo, claim, over), name="statlib-lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join(timeout=STOP_GRACE_S)


def _keep(mongo: Mongo, claim: Claim, over: threading.Event) -> None:
    ttl_s = mongo.settings.schedule.lease_ttl_s
    started = renewed = time.monotonic()
    ends_at = started + claim.schedule.max_duration_s + 2 * STOP_GRACE_S
    while not over.wait(ttl_s / 4):
        try:
            renew(mongo, claim.lease, ttl_s)
        except Refusal:
            break
        except PyMongoError:
            if time.monotonic() - renewed > ttl_s / 2:
                break  # by the time that it may be another's, this process must have ended
        else:
            renewed = time.monotonic()
        if time.monotonic() > ends_at:
            os.kill(os.getpid(), signal.SIGKILL)
    if over.is_set():
        return
    os.kill(os.getpid(), signal.SIGTERM)
    if not over.wait(STOP_GRACE_S):
        os.kill(os.getpid(), signal.SIGKILL)
