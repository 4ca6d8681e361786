"""Headless runs of a real notebook in a real kernel: what they leave behind, and what they exit with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import verify
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.runbook.archive import find_runs, find_unfinished
from statlib.runbook.catalogue import Runbook
from statlib.runbook.execution import run_headless
from statlib.runbook.parameters import parse_parameters
from statlib.runbook.reasons import RunbookReason
from statlib.runbook.sealing import EndedRun
from tests.notebooks.conftest import (
    ACT_CELL,
    CLOSE_CELL,
    MEASURE_CELL,
    PREFLIGHT_CELL,
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
