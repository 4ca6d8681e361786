"""Keeping the notebook of a run by hand: which of its cells the kernel executed, and what each showed.

The kernel's input history says which cells executed; the notebook is the file as it was last saved, because
that is what the front end gives anybody to read. Where there is none to be found, the bundle's notebook is
made from the history, and says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from IPython.core.getipython import get_ipython

from statlib.evidence.entries import EntryKind
from statlib.evidence.journal import Journal
from statlib.kernel.refusals import Fault, Refusal
from statlib.runbook.archive import RunFolder
from statlib.runbook.interactive import notebook_file, succeeded
from statlib.runbook.look.quantities import plural
from statlib.runbook.reasons import RunbookReason

_NO_FILE = (
    "No notebook file was found beside this run. These are the cells that its kernel executed, in order, without "
    "their outputs."
)


def keep_notebook(folder: RunFolder, journal: Journal, *, as_it_is: bool) -> int:
    """Put the notebook into the run's folder and its executed cells on record. Returns how many were not executed.

    Refuses NotebookBehind if the saved file holds a cell that this kernel did not execute as it stands there,
    unless ``as_it_is``.
    """
    history_of_kernel = _history()
    executed = [source for source in history_of_kernel if source.strip()]
    file = notebook_file()
    notebook = _from_history(executed) if file is None else _saved(file)
    history = {_sha256(source) for source in executed}
    cells = [
        (index, cell) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()
    ]
    missing = [cell for _, cell in cells if _sha256(cell.source) not in history]
    if missing and not as_it_is:
        first, *_ = missing[0].source.strip().splitlines()
        raise Refusal(RunbookReason.NotebookBehind, f"the saved cell that begins {first!r} was not executed")
    for index, cell in cells:
        if (sha256 := _sha256(cell.source)) in history:
            journal.append(EntryKind.CellExecuted, cell=cell.id, sha256=sha256, index=index)
    saved = "made from the kernel's history" if file is None else "the file as last saved"
    journal.append(EntryKind.Note, text=f"notebook.ipynb is {saved}; cells were matched to the kernel's history.")
    if stale := _drop_stale_outputs([cell for _, cell in cells], history_of_kernel):
        text = f"{plural(stale, 'cell')} had been saved with an earlier execution's output, which was left out."
        journal.append(EntryKind.Note, text=text)
    nbformat.write(notebook, folder.notebook)  # type: ignore[no-untyped-call]
    return len(missing)


def _drop_stale_outputs(cells: Sequence[Any], history: Sequence[str]) -> int:
    """Take away what a cell showed before its last execution: a file saved in between still holds it. Returns of how
    many cells. An execution after which the kernel counts on is the last; an error that it did not raise is stale."""
    last = {_sha256(source): count for count, source in enumerate(history)}
    stale = 0
    for cell in cells:
        count = last.get(_sha256(cell.source))
        if count is None or not cell.outputs:
            continue
        raised = any(output.output_type == "error" for output in cell.outputs)
        if cell.execution_count != count or (raised and succeeded.get(count) is True):
            cell.outputs, cell.execution_count = [], None
            stale += 1
    return stale


def _history() -> Sequence[str]:
    shell = get_ipython()
    if shell is None:
        raise Fault("a run is closed in the notebook that opened it", remedy="Use `statlib runbook run` outside one.")
    history: Any = shell.history_manager
    return list(history.input_hist_raw)


def _saved(file: Path) -> Any:
    notebook: Any = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    if any("id" not in cell for cell in notebook.cells):
        raise Refusal(RunbookReason.NotebookMalformed, f"{file.name} has cells without ids (nbformat before 4.5)")
    return notebook


def _from_history(executed: Sequence[str]) -> Any:
    notebook: Any = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    notebook.cells = [nbformat.v4.new_markdown_cell(_NO_FILE)]  # type: ignore[no-untyped-call]
    for source in executed:
        notebook.cells.append(nbformat.v4.new_code_cell(source))  # type: ignore[no-untyped-call]
    return notebook


def _sha256(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8")).hexdigest()
