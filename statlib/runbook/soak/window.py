"""The window under load: savers and observers together, and what is captured of them.

Invariant: no thread of a window outlives it, however it ends; a save under way is finished first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import AwareDatetime, BaseModel

from statlib.evidence import soak_captures as soak
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Fault
from statlib.review.loading.review import DecisionEvent
from statlib.review.screening_writer import ScreeningWriter
from statlib.runbook.fragments import KeyValues, Progress, Quantity
from statlib.runbook.run import Run
from statlib.runbook.soak import observers as observe
from statlib.runbook.soak.captured import DISTURBANCES, PROGRESS, REBUILDS, Disturbances
from statlib.runbook.soak.savers import Rows, Savers
from statlib.runbook.soak.schedule import Schedule
from statlib.statistics.hosts import Host

STORAGE_EVERY_S = 1.0
SHOW_EVERY_S = 1.0
PRIMARY_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Load:
    """How the window is driven. Intervals in seconds, 0: never; ``rate_per_s`` 0: as fast as possible."""

    workers: int
    rate_per_s: float
    duration_s: float
    read_every_s: float
    parity_every_s: float
    rebuild_every_s: float
    patience_s: float
    families: tuple[str, ...]


class WindowSummary(BaseModel):
    """What the window came to."""

    started_at: AwareDatetime
    ended_at: AwareDatetime
    seconds: float
    events: int
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
                ("decisions replayed", self.events),
                ("confirmed", self.confirmed),
                ("of these, resubmitted", self.resubmitted),
                ("lost", self.lost),
                ("observations put off", put_off or "none"),
            )
        )


Show = Callable[[Progress], None]
OpenRows = Callable[[str], Rows]  # by the name of their capture


def run_window(
    run: Run[Any], host: Host, project: UUID, events: Sequence[DecisionEvent], *, load: Load, show: Show
) -> WindowSummary:
    """Replay all events and observe for at least ``duration_s``. Raises Fault when a thread died of one.

    Interrupting it stops every thread at its next step; a save under way is finished, so no lease or envelope is lost.
    """
    clock, began, started_at = run.settings.time, time.monotonic(), run.client.server_time()
    offset_ms = clock.offset_ms
    schedule = Schedule(events, load.rate_per_s)
    with ExitStack() as captures:

        def rows(name: str) -> Rows:
            return captures.enter_context(run.captures.lines(name))

        writer = ScreeningWriter(host, project)
        savers = Savers(writer, schedule, _numbered(events), rows(soak.OPERATIONS), patience_s=load.patience_s)
        with _observed(run, host, project, load, rows) as around, _saving(savers, schedule, load.workers) as saving:
            while saving() or time.monotonic() - began < load.duration_s:
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
        events=schedule.total,
        confirmed=savers.confirmed,
        resubmitted=savers.resubmitted,
        lost=savers.lost,
        disturbances=around.disturbances,
    )


def _numbered(events: Sequence[DecisionEvent]) -> dict[int, int]:
    """The place of each event in the replay, by its number in the record."""
    return {event.seq: place for place, event in enumerate(sorted(events, key=lambda event: event.seq))}


@contextmanager
def _observed(run: Run[Any], host: Host, project: UUID, load: Load, rows: OpenRows) -> Iterator[observe.Observers]:
    """Everything that is looked at beside the savers, for the length of the block."""
    client, around = run.client, observe.Observers()
    parity = observe.parity(client, project, load.families, rows(soak.PARITY))
    rebuilds = observe.rebuilds(client, project, load.families, rows(REBUILDS))
    try:
        around.every(load.read_every_s, "reads", observe.reads(host, project, rows(soak.READS), rows(PROGRESS)))
        around.every(load.parity_every_s, "parity", parity)
        around.every(STORAGE_EVERY_S, "storage", observe.storage(client, rows(soak.STORAGE)))
        around.every(load.rebuild_every_s, "rebuilds", rebuilds)
        around.every(PRIMARY_EVERY_S, "primary", observe.primary(host, run.note))
        yield around
    finally:
        around.stop()


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
    return Progress("Decisions confirmed", savers.confirmed, schedule.total, "decisions", rate, remaining_s, waiting)


def _raise_first(failures: list[BaseException]) -> None:
    if failures:
        raise Fault("a thread of the soak died", remedy="See the cause above.") from failures[0]
