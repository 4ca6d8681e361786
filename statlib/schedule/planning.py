"""What the slots that fell due since the last look become. Pure.

Of several, only the newest may still run: to run the older ones after it would send the same work again. Every one
of them is recorded; beyond the newest ``RECORDED_MAX``, the rest share one record that says how many they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from statlib.schedule.bounds import RECORDED_MAX
from statlib.schedule.cron import QuartzCron
from statlib.schedule.definitions import Misfire
from statlib.schedule.states import SlotReason, SlotState

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Record:
    """A slot to be recorded; or a range of ``count`` slots from ``first`` to ``last``. ``late``: beyond tolerance."""

    first: datetime
    last: datetime
    count: int
    state: SlotState
    reason: SlotReason | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """The slots in question are those of (``after``, ``until``], by the server's time."""

    after: datetime
    until: datetime


def due(cron: QuartzCron, window: Window, *, misfire: Misfire, tolerance_s: float) -> tuple[Record, ...]:
    """Nothing of this schedule runs: the newest is due unless it is too late for its misfire policy."""
    records = [*all_as(cron, window, SlotState.MISSED, SlotReason.NO_SCHEDULER)]
    if not records:
        return ()
    late = window.until - records[-1].last > timedelta(seconds=tolerance_s)
    if late and misfire is Misfire.SKIP:
        records[-1] = replace(records[-1], late=True)
    else:
        records[-1] = replace(records[-1], state=SlotState.DUE, reason=None, late=late)
    return tuple(records)


def all_as(cron: QuartzCron, window: Window, state: SlotState, reason: SlotReason) -> tuple[Record, ...]:
    """Every slot of the window in one state, oldest first."""
    latest = cron.latest(window.after, window.until, RECORDED_MAX)
    single = tuple(Record(slot, slot, 1, state, reason) for slot in latest)
    if len(latest) < RECORDED_MAX:
        return single
    before = latest[0] - _SECOND
    count = cron.count(window.after, before)
    first, last = cron.next_after(window.after), cron.last_until(before)
    if not count or first is None or last is None:
        return single
    return (Record(first, last, count, state, reason), *single)
