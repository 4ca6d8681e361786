"""A run that an operator drives by hand, in JupyterLab or another front end.

The same cells as headless. Here the run makes its own folder, and its ``close`` derives the verdict and seals.
The kernel's input history says which cells executed; the notebook is the file as it was last saved, because
that is what the front end gives anybody to read. Where there is none to be found, the bundle's notebook is
made from the history, and says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from IPython.core.getipython import get_ipython

from statlib.evidence.entries import EntryKind
from statlib.evidence.journal import Journal, read_journal
from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.runbook.archive import RunFolder, archive_folder, find_unfinished, new_run
from statlib.runbook.catalogue import Runbook
from statlib.runbook.conclusion import Ending
from statlib.runbook.fragments import Code, Fragment, GateTable, KeyValues, StatusLine
from statlib.runbook.holding import Hold, hold_run
from statlib.runbook.look.quantities import plural
from statlib.runbook.look.verdicts import look_of
from statlib.runbook.opening import open_record
from statlib.runbook.parameters import RunbookParameters, plain_parameters
from statlib.runbook.reasons import RunbookReason
from statlib.runbook.redaction import open_journal
from statlib.runbook.signing import signing_key

if TYPE_CHECKING:
    from statlib.runbook.run import Run
    from statlib.runbook.sealing import EndedRun

_NO_FILE = (
    "No notebook file was found beside this run. These are the cells that its kernel executed, in order, without "
    "their outputs."
)


def take_up(runbook: Runbook, parameters: RunbookParameters, settings: Settings) -> tuple[RunFolder, Hold]:
    """The newest unfinished run of this runbook with exactly these parameters that nobody holds, else a new one.

    So a notebook that is run again after its kernel died goes on where it was.
    """
    _note_how_cells_end()
    signing_key(settings)
    archive = archive_folder()
    plain = plain_parameters(parameters)
    for folder in find_unfinished(archive, runbook=runbook.name):
        if (hold := _held_if_alike(folder, plain)) is not None:
            return _recorded(folder, hold, parameters, settings, offline=runbook.offline)
    folder = new_run(archive, runbook.name)
    try:
        return _recorded(folder, hold_run(folder), parameters, settings, offline=runbook.offline)
    except Refusal:
        folder.withdraw()
        raise


def close_by_hand(run: Run[Any], *, as_it_is: bool) -> Ended:
    """Keep the notebook, derive the verdict, seal and publish. Refuses NotebookBehind, and has then changed nothing."""
    from statlib.runbook.sealing import end_run  # noqa: PLC0415 - needed once, at the end

    unexecuted = keep_notebook(run.folder, run.journal, as_it_is=as_it_is)
    run.journal.append(EntryKind.Note, text="The notebook closed its run.", closing=True)
    ended = end_run(
        run.runbook, run.folder, run.parameters, run.journal, Ending(unexecuted=unexecuted), settings=run.settings
    )
    run.leave()
    return Ended(ended)


@dataclass(frozen=True, repr=False)
class Ended(Fragment):
    """What the last cell shows: the verdict, the gates, and where the report is."""

    run: EndedRun

    def html(self) -> str:
        return "".join(part.html() for part in self._parts())

    def text(self) -> str:
        return "\n".join(part.text() for part in self._parts())

    def _parts(self) -> Iterator[Fragment]:
        conclusion = self.run.conclusion
        cause = conclusion.halted.cause if conclusion.halted else ""
        words = conclusion.verdict.value
        yield StatusLine(look_of(conclusion.verdict).shape, words[:1].upper() + words[1:], cause)
        if conclusion.gates:
            yield GateTable(conclusion.gates)
        yield KeyValues((("report", Code(str(self.run.path / "report.html"))),), one_column=True)


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
        if cell.execution_count != count or (raised and _succeeded.get(count) is True):
            cell.outputs, cell.execution_count = [], None
            stale += 1
    return stale


_succeeded: dict[int, bool] = {}
"""Of this kernel's executions since a run was opened in it, by number: whether the cell ended without an error."""


def _note_how_cells_end() -> None:
    shell: Any = get_ipython()
    if shell is not None and _note_how_a_cell_ended not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _note_how_a_cell_ended)


def _note_how_a_cell_ended(result: Any) -> None:
    _succeeded[int(result.execution_count or 0)] = bool(result.success)


def notebook_file() -> Path | None:
    """The notebook that this kernel belongs to, as the front end names it; None if it does not or there is no file."""
    shell = get_ipython()
    named = [os.environ.get("JPY_SESSION_NAME"), shell.user_ns.get("__vsc_ipynb_file__") if shell else None]
    for name in named:
        if isinstance(name, str) and name.endswith(".ipynb") and (path := Path(name)).is_file():
            return path
    return None


def _recorded(
    folder: RunFolder, hold: Hold, parameters: RunbookParameters, settings: Settings, *, offline: bool
) -> tuple[RunFolder, Hold]:
    try:
        with open_journal(folder.journal, settings) as journal:
            open_record(journal, folder, parameters, settings, offline=offline)
    except BaseException:
        hold.release()
        raise
    return folder, hold


def _held_if_alike(folder: RunFolder, parameters: object) -> Hold | None:
    """None: it has other parameters, somebody drives it, or its journal cannot be read."""
    with contextlib.suppress(Refusal):
        if _parameters_on_record(folder) == parameters:
            return hold_run(folder)
    return None


def _parameters_on_record(folder: RunFolder) -> object:
    entries = read_journal(folder.journal)
    return entries[0].data["parameters"] if entries and entries[0].kind is EntryKind.RunStarted else None


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
