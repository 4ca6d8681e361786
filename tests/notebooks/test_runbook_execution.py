"""Headless runs of a real notebook in a real kernel: what they leave behind, and what they exit with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from pymongo import MongoClient

from statlib.evidence.journal import Journal
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import verify
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings, load_settings
from statlib.local.process import free_ports
from statlib.mongo import connection
from statlib.mongo.reasons import MongoReason
from statlib.runbook.anchoring import SERVER_WAIT_S
from statlib.runbook.archive import find_runs, find_unfinished, new_run
from statlib.runbook.catalogue import Runbook
from statlib.runbook.execution import run_headless
from statlib.runbook.holding import hold_run
from statlib.runbook.opening import open_record
from statlib.runbook.parameters import parse_parameters
from statlib.runbook.reasons import RunbookReason
from statlib.runbook.sealing import EndedRun
from tests.notebooks.conftest import (
    ACT_CELL,
    CLOSE_CELL,
    MEASURE_CELL,
    PREFLIGHT_CELL,
    REPOSITORY,
    Launches,
    WriteNotebook,
)

ACTING: dict[str, Any] = {"apply": True, "confirm": "review-tests"}


class Runs:
    """Executes the tiny runbook into one archive."""

    def __init__(self, runbook: Runbook, settings: Settings, folder: Path) -> None:
        self.runbook = runbook
        self.settings = settings
        self.archive = folder / "reports"
        self.effects = folder / "effects.txt"

    def __call__(self, *, timeout_s: float | None = None, resume: str | None = None, **given: Any) -> EndedRun:
        parameters = parse_parameters(self.runbook.parameters, {"effects": str(self.effects), **given})
        return run_headless(
            self.runbook,
            parameters,
            settings=self.settings,
            archive=self.archive,
            timeout_s=timeout_s,
            stop_grace_s=5,
            resume=resume,
        )

    @property
    def lines(self) -> list[str]:
        return self.effects.read_text(encoding="utf-8").splitlines() if self.effects.exists() else []


@pytest.fixture
def runs(tiny: Runbook, settings: Settings, tmp_path: Path) -> Runs:
    return Runs(tiny, settings, tmp_path)


def findings(run: EndedRun) -> list[str]:
    return [str(finding) for finding in verify(run.path).findings]


def test_an_acting_run_passes_its_gates_and_is_verified_from_its_folder_alone(runs: Runs, launches: Launches) -> None:
    run = runs(**ACTING, lines=2)
    assert run.conclusion.verdict is Verdict.REHEARSAL_PASSED
    assert run.exit_code == 0
    assert len(runs.lines) == 2
    assert findings(run) == []
    assert launches.kernels, "the watch on processes sees a kernel when there is one"
    assert {path.name for path in run.path.iterdir()} == {
        "notebook.ipynb", "report.html", "evidence", "manifest.json", "manifest.sha256",
    }  # fmt: skip
    assert [folder.final for folder in find_runs(runs.archive)] == [run.path]
    assert list(find_unfinished(runs.archive)) == []
    listed = (run.path / "../../index.html").resolve()
    assert f"{run.path.parent.name}/{run.path.name}/report.html" in listed.read_text(encoding="utf-8")


def test_without_apply_the_run_stops_green_after_its_dry_run(runs: Runs) -> None:
    run = runs()
    assert run.conclusion.verdict is Verdict.DRY_RUN_ONLY
    assert run.exit_code == 0
    assert runs.lines == []
    assert findings(run) == []


def test_a_failed_gate_is_exit_code_3(runs: Runs) -> None:
    run = runs(**ACTING, comparisons_min=2)
    assert run.conclusion.verdict is Verdict.FAILED
    assert run.exit_code == 3
    assert [gate.key for gate in run.conclusion.gates if not gate.passed] == ["comparisons_per_family"]
    assert findings(run) == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"lnies": 1}, RunbookReason.ParameterUnknown),
        ({"lines": "1"}, RunbookReason.ParameterMistyped),
        ({"lines": 6}, RunbookReason.ParameterMistyped),
        ({"confirm": "mongodb://root:hunter22@db.example/"}, RunbookReason.ParameterSecret),
        ({"api_token": "x"}, RunbookReason.ParameterSecret),
        ({"apply": True}, RunbookReason.ConfirmationMissing),
        ({"apply": True, "confirm": "review-production"}, RunbookReason.ConfirmationMissing),
    ],
)
def test_bad_parameters_are_refused_before_a_kernel_or_a_folder_exists(
    runs: Runs, launches: Launches, given: dict[str, Any], reason: RunbookReason
) -> None:
    with pytest.raises(Refusal) as refused:
        runs(**given)
    assert refused.value.reason is reason
    assert launches.seen == []
    assert not runs.archive.exists()


def test_a_run_that_cannot_be_anchored_as_required_leaves_no_folder(
    runs: Runs, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATLIB__EVIDENCE__ANCHOR", "required")
    runs.settings = load_settings()
    with pytest.raises(Refusal) as refused:
        runs()
    assert refused.value.reason is RunbookReason.AnchorMissing
    assert launches.kernels == []
    assert not runs.archive.exists()


def test_a_deployment_that_does_not_answer_is_waited_for_once_and_leaves_no_folder(
    runs: Runs, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dead,) = free_ports(1)
    monkeypatch.setenv("STATLIB__MONGO__URI", f"mongodb://127.0.0.1:{dead}/?replicaSet=rs0")
    patience_ms: list[int] = []

    def opened(*where: Any, **how: Any) -> MongoClient[dict[str, Any]]:
        patience_ms.append(how["serverSelectionTimeoutMS"])
        return MongoClient(*where, **how)

    monkeypatch.setattr(connection, "MongoClient", opened)
    runs.settings = load_settings()
    with pytest.raises(Refusal) as refused:
        runs(**ACTING)
    assert refused.value.reason is MongoReason.ServerUnreachable
    assert refused.value.detail == f"no primary reached at mongodb://127.0.0.1:{dead}"
    assert patience_ms == [round(SERVER_WAIT_S * 1000)]
    assert launches.kernels == []
    assert not runs.archive.exists()


def test_a_missing_parameter_is_refused_before_a_kernel_exists(runs: Runs, launches: Launches) -> None:
    with pytest.raises(Refusal, match="no value for effects") as refused:
        parse_parameters(runs.runbook.parameters, {})
    assert refused.value.reason is RunbookReason.ParameterMissing
    assert launches.seen == []


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"tags": ()}, "0 cells tagged"),
        ({"parameters": "apply = False\nconfirm = ''\neffects = ''\nlines = 1"}, "lacks comparisons_min"),
        ({"parameters": "apply = False\nconfirm = ''\neffects = ''\nlnies = 1\ncomparisons_min = 1"}, "has lnies"),
    ],
)
def test_a_notebook_whose_parameters_cell_is_not_the_models_is_refused(
    runs: Runs, launches: Launches, write_notebook: WriteNotebook, changed: dict[str, Any], complaint: str
) -> None:
    write_notebook(**changed)
    with pytest.raises(Refusal, match=complaint) as refused:
        runs()
    assert refused.value.reason is RunbookReason.NotebookMalformed
    assert launches.seen == []


@pytest.mark.parametrize(
    ("cell", "verdict", "exit_code", "cause"),
    [
        ("1 / 0", Verdict.FAULT, 6, "ZeroDivisionError"),
        ("import os; os.kill(os.getpid(), 9)", Verdict.INTERRUPTED, 5, "the kernel died"),
        ("import os; os._exit(0)", Verdict.INTERRUPTED, 5, "the kernel died"),
        ("import sys; sys.exit(0)", Verdict.INTERRUPTED, 5, "SystemExit in code cell 5"),
        ("from statlib.runbook.reasons import RunbookReason as R\nfrom statlib.kernel.refusals import Refusal\n"
         "raise Refusal(R.RunBusy, 'elsewhere')", Verdict.REFUSED, 4, "RunBusy"),
    ],
)  # fmt: skip
def test_a_notebook_that_ends_early_is_kept_with_the_reason(
    runs: Runs, write_notebook: WriteNotebook, cell: str, verdict: Verdict, exit_code: int, cause: str
) -> None:
    write_notebook(PREFLIGHT_CELL, cell, ACT_CELL, MEASURE_CELL, CLOSE_CELL)
    run = runs(**ACTING)
    assert (run.conclusion.verdict, run.exit_code) == (verdict, exit_code)
    assert run.conclusion.halted is not None
    assert run.conclusion.halted.cause == cause
    assert cause in (run.path / "report.html").read_text(encoding="utf-8")
    assert findings(run) == []
    assert runs.lines == []


def test_a_step_that_refuses_is_exit_code_4_and_names_its_reason(runs: Runs) -> None:
    run = runs(**ACTING, lines=4)
    assert (run.conclusion.verdict, run.exit_code) == (Verdict.REFUSED, 4)
    assert run.conclusion.halted is not None
    assert run.conclusion.halted.cause == "TooManyLines"
    assert run.conclusion.halted.at_step == "append"
    assert run.conclusion.halted.remedy == "Empty the file first."
    assert findings(run) == []


def test_a_refusal_that_the_notebook_swallows_is_still_a_refusal(runs: Runs, write_notebook: WriteNotebook) -> None:
    swallowed = f"try:\n    {ACT_CELL.splitlines()[0]}\nexcept Exception:\n    pass"
    write_notebook(PREFLIGHT_CELL, swallowed, CLOSE_CELL)
    run = runs(**ACTING, lines=4)
    assert (run.conclusion.verdict, run.exit_code) == (Verdict.REFUSED, 4)


def test_a_notebook_that_never_closes_its_run_is_incomplete(runs: Runs, write_notebook: WriteNotebook) -> None:
    write_notebook(PREFLIGHT_CELL, ACT_CELL, MEASURE_CELL)
    run = runs(**ACTING)
    assert (run.conclusion.verdict, run.exit_code) == (Verdict.INTERRUPTED, 5)


def test_what_the_executed_notebook_says_of_each_cell_is_what_the_kernel_said(
    runs: Runs, write_notebook: WriteNotebook
) -> None:
    write_notebook(PREFLIGHT_CELL, "import os; os.kill(os.getpid(), 9)", ACT_CELL, MEASURE_CELL, CLOSE_CELL)
    run = runs(**ACTING)
    notebook: Any = nbformat.read(run.path / "notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    statuses = [cell.metadata.papermill.status for cell in notebook.cells if cell.cell_type == "code"]
    assert statuses == ["completed"] * 4 + ["pending"] * 4


def test_the_time_limit_stops_a_running_cell(runs: Runs, write_notebook: WriteNotebook) -> None:
    write_notebook(PREFLIGHT_CELL, "import threading; threading.Event().wait(60)", CLOSE_CELL)
    run = runs(timeout_s=6)
    assert (run.conclusion.verdict, run.exit_code) == (Verdict.INTERRUPTED, 5)
    assert run.conclusion.halted is not None
    assert run.conclusion.halted.cause == "the time limit"
    assert findings(run) == []


def test_a_cell_that_ignores_the_interruption_is_killed_and_leaves_no_process(
    runs: Runs, write_notebook: WriteNotebook, tmp_path: Path
) -> None:
    started = tmp_path / "child"
    stubborn = (
        "import os, pathlib, signal, subprocess\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        f"_ = pathlib.Path({str(started)!r} + '.part').write_text(str(child.pid))\n"
        f"os.replace({str(started)!r} + '.part', {str(started)!r})\n"
        "child.wait()"
    )
    write_notebook(PREFLIGHT_CELL, stubborn, CLOSE_CELL)
    stop = threading.Thread(target=_terminate_once, args=(started.exists,))
    stop.start()
    run = runs()
    stop.join(60)
    assert not stop.is_alive()
    assert run.exit_code == 5
    assert run.conclusion.halted is not None
    assert run.conclusion.halted.cause == "SIGTERM"
    child = int(started.read_text(encoding="ascii"))
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("then", "exit_code"), [("", 0), ("; import os; os.kill(os.getpid(), 9)", 5)])
def test_a_process_that_a_cell_left_behind_does_not_outlive_the_run(
    runs: Runs, write_notebook: WriteNotebook, tmp_path: Path, then: str, exit_code: int
) -> None:
    orphan = (
        "import pathlib, subprocess\nchild = subprocess.Popen(['sleep', '300'])\n"
        f"_ = pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid)){then}"
    )
    write_notebook(PREFLIGHT_CELL, orphan, ACT_CELL, MEASURE_CELL, CLOSE_CELL)
    run = runs(**ACTING)
    assert run.exit_code == exit_code
    child = int((tmp_path / "child").read_text(encoding="ascii"))
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_kernel_that_cannot_start_is_a_fault_that_says_its_last_words(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "ipykernel_launcher.py").write_text("raise SystemExit('no kernel today')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{broken}:{REPOSITORY}")
    run = runs(**ACTING)
    assert (run.conclusion.verdict, run.exit_code) == (Verdict.FAULT, 6)
    assert run.conclusion.halted is not None
    assert "no kernel today" in run.conclusion.halted.detail
    assert findings(run) == []


def test_sigterm_stops_the_cell_saves_the_report_and_exits_5(
    tiny: Runbook, write_notebook: WriteNotebook, tmp_path: Path
) -> None:
    waiting = f"open({str(tmp_path / 'waiting')!r}, 'w').close(); import threading; threading.Event().wait(120)"
    write_notebook(PREFLIGHT_CELL, waiting, CLOSE_CELL)
    command = [sys.executable, "-c", "from statlib.cli.main import main; main()", "runbook", "run", "tiny"]
    command += ["-p", f"effects={tmp_path / 'effects.txt'}", "--archive", str(tmp_path / "reports"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _until((tmp_path / "waiting").exists)
        process.send_signal(signal.SIGTERM)
        answer, said = process.communicate(timeout=60)
    assert process.returncode == 5
    assert said.startswith("remedy: ")
    run = json.loads(answer)
    assert (run["verdict"], run["halted"]["cause"]) == ("interrupted", "SIGTERM")
    assert [str(finding) for finding in verify(Path(run["path"])).findings] == []


def test_a_run_whose_executor_was_killed_is_resumed_without_repeating_its_effect(
    tiny: Runbook, runs: Runs, write_notebook: WriteNotebook, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait_once = (
        f"import pathlib, threading; gate = pathlib.Path({str(gate)!r}); seen = gate.exists(); gate.touch()\n"
        "_ = None if seen else threading.Event().wait(120)"
    )
    write_notebook(PREFLIGHT_CELL, ACT_CELL, wait_once, MEASURE_CELL, CLOSE_CELL)
    command = [sys.executable, "-c", "from statlib.cli.main import main; main()", "runbook", "run", "tiny"]
    command += ["-p", f"effects={runs.effects}", "-p", "apply=true", "-p", "confirm=review-tests"]
    command += ["--archive", str(runs.archive)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _until(gate.exists)
        process.kill()
    assert len(runs.lines) == 1, "the partial state: the effect happened"
    (unfinished,) = find_unfinished(runs.archive)
    assert list(find_runs(runs.archive)) == []

    run = runs(**ACTING, resume=unfinished.run_id)
    assert run.run_id == unfinished.run_id
    assert run.conclusion.verdict is Verdict.REHEARSAL_PASSED
    assert len(runs.lines) == 1
    assert "Done before" in (run.path / "notebook.ipynb").read_text(encoding="utf-8")
    assert findings(run) == []


def test_a_run_is_not_resumed_with_other_parameters_nor_while_it_is_under_way(runs: Runs) -> None:
    folder = new_run(runs.archive, "tiny")
    with Journal(folder.journal) as journal:
        other = parse_parameters(runs.runbook.parameters, {"effects": "elsewhere"})
        open_record(journal, folder, other, runs.settings, offline=False)
    with pytest.raises(Refusal) as refused:
        runs(resume=folder.run_id)
    assert refused.value.reason is RunbookReason.RunDiffers
    with hold_run(folder), pytest.raises(Refusal) as refused:
        runs(resume=folder.run_id)
    assert refused.value.reason is RunbookReason.RunBusy
    with pytest.raises(Refusal) as refused:
        runs(resume="0" * 12)
    assert refused.value.reason is RunbookReason.RunNotFound


def _terminate_once(holds: Callable[[], bool]) -> None:
    _until(holds)
    os.kill(os.getpid(), signal.SIGTERM)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "waited 60 s in vain"
        pause.wait(0.05)
