"""The window under load: savers and observers together, and what is captured of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import AwareDatetime, BaseModel

from statlib.evidence import soak_captures as soak
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Fault
from statlib.review.loading.review import DecisionEvent
from statlib.review.writer import ScreeningWriter
from statlib.runbook.fragments import KeyValues, Progress, Quantity
from statlib.runbook.run import Run
from statlib.runbook.soak import observers as observe
from statlib.runbook.soak.savers import Rows, Savers
from statlib.runbook.soak.schedule import Schedule
from statlib.statistics.hosts import Host

PROGRESS, REBUILDS, DISTURBANCES, NOT_LOADED = "progress", "rebuilds", "disturbances", "not_loaded"
STORAGE_EVERY_S = 1.0
SHOW_EVERY_S = 1.0
PRIMARY_EVERY_S = 0.2


class ProgressRow(BaseModel):
    """Studies of each screening class, as a bundle read them."""

    at: AwareDatetime
    studies: dict[str, int]


class RebuildRow(BaseModel):
    """One forced backfill under load: scopes published after so many lost races, or the refusal's reason."""

    at: AwareDatetime
    family: str
    took_ms: float
    published: int
    races_lost: int
    reason: str | None


class NotLoaded(BaseModel):
    """Rows of an export that could not be read: how many, and the first of them with their reasons."""

    rows: int
    named: list[str]

    def lines(self) -> tuple[str, ...]:
        more = self.rows - len(self.named)
        return (*self.named, *([f"and {plural(more, 'row')} more"] if more else []))


class Disturbances(BaseModel):
    """What could not be observed when it was due, by observer and reason."""

    counts: dict[str, int]


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


def run_window(  # noqa: PLR0917 - called once, by the soak's own step
    run: Run[Any], host: Host, project: UUID, events: Sequence[DecisionEvent], load: Load, show: Show
) -> WindowSummary:
    """Replay all events and observe for at least ``duration_s``. Raises Fault when a thread died of one.

    Interrupting it stops every thread at its next step; a save under way is finished, so no lease or envelope is lost.
    """
    client, captures = run.client, run.captures
    numbers = {event.seq: number for number, event in enumerate(sorted(events, key=lambda event: event.seq))}
    clock, began, started_at = run.settings.time, time.monotonic(), client.server_time()
    offset_ms = clock.offset_ms
    with ExitStack() as stack:

        def rows(name: str) -> Rows:
            return stack.enter_context(captures.lines(name))

        schedule = Schedule(events, load.rate_per_s)
        savers = Savers(
            ScreeningWriter(host, project), schedule, numbers, rows(soak.OPERATIONS), patience_s=load.patience_s
        )
        around = observe.Observers()
        reads = observe.reads(host, project, rows(soak.READS), rows(PROGRESS))
        around.every(load.read_every_s, "reads", reads)
        around.every(load.parity_every_s, "parity", observe.parity(client, project, load.families, rows(soak.PARITY)))
        around.every(STORAGE_EVERY_S, "storage", observe.storage(client, rows(soak.STORAGE)))
        rebuilds = observe.rebuilds(client, project, load.families, rows(REBUILDS))
        around.every(load.rebuild_every_s, "rebuilds", rebuilds)
        around.every(PRIMARY_EVERY_S, "primary", observe.primary(host, run.note))
        threads = savers.start(load.workers)
        try:
            while any(thread.is_alive() for thread in threads) or time.monotonic() - began < load.duration_s:
                if savers.failures or around.failures:
                    break
                show(_progress(savers, schedule, time.monotonic() - began, load))
                around.stopped.wait(SHOW_EVERY_S)
        finally:
            schedule.stop()
            for thread in threads:
                thread.join()
            around.stop()
    _raise_first([*savers.failures, *around.failures])
    ended_at = client.server_time()
    seconds = time.monotonic() - began
    offset_ms = max(offset_ms, clock.offset_ms)
    window = soak.Window(started_at=started_at, ended_at=ended_at, monotonic_s=seconds, clock_offset_ms=offset_ms)
    captures.write(soak.WINDOW, window)
    captures.write(soak.REFUSALS, soak.Refusals(capacity_refused=around.capacity_refused))
    captures.write(DISTURBANCES, Disturbances(counts=around.disturbances))
    for what, count in around.disturbances.items():
        run.note(f"{what}: {count} observations put off")
    return WindowSummary(
        started_at=started_at,
        ended_at=ended_at,
        seconds=round(seconds, 3),
        events=schedule.total,
        confirmed=savers.confirmed,
        resubmitted=savers.resubmitted,
        lost=savers.lost,
        disturbances=around.disturbances,
    )


def receipts_since(run: Run[Any], project: UUID, since: datetime) -> int:
    """Capture every receipt observed since then. Returns how many."""
    found = 0
    with run.captures.lines(soak.RECEIPTS) as rows:
        for receipt in run.client.receipts(project, since, run.client.server_time()):
            rows.append(
                soak.ReceiptRow(
                    namespace=receipt.namespace,
                    operation_id=receipt.operation_id,
                    expected=receipt.expected,
                    before=receipt.before,
                    after=receipt.after,
                    digest=receipt.digest,
                )
            )
            found += 1
    return found


def _progress(savers: Savers, schedule: Schedule, seconds: float, load: Load) -> Progress:
    rate = savers.confirmed / seconds if seconds else None
    left = max(schedule.total - savers.confirmed, 0)
    remaining_s = max(left / rate if rate else 0.0, load.duration_s - seconds)
    waiting = "" if left else "the window's end"
    return Progress("Decisions confirmed", savers.confirmed, schedule.total, "decisions", rate, remaining_s, waiting)


def _raise_first(failures: list[BaseException]) -> None:
    if failures:
        raise Fault("a thread of the soak died", remedy="See the cause above.") from failures[0]
