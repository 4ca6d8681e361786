"""What slots become, for any window: every slot is accounted for once, and at most the newest may run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statlib.schedule.bounds import RECORDED_MAX
from statlib.schedule.cron import QuartzCron
from statlib.schedule.definitions import Misfire
from statlib.schedule.planning import Record, Window, all_as, due
from statlib.schedule.states import SlotReason, SlotState

START = datetime(2026, 3, 1, tzinfo=UTC)
CRON = QuartzCron.parse("0 0/7 * * * ?")
TOLERANCE_S = 60.0


def window(ahead_s: int) -> Window:
    return Window(START, START + timedelta(seconds=ahead_s))


def covered(records: tuple[Record, ...]) -> list[datetime]:
    found: list[datetime] = []
    for record in records:
        of_record = CRON.latest(record.first - timedelta(seconds=1), record.last, 10_000)
        assert len(of_record) == record.count
        found += of_record
    return found


@given(st.integers(0, 3 * 86_400), st.sampled_from(Misfire))
@settings(max_examples=100, deadline=None)
def test_every_slot_is_recorded_exactly_once_and_only_the_newest_may_run(ahead_s: int, misfire: Misfire) -> None:
    records = due(CRON, window(ahead_s), misfire=misfire, tolerance_s=TOLERANCE_S)
    assert covered(records) == list(CRON.latest(START, window(ahead_s).until, 10_000))
    assert [r.state for r in records[:-1]] == [SlotState.MISSED] * len(records[:-1])
    assert all(record.reason is SlotReason.NO_SCHEDULER for record in records[:-1])
    if records:
        newest = records[-1]
        late = window(ahead_s).until - newest.last > timedelta(seconds=TOLERANCE_S)
        assert newest.late is late
        assert (newest.state is SlotState.DUE) is (misfire is Misfire.ONE or not late)


@pytest.mark.parametrize("excess", [-1, 0, 1, 2, 500])
def test_only_slots_beyond_the_bound_share_a_record(excess: int) -> None:
    total = RECORDED_MAX + excess
    records = all_as(CRON, _window_of(total), SlotState.SKIPPED, SlotReason.PREDECESSOR_RUNNING)
    assert sum(record.count for record in records) == total
    assert len(records) == min(total, RECORDED_MAX + 1)
    assert records[0].count == max(1, excess)


def _window_of(slots: int) -> Window:
    until = START
    for _ in range(slots):
        until = CRON.next_after(until) or until
    return Window(START, until)


@pytest.mark.parametrize("misfire", Misfire)
@pytest.mark.parametrize(("late_s", "late"), [(60, False), (61, True)])
def test_a_slot_is_late_beyond_the_tolerance_and_not_at_it(misfire: Misfire, late_s: int, late: bool) -> None:
    first = CRON.next_after(START)
    assert first is not None
    (only,) = due(CRON, Window(START, first + timedelta(seconds=late_s)), misfire=misfire, tolerance_s=TOLERANCE_S)
    assert only.late is late
    assert (only.state is SlotState.MISSED) is (late and misfire is Misfire.SKIP)
