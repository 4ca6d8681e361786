"""Headless execution: one runbook, one set of parameters, one sealed run.

Everything that can be refused is refused before a kernel exists. After that, whatever happens ends in a
sealed folder whose verdict is derived from evidence: ``conclusion`` decides it, not papermill.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat

from statlib.evidence.entries import EntryKind
from statlib.evidence.journal import Journal
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.runbook import engine
from statlib.runbook.archive import find_unfinished_run, new_run
from statlib.runbook.catalogue import Runbook
from statlib.runbook.conclusion import Ending
from statlib.runbook.confirmation import require_confirmation
from statlib.runbook.holding import hold_run
from statlib.runbook.opening import open_record
from statlib.runbook.parameters import RunbookParameters, plain_parameters
from statlib.runbook.reasons import RunbookReason
from statlib.runbook.redaction import open_journal
from statlib.runbook.run import RUN_FOLDER_VARIABLE
from statlib.runbook.sealing import EndedRun, end_run
from statlib.runbook.signing import signing_key

PARAMETERS_TAG = "parameters"
_ASSIGNED = re.compile(r"^(?P<name>[A-Za-z_]\w*)\s*(:[^=]+)?=", re.MULTILINE)


def run_headless(
    runbook: Runbook,
    parameters: RunbookParameters,
    *,
    settings: Settings,
    archive: Path,
    timeout_s: float | None = None,
    stop_grace_s: float = engine.STOP_GRACE_S,
    resume: str | None = None,
) -> EndedRun:
    """Execute the runbook's notebook and archive the run.

    ``timeout_s`` bounds the whole execution. ``resume`` is the id of an unfinished run of this runbook, one whose
    process died: its closed steps are not repeated. Refuses NotebookMalformed, ConfirmationMissing, KeyUnusable,
    AnchorMissing, RunNotFound, RunDiffers, RunBusy and, as ServerUnreachable or the like, a deployment that does not
    answer, all before a kernel is started; a refusal leaves no folder.
    """
    check_notebook(runbook)
    require_confirmation(runbook, parameters, settings)
    signing_key(settings)
    folder = find_unfinished_run(archive, runbook.name, resume) if resume else new_run(archive, runbook.name)
    with hold_run(folder), open_journal(folder.journal, settings) as journal:
        try:
            open_record(journal, folder, parameters, settings, offline=runbook.offline)
        except Refusal:
            if resume is None:
                folder.withdraw()
            raise
        happened = engine.execute(
            runbook.path,
            folder.notebook,
            plain_parameters(parameters),
            environment={RUN_FOLDER_VARIABLE: str(folder.working)},
            observers=engine.Observers(
                declared=lambda cells: None,
                executed=lambda cell: _record_cell(journal, cell),
            ),
            timeout_s=timeout_s,
            stop_grace_s=stop_grace_s,
        )
        with engine.signals_held():
            return end_run(runbook, folder, parameters, journal, ending_of(happened), settings=settings)


def check_notebook(runbook: Runbook) -> None:
    """Refuses NotebookMalformed unless one cell is tagged ``parameters`` and assigns exactly the model's names."""
    try:
        notebook: Any = nbformat.read(runbook.path, as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise Refusal(RunbookReason.NotebookMalformed, f"{runbook.path} is not a notebook") from error
    if any("id" not in cell for cell in notebook.cells):
        raise Refusal(
            RunbookReason.NotebookMalformed, f"{runbook.path.name} has cells without ids (nbformat before 4.5)"
        )
    tagged = [cell for cell in notebook.cells if PARAMETERS_TAG in cell.metadata.get("tags", [])]
    if len(tagged) != 1 or tagged[0].cell_type != "code":
        raise Refusal(
            RunbookReason.NotebookMalformed,
            f"{runbook.path.name} has {len(tagged)} cells tagged {PARAMETERS_TAG}; one code cell must be",
        )
    assigned = {match["name"] for match in _ASSIGNED.finditer(tagged[0].source)}
    declared = set(runbook.parameters.model_fields)
    if assigned != declared:
        lacking, foreign = sorted(declared - assigned), sorted(assigned - declared)
        parts = [f"lacks {', '.join(lacking)}"] * bool(lacking) + [f"has {', '.join(foreign)}"] * bool(foreign)
        raise Refusal(
            RunbookReason.NotebookMalformed,
            f"the parameters cell of {runbook.path.name} {' and '.join(parts)}, unlike {runbook.parameters.__name__}",
        )


def ending_of(happened: engine.KernelRun) -> Ending:
    """The kernel's account as the conclusion takes it."""
    error = happened.error
    places = {cell.cell_id: place for place, cell in enumerate(happened.declared, start=1)}
    next_cell = happened.unexecuted[0].cell_id if happened.unexecuted else ""
    return Ending(
        unexecuted=len(happened.unexecuted),
        stopped_by=happened.stopped.value if happened.stopped else "",
        kernel_died=happened.kernel_died,
        error_name=error.error_name if error else "",
        error_text=error.error_text if error else "",
        cell=places.get(error.cell_id if error else next_cell, 0),
        fault=happened.fault,
    )


def _record_cell(journal: Journal, cell: engine.CellExecuted) -> None:
    journal.append(
        EntryKind.CellExecuted,
        cell=cell.cell_id,
        sha256=cell.source_sha256,
        index=cell.index,
        error=cell.error_name,
    )
