"""Holds: who may write to a run's folder.

Two are taken, each for the life of a process: one on the working folder, by whoever drives the run (the
executor, or the kernel of a notebook opened by hand), and one on its evidence, by the kernel that takes its
steps. Both are locks of the operating system, so a process that dies gives them back, and a run can be
resumed as soon as nothing that acted for it is alive.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from statlib.kernel.refusals import Refusal
from statlib.runbook.archive import RunFolder
from statlib.runbook.reasons import RunbookReason

ORPHANED_KERNEL_S = 10.0  # a kernel whose executor was killed notices within a second and ends itself
_POLL_S = 0.1


class Hold:
    """An exclusive hold, from now until ``release`` or the end of the process. It survives the folder's renaming.

    Refuses RunBusy if another hold on the same place lasts longer than ``patience_s``.
    """

    def __init__(self, place: Path, *, patience_s: float = 0.0) -> None:
        self._descriptor = os.open(place, os.O_RDONLY)
        deadline = time.monotonic() + patience_s
        while not self._taken():
            if time.monotonic() >= deadline:
                self.release()
                raise Refusal(RunbookReason.RunBusy, f"{place} is held by another process")
            time.sleep(_POLL_S)

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def hold_run(folder: RunFolder) -> Hold:
    """Drive this run. Refuses RunBusy while another process does, or a kernel that an earlier one left lives on."""
    hold = Hold(folder.working)
    try:
        Hold(folder.evidence, patience_s=ORPHANED_KERNEL_S).release()
    except BaseException:
        hold.release()
        raise
    return hold


def hold_steps(folder: RunFolder) -> Hold:
    """Take this run's steps. Refuses RunBusy while another kernel does."""
    return Hold(folder.evidence)
