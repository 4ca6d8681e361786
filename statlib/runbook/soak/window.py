"""The window under load: savers and observers together, and what is captured of them.

Invariant: no thread of a window outlives it, however it ends; a save under way is finished first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import AwareDatetime, BaseModel

from statlib.evidence import soak_captures as soak
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Fault
from statlib.runbook.fragments import KeyValues, Progress, Quantity
from statlib.runbook.run import Run
from statlib.runbook.soak import observers as observe
from statlib.runbook.soak.captured import DISTURBANCES, EDITS, PROGRESS, REBUILDS, Disturbances
from statlib.runbook.soak.delivering import Deliverer
from statlib.runbook.soak.editing import Editor
from statlib.runbook.soak.page_reads import ReadMix, everything, page_reads
from statlib.runbook.soak.savers import Rows, Savers
from statlib.runbook.soak.schedule import Schedule
from statlib.runbook.soak.work import Plan
from statlib.statistics.hosts import Host

STORAGE_EVERY_S = 1.0
SHOW_EVERY_S = 1.0
PRIMARY_EVERY_S = 0.2
EVERYTHING_EVERY_S = 1.0
EDIT_EVERY_S = 0.1
PAUSE_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """How the window is driven. Intervals in seconds, 0: never; ``rate_per_s`` 0: as fast as possible."""

    workers: int
    rate_per_s: float
    duration_s: float
    read_every_s: float
    parity_every_s: float
    rebuild_every_s: float
    quiet_every_s: float
    patience_s: float
    families: tuple[str, ...]
    reads: ReadMix
    seed: int


@dataclass(frozen=True, slots=True)
class Replay:
    """What is being replayed, and what hands it out."""

    plan: Plan
    schedule: Schedule
    editor: Editor


class WindowSummary(BaseModel):
    """What the window came to."""

    started_at: AwareDatetime
    ended_at: AwareDatetime
    seconds: float
    events: int
    generated: int
    edits: int
    confirmed: int
    resubmitted: int
    lost: int
    disturbances: dict[str, int]

    def shown(self) -> KeyValues:
        put_off = ", ".join(f"{what} ({count})" for what, count in self.disturbances.items())
        return KeyValues(
            (
                ("from", self.started_at),
                ("to", self.ended_at),
                ("lasted", Quantity(self.seconds, "s")),
                ("events replayed", self.events),
                ("submissions generated beside them", self.generated),
                ("edits of the project", self.edits),
                ("confirmed", self.confirmed),
                ("of these, resubmitted", self.resubmitted),
                ("lost", self.lost),
                ("observations put off", put_off or "none"),
            )
        )


Show = Callable[[Progress], None]
OpenRows = Callable[[str], Rows]  # by the name of their capture


def run_window(run: Run[Any], host: Host, plan: Plan, *, load: Load, show: Show) -> WindowSummary:
    """Do all the work of the plan and observe for at least ``duration_s``. Raises Fault when a thread died of one.

    Interrupting it stops every thread at its next step; a save under way is finished, so no lease or envelope is lost.
    """
    clock, began, started_at = run.settings.time, time.monotonic(), run.client.server_time()
    offset_ms = clock.offset_ms
    schedule = Schedule(plan.work, load.rate_per_s)
    with ExitStack() as captures:

        def rows(name: str) -> Rows:
            return captures.enter_context(run.captures.lines(name))

        project = plan.project.id
        savers = Savers(Deliverer(host, project), schedule, rows(soak.OPERATIONS), patience_s=load.patience_s)
        editor = Editor(host, project, plan.edits, rows(EDITS))
        observed = _observed(run, host, Replay(plan, schedule, editor), load, rows)
        with observed as around, _saving(savers, schedule, load.workers) as saving:
            while saving() or editor.left or time.monotonic() - began < load.duration_s:
                if savers.failures or around.failures:
                    break
                show(_progress(savers, schedule, time.monotonic() - began, load))
                around.stopped.wait(SHOW_EVERY_S)
    _raise_first([*savers.failures, *around.failures])
    window = soak.Window(
        started_at=started_at,
        ended_at=run.client.server_time(),
        monotonic_s=time.monotonic() - began,
        clock_offset_ms=max(offset_ms, clock.offset_ms),
    )
    _capture(run, window, around)
    return WindowSummary(
        started_at=window.started_at,
        ended_at=window.ended_at,
        seconds=round(window.monotonic_s, 3),
        events=plan.recorded,
        generated=plan.generated,
        edits=editor.made,
        confirmed=savers.confirmed,
        resubmitted=savers.resubmitted,
        lost=savers.lost,
        disturbances=around.disturbances,
    )


@contextmanager
def _observed(run: Run[Any], host: Host, around: Replay, load: Load, rows: OpenRows) -> Iterator[observe.Observers]:
    """Everything that goes on beside the savers, for the length of the block."""
    client, observers, project = run.client, observe.Observers(), around.plan.project
    compared, read, rebuilt = rows(soak.PARITY), rows(soak.READS), rows(REBUILDS)
    turn = threading.Lock()
    parity = observe.parity(client, project.id, load.families, compared)
    repair = observe.rebuilds(client, project.id, load.families, rebuilt, turn=turn, force=False)
    rebuild = observe.rebuilds(client, project.id, load.families, rebuilt, turn=turn)
    due = (
        (load.read_every_s, "reads", page_reads(host, project, load.reads, load.seed, read)),
        (EVERYTHING_EVERY_S, "reads", everything(host, project.id, read, rows(PROGRESS))),
        (load.parity_every_s, "parity", parity),
        (load.quiet_every_s, "pauses", observe.pauses(around.schedule, repair, parity, PAUSE_PATIENCE_S)),
        (EDIT_EVERY_S, "edits", observe.edits(around.editor, around.schedule, repair, PAUSE_PATIENCE_S)),
        (STORAGE_EVERY_S, "storage", observe.storage(client, rows(soak.STORAGE))),
        (load.rebuild_every_s, "rebuilds", rebuild),
        (PRIMARY_EVERY_S, "primary", observe.primary(host, run.note)),
    )
    try:
        for seconds, name, what in due:
            observers.every(seconds, name, what)
        yield observers
    finally:
        observers.stop()


@contextmanager
def _saving(savers: Savers, schedule: Schedule, workers: int) -> Iterator[Callable[[], bool]]:
    """The savers at work; what is given tells whether any still is. Leaving the block ends the replay."""
    threads = savers.start(workers)
    try:
        yield lambda: any(thread.is_alive() for thread in threads)
    finally:
        schedule.stop()
        for thread in threads:
            thread.join()


def _capture(run: Run[Any], window: soak.Window, around: observe.Observers) -> None:
    run.captures.write(soak.WINDOW, window)
    run.captures.write(soak.REFUSALS, soak.Refusals(capacity_refused=around.capacity_refused))
    run.captures.write(DISTURBANCES, Disturbances(counts=around.disturbances))
    for what, count in around.disturbances.items():
        run.note(f"{what}: {plural(count, 'observation')} put off")


def _progress(savers: Savers, schedule: Schedule, seconds: float, load: Load) -> Progress:
    rate = savers.confirmed / seconds if seconds else None
    left = max(schedule.total - savers.confirmed, 0)
    remaining_s = max(left / rate if rate else 0.0, load.duration_s - seconds)
    waiting = "" if left else "the window's end"
    return Progress(
        "Submissions confirmed", savers.confirmed, schedule.total, "submissions", rate, remaining_s, waiting
    )


def _raise_first(failures: list[BaseException]) -> None:
    if failures:
        raise Fault("a thread of the soak died", remedy="See the cause above.") from failures[0]
