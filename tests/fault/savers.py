"""Savers in processes of their own, killed or frozen at an exact command of a save.

A kit process without any connection imports everything once and forks a saver per job, so that a sweep over all
commands of a save costs no interpreter start each. Jobs and reports are JSON lines.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Protocol
from uuid import UUID

from pydantic import SecretStr

from statlib.kernel.refusals import StatlibError
from statlib.kernel.settings import ClockSettings, MongoSettings, Settings, StatisticsSettings
from statlib.review.catalogue import REVIEW
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningChange, ScreeningWriter
from statlib.statistics import attempts, queries
from statlib.statistics.catalogue import Document
from statlib.statistics.envelopes import Envelope
from statlib.statistics.outcomes import SourceWrite
from tests.doings import DOINGS
from tests.interruptions import Interrupter, When, host_with

APP_NAME = "statlib-tests-saver"


class Signal(StrEnum):
    KILL = "SIGKILL"
    STOP = "SIGSTOP"


class Condition(StrEnum):
    """What has become of a saver when it is reported."""

    KILLED = "killed"
    FROZEN = "frozen"
    ANSWERED = "answered"


@dataclass(frozen=True)
class Report:
    """``answer``: "Saved", "Duplicate" or the name of a refusal's reason; None unless ``ANSWERED``."""

    pid: int
    condition: Condition
    answer: str | None = None


@dataclass(frozen=True)
class Job:
    """Deliver ``envelope`` and send oneself ``signal`` at a command; or, if ``when`` is None, between the attempt's own
    look at its deadline and the making of its write. ``deadline_s`` replaces the product's; ``without`` names a
    predicate of ``queries`` that is taken out. ``doing``: what is done in place of ``decision``."""

    settings: Settings
    envelope: Envelope
    decision: Decision
    signal: Signal
    when: When | None
    number: int = 0
    deadline_s: float | None = None
    without: str | None = None
    doing: str | None = None

    def to_wire(self) -> dict[str, Any]:
        statistics = self.settings.statistics
        return {
            "uri": self.settings.mongo.uri.get_secret_value(),
            "database": self.settings.mongo.database,
            "clock": str(self.settings.clock.offset_file),
            "allowlist": [str(project) for project in statistics.allowlist],
            "families": sorted(statistics.families),
            "writes": statistics.writes,
            "fold": statistics.fold,
            "envelope": self.envelope.to_wire(),
            "decision": self.decision.value,
            "signal": self.signal.value,
            "when": self.when.value if self.when else None,
            "number": self.number,
            "deadline_s": self.deadline_s,
            "without": self.without,
            "doing": self.doing,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Job:
        settings = Settings(
            mongo=MongoSettings(uri=SecretStr(wire["uri"]), database=wire["database"]),
            clock=ClockSettings(offset_file=Path(wire["clock"])),
            statistics=StatisticsSettings(
                allowlist=frozenset(UUID(project) for project in wire["allowlist"]),
                families=frozenset(wire["families"]),
                writes=wire["writes"],
                fold=wire["fold"],
            ),
        )
        return cls(
            settings=settings,
            envelope=Envelope.from_wire(wire["envelope"]),
            decision=Decision(wire["decision"]),
            signal=Signal(wire["signal"]),
            when=When(wire["when"]) if wire["when"] else None,
            number=wire["number"],
            deadline_s=wire["deadline_s"],
            without=wire["without"],
            doing=wire["doing"],
        )


class Wired(Protocol):
    """A job as it goes to the kit."""

    def to_wire(self) -> dict[str, Any]: ...


class Savers:
    """The test's end of the kit."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._jobs: IO[str] = process.stdin
        self._reports: IO[str] = process.stdout

    def run(self, job: Wired) -> Report:
        """Start a saver and return once it was killed, was frozen, or has answered."""
        return self._ask({"run": job.to_wire()})

    def resume(self, frozen: Report) -> Report:
        """Wake a frozen saver, and return when it has ended."""
        assert frozen.condition is Condition.FROZEN
        return self._ask({"resume": frozen.pid})

    def _ask(self, request: Mapping[str, Any]) -> Report:
        self._jobs.write(json.dumps(request) + "\n")
        self._jobs.flush()
        line = self._reports.readline()
        assert line, "the kit process has died; its standard error says of what"
        report = json.loads(line)
        return Report(report["pid"], Condition(report["condition"]), report["answer"])


@contextmanager
def savers(module: str = "tests.fault.savers") -> Iterator[Savers]:
    """A running kit of ``module``'s jobs; whatever it left frozen is killed at the end."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Savers(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=20)


# --- the kit process


def main() -> None:
    serve(lambda wire: _save(Job.from_wire(wire)))


def serve(act: Callable[[Mapping[str, Any]], str]) -> None:
    """Run jobs that come on standard input, each by ``act`` in a process of its own, until it closes."""
    alive: dict[int, int] = {}  # process id to the read end of its answer
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if "run" in request:
                pid = _fork(act, request["run"], alive)
            else:
                pid = request["resume"]
                os.kill(pid, signal.SIGCONT)
            print(json.dumps(_await(pid, alive)), flush=True)
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _fork(act: Callable[[Mapping[str, Any]], str], wire: Mapping[str, Any], alive: dict[int, int]) -> int:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.write(write_end, act(wire).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write_end)
    alive[pid] = read_end
    return pid


def _await(pid: int, alive: dict[int, int]) -> dict[str, Any]:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return {"pid": pid, "condition": Condition.FROZEN.value, "answer": None}
    with os.fdopen(alive.pop(pid)) as answers:
        answer = answers.read()
    if os.WIFSIGNALED(status):
        return {"pid": pid, "condition": Condition.KILLED.value, "answer": None}
    return {"pid": pid, "condition": Condition.ANSWERED.value, "answer": answer or "crashed"}


@dataclass
class _Signalling:
    """A change that signals its own process when it is first applied: after the deadline was looked at."""

    change: ScreeningChange
    signal: int
    signalled: bool = False

    @property
    def intent(self) -> Any:
        return self.change.intent

    def apply(self, source: Document, context: Document, envelope: Envelope) -> SourceWrite:
        if not self.signalled:
            self.signalled = True
            os.kill(os.getpid(), self.signal)
        return self.change.apply(source, context, envelope)


def _save(job: Job) -> str:
    number = signal.Signals[job.signal].value
    if job.deadline_s is not None:
        setattr(attempts, "PRE_WRITE_DEADLINE_S", job.deadline_s)  # noqa: B010 - a constant, to the type checker
    if job.without is not None:
        setattr(queries, job.without, lambda *_: {})
    interrupter = Interrupter()
    with host_with(job.settings, interrupter, app_name=APP_NAME) as host:
        try:
            if job.when is None:
                change = _Signalling(ScreeningChange(job.decision), number)
                saved = attempts.save(host, REVIEW, job.envelope, change)
            else:
                with interrupter.armed(job.when, job.number, lambda: os.kill(os.getpid(), number)):
                    if job.doing is not None:
                        return DOINGS[job.doing].answer(host, job.envelope)
                    saved = ScreeningWriter(host, job.envelope.project).save(job.envelope, job.decision)
        except StatlibError as error:
            reason = getattr(error, "reason", None)
            return reason.name if reason is not None else f"{type(error).__name__}: {error}"
        return "Duplicate" if saved.duplicate else "Saved"


if __name__ == "__main__":
    main()
