"""Jobs that tests install as an application would, and what they leave behind.

``STATLIB_TEST_EFFECTS`` names a file that every run appends to: one line when it starts, one when it has ended.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Reason, Refusal, RefusalKind
from statlib.mongo.transactions import transact
from statlib.schedule.jobs import Job, JobContext, PassOutcome, PassReport

EFFECTS_VARIABLE = "STATLIB_TEST_EFFECTS"
GATE_VARIABLE = "STATLIB_TEST_GATE"
EFFECTS = "effects"
REPOSITORY = Path(__file__).resolve().parents[3]


class ExampleReason(Reason):
    Unwilling = (RefusalKind.DISABLED, "Ask again another day.")


def append(context: JobContext) -> PassReport:
    """A fenced effect between two lines. Where the gate's file exists, it waits inside until that is gone."""
    _line(context, "start")
    gate = Path(os.environ.get(GATE_VARIABLE, ""))
    while gate.is_file():
        time.sleep(0.02)

    def body(session: ClientSession) -> None:
        context.fence(session)
        effect = {"Schedule": context.schedule, "SlotAtUtc": context.slot_at_utc}
        context.mongo.collection(EFFECTS).insert_one(effect, session=session)

    transact(context.mongo, body)
    _line(context, "end")
    return PassReport(PassOutcome.COMPLETED, counts={"appended": 1})


def hang(context: JobContext) -> PassReport:
    _line(context, "start")
    threading.Event().wait()
    raise AssertionError("never woken")


def die(context: JobContext) -> PassReport:
    _line(context, "start")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("already dead")


def refuse(context: JobContext) -> PassReport:
    _line(context, "start")
    raise Refusal(ExampleReason.Unwilling, "not today")


def crash(context: JobContext) -> PassReport:
    _line(context, "start")
    raise KeyError("absent")


def report_capacity(context: JobContext) -> PassReport:
    _line(context, "start")
    return PassReport(PassOutcome.CAPACITY_REFUSED, "HistoryScanCapacity")


def _line(context: JobContext, what: str) -> None:
    with Path(os.environ[EFFECTS_VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(f"{what} {context.schedule} {context.slot_at_utc:%Y-%m-%dT%H:%M:%SZ} {os.getpid()}\n")


APPEND = Job("example-append", "Appends.", append)
HANG = Job("example-hang", "Never ends.", hang)
DIE = Job("example-die", "Dies.", die)
REFUSE = Job("example-refuse", "Refuses.", refuse)
CRASH = Job("example-crash", "Crashes.", crash)
REPORT_CAPACITY = Job("example-report-capacity", "Meets a limit.", report_capacity)
NOT_A_JOB = append


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install these jobs for this process and its children; returns the file of effects."""
    metadata = folder / "site" / "example_jobs-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: example-jobs\nVersion: 1.0\n", encoding="utf-8")
    names = [name for name, value in globals().items() if isinstance(value, Job)]
    points = [f"{globals()[name].name} = {__name__}:{name}" for name in names]
    lines = ["[statlib.jobs]", *points, f"example-untrue = {__name__}:NOT_A_JOB"]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder / "site"))
    monkeypatch.setenv("PYTHONPATH", f"{folder / 'site'}{os.pathsep}{REPOSITORY}")
    effects = folder / "effects.txt"
    effects.touch()
    monkeypatch.setenv(EFFECTS_VARIABLE, str(effects))
    monkeypatch.setenv(GATE_VARIABLE, str(folder / "gate"))
    return effects
