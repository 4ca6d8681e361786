"""The first lines of a run's journal: what was started, by whom, with what."""

from __future__ import annotations

import getpass
import socket

from statlib.evidence.entries import EntryKind
from statlib.evidence.journal import Journal
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.runbook.anchoring import anchor_start
from statlib.runbook.archive import RunFolder
from statlib.runbook.parameters import RunbookParameters, may_act, plain_parameters
from statlib.runbook.reasons import RunbookReason


def open_record(
    journal: Journal, folder: RunFolder, parameters: RunbookParameters, settings: Settings, *, offline: bool
) -> None:
    """Put the run's start on record, or its resumption. Refuses RunDiffers if it was started with other parameters,
    and what ``anchor_start`` refuses."""
    plain = plain_parameters(parameters)
    started = next((entry for entry in journal.entries if entry.kind is EntryKind.RunStarted), None)
    if started is None:
        journal.append(
            EntryKind.RunStarted,
            runbook=folder.runbook,
            run_id=folder.run_id,
            parameters=plain,
            apply=may_act(parameters),
            deployment=settings.deployment,
            clock_offset_ms=journal.clock_offset_ms,
            principal=f"{getpass.getuser()} on {socket.gethostname()}",
        )
    elif started.data["parameters"] != plain:
        raise Refusal(RunbookReason.RunDiffers, f"run {folder.run_id} was started with other parameters")
    else:
        journal.append(EntryKind.Note, text="resumed after its process died")
    anchor_start(journal, folder, settings, offline=offline)
