"""A run that an operator drives by hand, in JupyterLab or another front end.

The same cells as headless. Here the run makes its own folder, and its ``close`` keeps the notebook (``keeping``),
derives the verdict and seals.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.getipython import get_ipython

from statlib.evidence.entries import EntryKind
from statlib.evidence.journal import read_journal
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.runbook.archive import RunFolder, archive_folder, find_unfinished, new_run
from statlib.runbook.catalogue import Runbook
from statlib.runbook.conclusion import Ending
from statlib.runbook.fragments import Code, Fragment, GateTable, KeyValues, StatusLine
from statlib.runbook.holding import Hold, hold_run
from statlib.runbook.look.verdicts import look_of
from statlib.runbook.opening import open_record
from statlib.runbook.parameters import RunbookParameters, plain_parameters
from statlib.runbook.redaction import open_journal
from statlib.runbook.signing import signing_key

if TYPE_CHECKING:
    from statlib.runbook.run import Run
    from statlib.runbook.sealing import EndedRun


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
    from statlib.runbook.keeping import keep_notebook  # noqa: PLC0415 - needed once, at the end, as is sealing
    from statlib.runbook.sealing import end_run  # noqa: PLC0415

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


succeeded: dict[int, bool] = {}
"""Of this kernel's executions since a run was opened in it, by number: whether the cell ended without an error."""


def _note_how_cells_end() -> None:
    shell: Any = get_ipython()
    if shell is not None and _note_how_a_cell_ended not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _note_how_a_cell_ended)


def _note_how_a_cell_ended(result: Any) -> None:
    succeeded[int(result.execution_count or 0)] = bool(result.success)


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
