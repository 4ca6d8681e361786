"""The same notebook driven by hand: a kernel without papermill, as JupyterLab runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from statlib.evidence.verify import verify
from statlib.runbook.archive import find_runs, find_unfinished
from statlib.runbook.catalogue import Runbook
from tests.notebooks.conftest import (
    ACT_CELL,
    BEGIN_CELL,
    CLOSE_CELL,
    MEASURE_CELL,
    PREFLIGHT_CELL,
    WriteNotebook,
)


class ByHand:
    """Opens ``tiny.ipynb`` in a kernel and executes its cells, with parameters as an operator would type them."""

    def __init__(self, folder: Path, write_notebook: WriteNotebook) -> None:
        self.archive = folder / "reports"
        self.effects = folder / "effects.txt"
        self._write = write_notebook

    def __call__(self, *cells: str, lines: int = 1, apply: bool = True) -> list[str]:
        """Returns what the cells showed as plain text, in order; a cell that raised shows its error."""
        parameters = f'apply = {apply}\nconfirm = "review-tests"\neffects = {str(self.effects)!r}\nlines = {lines}\n'
        path = self._write(*cells, parameters=parameters + "comparisons_min = 1")
        notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        config = Config({"KernelManager": {"transport": "ipc"}})
        NotebookClient(notebook, kernel_name="python3", config=config, allow_errors=True).execute()
        return [_text(output) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]

    @property
    def lines(self) -> list[str]:
        return self.effects.read_text(encoding="utf-8").splitlines() if self.effects.exists() else []


def _text(output: Any) -> str:
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return str(output.text if output.output_type == "stream" else output.data["text/plain"])


@pytest.fixture
def by_hand(tiny: Runbook, write_notebook: WriteNotebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ByHand:
    monkeypatch.setenv("STATLIB_ARCHIVE", str(tmp_path / "reports"))
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "runbooks" / "tiny.ipynb"))
    return ByHand(tmp_path, write_notebook)


def test_closing_by_hand_seals_a_run_that_verifies(by_hand: ByHand) -> None:
    shown = by_hand(PREFLIGHT_CELL, ACT_CELL, MEASURE_CELL, CLOSE_CELL)
    assert shown[-1].startswith("Rehearsal passed")
    (folder,) = find_runs(by_hand.archive)
    assert [str(finding) for finding in verify(folder.final).findings] == []
    assert list(find_unfinished(by_hand.archive)) == []


def test_a_run_that_is_refused_as_it_begins_leaves_no_folder(by_hand: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATLIB__EVIDENCE__ANCHOR", "required")
    (begun,) = [text for text in by_hand("1") if "AnchorMissing" in text]
    assert "no deployment is configured" in begun
    assert not by_hand.archive.exists()


def test_without_a_notebook_file_the_bundle_says_that_its_notebook_is_made_from_the_history(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME")
    by_hand(PREFLIGHT_CELL, ACT_CELL, MEASURE_CELL, CLOSE_CELL)
    (folder,) = find_runs(by_hand.archive)
    assert "No notebook file was found" in folder.notebook.read_text(encoding="utf-8")
    assert [str(finding) for finding in verify(folder.final).findings] == []


def test_a_saved_cell_that_was_not_executed_is_refused_until_it_is_sealed_as_it_is(by_hand: ByHand) -> None:
    edit = (
        "import nbformat, os\nfile = os.environ['JPY_SESSION_NAME']\nsaved = nbformat.read(file, as_version=4)\n"
        "saved.cells.append(nbformat.v4.new_code_cell('1 + 1'))\nnbformat.write(saved, file)"
    )
    shown = by_hand(PREFLIGHT_CELL, ACT_CELL, MEASURE_CELL, edit, CLOSE_CELL, "run.close(as_it_is=True)")
    assert (
        "Refused: NotebookBehind: the saved cell that begins 'run.close(as_it_is=True)' was not executed" in shown[-2]
    )
    assert "Traceback" not in shown[-2]
    assert shown[-1].startswith("Interrupted: 1 cell was not executed")
    (folder,) = find_runs(by_hand.archive)
    assert [str(finding) for finding in verify(folder.final).findings] == []


@pytest.mark.parametrize("count", ["1", "saved.cells[at].execution_count"], ids=["an earlier count", "the same count"])
def test_what_a_cell_showed_before_its_last_execution_is_left_out(by_hand: ByHand, count: str) -> None:
    """As after an interruption: saved with its error, run again from the top, closed."""
    edit = (
        "import nbformat, os\nfile = os.environ['JPY_SESSION_NAME']\nsaved = nbformat.read(file, as_version=4)\n"
        "at = next(n for n, cell in enumerate(saved.cells) if 'tiny.append' in cell.source)\n"
        "error = nbformat.v4.new_output('error', ename='KeyboardInterrupt', evalue='', traceback=[])\n"
        f"saved.cells[at].outputs, saved.cells[at].execution_count = [error], {count} or 4\nnbformat.write(saved, file)"
    )
    by_hand(PREFLIGHT_CELL, ACT_CELL, edit, MEASURE_CELL, CLOSE_CELL)
    (folder,) = find_runs(by_hand.archive)
    assert [str(finding) for finding in verify(folder.final).findings] == []
    assert "an earlier execution's output, which was left out" in folder.journal.read_text(encoding="utf-8")


def test_after_its_kernel_ended_the_notebook_goes_on_where_it_was(by_hand: ByHand) -> None:
    by_hand(PREFLIGHT_CELL, ACT_CELL)
    assert len(by_hand.lines) == 1
    shown = by_hand(PREFLIGHT_CELL, ACT_CELL, MEASURE_CELL, CLOSE_CELL)
    assert sum(text.startswith("Done before") for text in shown) == 2
    assert len(by_hand.lines) == 1
    (folder,) = find_runs(by_hand.archive)
    assert [str(finding) for finding in verify(folder.final).findings] == []


def test_running_the_first_cell_again_finds_the_run_that_is_open(by_hand: ByHand) -> None:
    shown = by_hand(PREFLIGHT_CELL, BEGIN_CELL, "run.step('preflight', tiny.preflight)")
    assert shown[-1].startswith("Done before")
    assert len(list(find_unfinished(by_hand.archive))) == 1


def test_other_parameters_start_another_run(by_hand: ByHand) -> None:
    by_hand(PREFLIGHT_CELL, "lines = 2", BEGIN_CELL, ACT_CELL)
    assert len(list(find_unfinished(by_hand.archive))) == 2


def test_a_refusal_is_shown_in_two_lines_without_a_traceback(by_hand: ByHand) -> None:
    shown = by_hand(PREFLIGHT_CELL, ACT_CELL, lines=4)
    assert shown[-1] == "Refused: TooManyLines: 4 lines\nEmpty the file first."
