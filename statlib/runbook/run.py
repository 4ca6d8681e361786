"""The run: what a notebook holds on to, from its first cell to its last.

``begin`` opens it, ``step`` and ``act`` take its steps, ``close`` ends it. Executed headless, the run folder
exists before the kernel does, and whoever executes the notebook derives the verdict and seals the folder;
opened in JupyterLab, the run makes its own folder and ``close`` does both.

Invariant: nothing is acted upon without ``apply=True`` and the name of what is acted upon repeated in
``confirm``; and the parameters on record are those that the notebook really used.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar
from uuid import UUID, uuid5

from statlib.evidence.captures import Captures
from statlib.evidence.entries import EntryKind
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings, load_settings
from statlib.runbook.archive import RunFolder, run_at
from statlib.runbook.catalogue import Runbook, find_runbook
from statlib.runbook.confirmation import require_confirmation
from statlib.runbook.credentials import credentials_in
from statlib.runbook.fragments import Fragment, StatusLine, stylesheet_fragment
from statlib.runbook.holding import Hold, hold_steps
from statlib.runbook.look import shapes
from statlib.runbook.look.quantities import plural
from statlib.runbook.parameters import RunbookParameters, may_act, parse_parameters, plain_parameters
from statlib.runbook.reasons import RunbookReason
from statlib.runbook.redaction import open_journal
from statlib.runbook.refusing import show_refusals_briefly
from statlib.runbook.shell import show
from statlib.runbook.steps import Step, Steps

if TYPE_CHECKING:
    from statlib.admin.client import AdminClient

RUN_FOLDER_VARIABLE = "STATLIB_RUN_FOLDER"  # set for the kernel by whoever executes the notebook headless

_REQUESTS = UUID("0b5c4f0e-6a0e-5c8d-9c55-9d1f0c6d1b52")  # namespace of the request ids of runs

A = ParamSpec("A")
P = TypeVar("P", bound=RunbookParameters)
R = TypeVar("R")


class Run(Generic[P]):
    """One run of a runbook, as its notebook sees it."""

    def __init__(
        self,
        runbook: Runbook,
        folder: RunFolder,
        parameters: P,
        settings: Settings,
        *,
        hold: Hold | None = None,
    ) -> None:
        self.runbook = runbook
        self.folder = folder
        self.parameters = parameters
        self.settings = settings
        self.journal = open_journal(folder.journal, settings)
        self.captures = Captures(folder.evidence, self.journal)
        self._hold = hold
        self._steps_hold = hold_steps(folder)
        self._resources = ExitStack()
        atexit.register(self._resources.close)  # an interrupted kernel still takes its host off the list
        self._steps: Steps[Run[P]] = Steps(self.journal, self, apply=may_act(parameters))

    @property
    def run_id(self) -> str:
        return self.folder.run_id

    def step(
        self, name: str, function: Callable[Concatenate[Run[P], A], R], *args: A.args, **inputs: A.kwargs
    ) -> Step[R]:
        """Call ``function(run, …)`` once in this run's life; see ``Steps.take`` for what it must be like."""
        return self._steps.take(name, function, acting=False, args=args, inputs=inputs)

    def act(
        self, name: str, function: Callable[Concatenate[Run[P], A], R], *args: A.args, **inputs: A.kwargs
    ) -> Step[R]:
        """As ``step``, for what changes something: in a dry run neither it nor any later step is taken."""
        return self._steps.take(name, function, acting=True, args=args, inputs=inputs)

    @cached_property
    def client(self) -> AdminClient:
        """The boundary's client: of the deployment that the settings name, else of an embedded one that lives until
        the run is closed. Opened when it is first asked for."""
        from statlib.admin.embedded import boundary  # noqa: PLC0415 - a runbook that asks nothing needs no server
        from statlib.review.catalogue import REVIEW  # noqa: PLC0415

        return self._resources.enter_context(boundary(load_settings(), REVIEW, run=self.run_id))  # as they are by now

    def request_id(self, step: str) -> str:
        """The same for the same step of the same run, so that a repeated call is known for what it is."""
        return str(uuid5(_REQUESTS, f"{self.run_id}/{step}"))

    def note(self, text: str) -> None:
        """Put a sentence on record."""
        self.journal.append(EntryKind.Note, text=text)

    def opening(self) -> Fragment:
        """What is about to run, where, and whether it may act."""
        taken = sum(entry.kind is EntryKind.StepClosed for entry in self.journal.entries)
        again = f"; taken up again after {plural(taken, 'closed step')}" if taken else ""
        if may_act(self.parameters):
            return StatusLine(shapes.PENDING, "Acting", f"{self.runbook.name} on {self.settings.deployment}{again}")
        return StatusLine(
            shapes.DRY, "Dry run", f"{self.runbook.name} on {self.settings.deployment}; nothing will be changed{again}"
        )

    def _release(self) -> None:
        self._resources.close()
        self.__dict__.pop("client", None)

    def leave(self) -> None:
        """Let go of a run by hand without ending it: it stays unfinished, and can be taken up again."""
        self._release()
        self.journal.close()
        self._steps_hold.release()
        if self._hold is not None:
            self._hold.release()

    def close(self, *, as_it_is: bool = False) -> Fragment:
        """End the run, in the notebook's last cell.

        Headless, the verdict is derived when that cell has executed. By hand it is derived now, the folder is
        sealed, and the run takes nothing more; ``as_it_is`` seals a notebook not all of whose cells were executed.
        Refuses NotebookBehind.
        """
        self._release()
        if self._hold is None:
            self.journal.append(EntryKind.Note, text="The notebook closed its run.", closing=True)
            return StatusLine(
                shapes.PENDING, "Closed", "the verdict is derived from the evidence when the last cell has executed"
            )
        from statlib.runbook.interactive import close_by_hand  # noqa: PLC0415 - headless kernels need none of it

        ended = close_by_hand(self, as_it_is=as_it_is)
        _open.pop(self.runbook.name, None)
        return ended


def begin(name: str, /, **given: Any) -> Run[Any]:
    """Open the run of runbook ``name`` with the values of the notebook's parameters cell.

    Refuses what ``parse_parameters`` and ``require_confirmation`` refuse, and RunDiffers if the notebook uses
    other parameters than those that the run was started with.
    """
    show_refusals_briefly()
    runbook = find_runbook(name)
    settings = load_settings()
    parameters = parse_parameters(runbook.parameters, given, secrets=credentials_in(settings), runbook=name)
    require_confirmation(runbook, parameters, settings)
    run = _open.get(name)
    if run is None or run.parameters != parameters:
        run = _opened(runbook, parameters, settings)
    show(stylesheet_fragment())
    show(run.opening())
    return run


_open: dict[str, Run[Any]] = {}
"""Runs that this kernel opened and has not closed: a first cell that is run again finds its run here."""


def _opened(runbook: Runbook, parameters: RunbookParameters, settings: Settings) -> Run[Any]:
    if (before := _open.pop(runbook.name, None)) is not None:
        before.leave()
    if folder := os.environ.get(RUN_FOLDER_VARIABLE):
        run = _headless(runbook, run_at(Path(folder)), parameters, settings)
    else:
        from statlib.runbook.interactive import take_up  # noqa: PLC0415 - headless kernels need none of it

        place, hold = take_up(runbook, parameters, settings)
        run = Run(runbook, place, parameters, settings, hold=hold)
    _open[runbook.name] = run
    return run


def _headless(runbook: Runbook, folder: RunFolder, parameters: RunbookParameters, settings: Settings) -> Run[Any]:
    run = Run(runbook, folder, parameters, settings)
    started = next((entry for entry in run.journal.entries if entry.kind is EntryKind.RunStarted), None)
    if started is None or started.data["runbook"] != runbook.name:
        raise Refusal(RunbookReason.RunDiffers, f"{folder.path} was not prepared for {runbook.name}")
    if started.data["parameters"] != plain_parameters(parameters):
        raise Refusal(RunbookReason.RunDiffers, "the notebook uses other parameters than the run was given")
    return run
