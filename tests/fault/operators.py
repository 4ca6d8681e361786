"""Operators' processes, killed or frozen at an exact command of an edit or of an operation over many studies.

A kit process imports everything once and forks one operator per job, as that of the savers does.
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
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from pydantic import SecretStr

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import ClockSettings, MongoSettings, Settings, StatisticsSettings
from statlib.review import bulk, searches
from statlib.review.documents import Search, Study
from statlib.review.edits import Join, Renaming, SetOptions, SetThreshold, edit_project, set_options, set_threshold
from statlib.review.screening import Decision
from statlib.statistics import rewrites
from statlib.statistics.hosts import Host
from tests.fault.savers import Condition, Report, Signal
from tests.interruptions import Interrupter, When, host_with

APP_NAME = "statlib-tests-operator"
CHUNK = 3  # studies of one step in these processes, so that every operation takes several


@dataclass(frozen=True)
class Plan:
    """Which project, and what in it an operation is about. ``turn`` tells one repetition from the next."""

    project: UUID
    studies: tuple[UUID, ...]
    member: UUID
    question: UUID
    turn: int = 0

    @property
    def search(self) -> Search:
        return Search(id=uuid5(self.project, f"search {self.turn}"), name=f"search {self.turn}")

    @property
    def found(self) -> list[Study]:
        ids = [uuid5(self.search.id, str(n)) for n in range(CHUNK + 1)]
        return [Study(id=id_, project_id=self.project, title=str(id_)) for id_ in ids]

    def to_wire(self) -> dict[str, Any]:
        return {
            "project": str(self.project),
            "studies": [str(study) for study in self.studies],
            "member": str(self.member),
            "question": str(self.question),
            "turn": self.turn,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Plan:
        return cls(
            UUID(wire["project"]),
            tuple(map(UUID, wire["studies"])),
            UUID(wire["member"]),
            UUID(wire["question"]),
            wire["turn"],
        )


def _threshold(host: Host, plan: Plan) -> None:
    least, ratio = ((2, 0.66), (1, 0.6))[plan.turn % 2]
    set_threshold(host, plan.project, SetThreshold(min_screenings=least, agreement_ratio=ratio))


def _options(host: Host, plan: Plan) -> None:
    old, new = f"colour {plan.turn - 1}", f"colour {plan.turn}"
    renamed = (Renaming(old=old if plan.turn > 1 else "red", new=new),)
    set_options(host, plan.project, SetOptions(question=plan.question, options=(new, "blue"), renamed=renamed))


def _bulk(host: Host, plan: Plan) -> None:
    decision = (Decision.INCLUDE, Decision.EXCLUDE)[plan.turn % 2]
    bulk.update_studies(host, plan.project, [bulk.DecisionRow(id_, plan.member, decision) for id_ in plan.studies])


def _import(host: Host, plan: Plan) -> None:
    searches.import_search(host, plan.project, plan.search, plan.found)


def _removal(host: Host, plan: Plan) -> None:
    searches.remove_search(host, plan.project, plan.search.id)


def _join(host: Host, plan: Plan) -> None:
    edit_project(host, plan.project, Join(investigator=uuid5(plan.project, f"member {plan.turn}")))


OPERATIONS: dict[str, Callable[[Host, Plan], None]] = {
    "join": _join,
    "threshold": _threshold,
    "options": _options,
    "bulk": _bulk,
    "import": _import,
    "removal": _removal,
}


@dataclass(frozen=True)
class Job:
    """Carry out an operation, and send oneself ``signal`` right before the ``number``-th command."""

    settings: Settings
    operation: str
    plan: Plan
    signal: Signal
    number: int

    def to_wire(self) -> dict[str, Any]:
        chosen = self.settings.statistics
        return {
            "uri": self.settings.mongo.uri.get_secret_value(),
            "database": self.settings.mongo.database,
            "clock": str(self.settings.clock.offset_file),
            "allowlist": [str(project) for project in chosen.allowlist],
            "families": sorted(chosen.families),
            "operation": self.operation,
            "plan": self.plan.to_wire(),
            "signal": self.signal.value,
            "number": self.number,
        }


class Operators:
    """The test's end of the kit."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, job: Job) -> Report:
        """Start an operator and return once it was killed, was frozen, or has answered."""
        return self._ask({"run": job.to_wire()})

    def resume(self, frozen: Report) -> Report:
        """Wake a frozen operator, and return when it has ended."""
        return self._ask({"resume": frozen.pid})

    def _ask(self, request: Mapping[str, Any]) -> Report:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the kit process has died; its standard error says of what"
        report = json.loads(line)
        return Report(report["pid"], Condition(report["condition"]), report["answer"])


@contextmanager
def operators() -> Iterator[Operators]:
    """A running kit; whatever it left frozen is killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fault.operators"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Operators(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=20)


# --- the kit process


def main() -> None:
    for module in (rewrites, bulk, searches):
        setattr(module, "FENCE_CHUNK_DOCS_MAX", CHUNK)  # noqa: B010 - a constant, to the type checker
    alive: dict[int, int] = {}  # process id to the read end of its answer
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if "run" in request:
                pid = _fork(request["run"], alive)
            else:
                pid = request["resume"]
                os.kill(pid, signal.SIGCONT)
            print(json.dumps(_await(pid, alive)), flush=True)
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _fork(wire: Mapping[str, Any], alive: dict[int, int]) -> int:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.write(write_end, _operate(wire).encode())
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


def _operate(wire: Mapping[str, Any]) -> str:
    settings = Settings(
        mongo=MongoSettings(uri=SecretStr(wire["uri"]), database=wire["database"]),
        clock=ClockSettings(offset_file=Path(wire["clock"])),
        statistics=StatisticsSettings(
            allowlist=frozenset(map(UUID, wire["allowlist"])), families=frozenset(wire["families"]), writes=True
        ),
    )
    number = signal.Signals[wire["signal"]].value
    interrupter = Interrupter()
    with host_with(settings, interrupter, app_name=APP_NAME) as host:
        try:
            with interrupter.armed(When.BEFORE_SENDING, wire["number"], lambda: os.kill(os.getpid(), number)):
                OPERATIONS[wire["operation"]](host, Plan.from_wire(wire["plan"]))
        except Refusal as refusal:
            return refusal.reason.name
    return "done"


if __name__ == "__main__":
    main()
