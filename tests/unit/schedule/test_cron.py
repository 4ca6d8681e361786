"""Quartz expressions, held to an oracle that knows no calendar search: it tries every second, or every day."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statlib.kernel.refusals import Refusal
from statlib.schedule.cron import QuartzCron
from statlib.schedule.reasons import ScheduleReason

SECOND = timedelta(seconds=1)
NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def quartz_weekday(moment: datetime) -> int:
    return moment.isoweekday() % 7 + 1


def last_day(moment: datetime) -> int:
    return calendar.monthrange(moment.year, moment.month)[1]


@dataclass(frozen=True)
class Part:
    """A field's text, and what Quartz says that it means for a moment."""

    text: str
    holds: Callable[[datetime], bool]


def numbers(low: int, high: int, names: Sequence[str], value: Callable[[datetime], int]) -> st.SearchStrategy[Part]:
    number = st.integers(low, high)

    def shown(one: int, named: bool) -> str:
        return names[one - low] if names and named else str(one)

    def single(one: int, named: bool) -> Part:
        return Part(shown(one, named), lambda moment: value(moment) == one)

    def span(first: int, last: int, named: bool) -> Part:
        inside = (
            (lambda moment: first <= value(moment) <= last)
            if first <= last
            else (lambda moment: value(moment) >= first or value(moment) <= last)
        )
        return Part(f"{shown(first, named)}-{shown(last, named)}", inside)

    def stepped(first: int, step: int) -> Part:
        return Part(f"{first}/{step}", lambda moment: value(moment) >= first and (value(moment) - first) % step == 0)

    def every(step: int) -> Part:
        return Part(f"*/{step}", lambda moment: (value(moment) - low) % step == 0)

    def both(one: Part, two: Part) -> Part:
        return Part(f"{one.text},{two.text}", lambda moment: one.holds(moment) or two.holds(moment))

    item = (
        st.builds(single, number, st.booleans())
        | st.builds(span, number, number, st.booleans())
        | st.builds(stepped, number, st.integers(1, high))
        | st.builds(every, st.integers(1, high))
    )
    return st.just(Part("*", lambda moment: True)) | item | st.builds(both, item, item)


def special_days() -> st.SearchStrategy[Part]:
    def weekday_at_end(moment: datetime) -> bool:
        rest = [moment + timedelta(days=ahead) for ahead in range(1, last_day(moment) - moment.day + 1)]
        return moment.isoweekday() <= 5 and all(later.isoweekday() > 5 for later in rest)

    return st.sampled_from([Part("L", lambda moment: moment.day == last_day(moment)), Part("LW", weekday_at_end)])


def special_weekdays() -> st.SearchStrategy[Part]:
    def last(day: int) -> Part:
        return Part(f"{day}L", lambda moment: quartz_weekday(moment) == day and moment.day > last_day(moment) - 7)

    def nth(day: int, which: int) -> Part:
        return Part(
            f"{NAMES[day - 1]}#{which}",
            lambda moment: quartz_weekday(moment) == day and (moment.day - 1) // 7 + 1 == which,
        )

    days = st.integers(1, 7)
    saturday = Part("L", lambda moment: quartz_weekday(moment) == 7)
    return st.builds(last, days) | st.builds(nth, days, st.integers(1, 5)) | st.just(saturday)


SECONDS = numbers(0, 59, (), lambda moment: moment.second)
MINUTES = numbers(0, 59, (), lambda moment: moment.minute)
HOURS = numbers(0, 23, (), lambda moment: moment.hour)
DAYS = numbers(1, 31, (), lambda moment: moment.day) | special_days()
MONTH = numbers(1, 12, MONTHS, lambda moment: moment.month)
WEEKDAYS = numbers(1, 7, NAMES, quartz_weekday) | special_weekdays()
ANY = Part("?", lambda moment: True)
DAY_FIELDS = st.tuples(DAYS, MONTH, st.just(ANY)) | st.tuples(st.just(ANY), MONTH, WEEKDAYS)
YEARS = st.just(()) | st.tuples(
    st.integers(1970, 2090).map(lambda year: Part(str(year), lambda moment: moment.year == year))
    | st.integers(2000, 2030).map(lambda year: Part(f"{year}/3", lambda m: m.year >= year and (m.year - year) % 3 == 0))
)
MOMENTS = st.datetimes(utc(2019, 12, 1).replace(tzinfo=None), utc(2033, 3, 2).replace(tzinfo=None)).map(
    lambda moment: moment.replace(tzinfo=UTC)
)
# 29 February, month ends, year ends and the hours at which European and American clocks change.
EDGES = st.sampled_from(
    [utc(2024, 2, 28, 23, 59, 59), utc(2023, 2, 28, 23, 59, 58), utc(2096, 2, 28, 23), utc(2025, 12, 31, 23, 59, 59),
     utc(2026, 3, 29, 0, 59, 59), utc(2026, 10, 25, 1), utc(2026, 3, 8, 6, 59, 59), utc(2026, 4, 30, 23, 59)]
)  # fmt: skip
WINDOW_S = 3600


@given(SECONDS, MINUTES, DAY_FIELDS, MOMENTS | EDGES)
@settings(max_examples=40, deadline=None)
def test_slots_of_an_expression_are_the_seconds_that_quartz_names(
    second: Part, minute: Part, days: tuple[Part, Part, Part], start: datetime
) -> None:
    start = start.replace(microsecond=0)
    parts = [second, minute, Part("*", lambda moment: True), *days]
    expected = [
        moment
        for ahead in range(1, WINDOW_S + 1)
        if all(part.holds(moment := start + ahead * SECOND) for part in parts)
    ]
    cron = parsed(parts)
    until = start + WINDOW_S * SECOND
    if cron is None:
        assert expected == []
        return
    assert cron.count(start, until) == len(expected)
    assert cron.latest(start, until, 40) == tuple(expected[-40:])
    assert walked(cron, start, until, 40) == expected[:40]


@given(HOURS, DAY_FIELDS, YEARS, MOMENTS | EDGES)
@example(Part("0", lambda m: m.hour == 0), (Part("29", lambda m: m.day == 29), Part("2", lambda m: m.month == 2), ANY),
         (Part("2028", lambda m: m.year == 2028),), utc(2024, 3, 1))  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_days_and_years_of_an_expression_are_those_that_quartz_names(
    hour: Part, days: tuple[Part, Part, Part], years: tuple[Part, ...], start: datetime
) -> None:
    start = start.replace(minute=0, second=0, microsecond=0)
    zero = Part("0", lambda moment: True)
    parts = [zero, zero, hour, *days, *years]
    hours = 24 * 366 * 2
    expected = [
        moment
        for ahead in range(1, hours + 1)
        if all(part.holds(moment := start + timedelta(hours=ahead)) for part in parts)
    ]
    cron = parsed(parts)
    until = start + timedelta(hours=hours)
    if cron is None:
        assert expected == []
        return
    assert cron.count(start, until) == len(expected)
    assert cron.latest(start, until, 20) == tuple(expected[-20:])
    assert walked(cron, start, until, 20) == expected[:20]


def parsed(parts: Sequence[Part]) -> QuartzCron | None:
    """None: it is refused for having no slot at all, which the oracle must then confirm."""
    try:
        return QuartzCron.parse(" ".join(part.text for part in parts))
    except Refusal as refusal:
        if "no such day" in refusal.detail or "bad day-of-month" in refusal.detail:
            return None
        raise


def walked(cron: QuartzCron, after: datetime, until: datetime, at_most: int) -> list[datetime]:
    found: list[datetime] = []
    slot = cron.next_after(after)
    while slot is not None and slot <= until and len(found) < at_most:
        found.append(slot)
        slot = cron.next_after(slot)
    return found


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("0 30 2 * * ?", utc(2026, 3, 29, 0), utc(2026, 3, 29, 2, 30)),  # an hour that local clocks skip
        ("0 30 2 * * ?", utc(2026, 3, 29, 2, 30), utc(2026, 3, 30, 2, 30)),
        ("0 0 0 L * ?", utc(2024, 2, 1), utc(2024, 2, 29)),
        ("0 0 0 L * ?", utc(2023, 2, 1), utc(2023, 2, 28)),
        ("0 0 0 L * ?", utc(2100, 2, 1), utc(2100, 2, 28)),
        ("0 0 0 LW * ?", utc(2026, 5, 1), utc(2026, 5, 29)),
        ("0 0 0 31 * ?", utc(2026, 3, 31), utc(2026, 5, 31)),
        ("0 0 0 29 2 ?", utc(2096, 3, 1), utc(2104, 2, 29)),
        ("0 0 0 ? * 6L", utc(2026, 1, 1), utc(2026, 1, 30)),
        ("0 0 0 ? * MON#1", utc(2026, 1, 1), utc(2026, 1, 5)),
        ("0 0 0 ? * FRI-MON", utc(2026, 1, 5), utc(2026, 1, 9)),
        ("0 0 0 1 NOV-FEB ?", utc(2026, 2, 1), utc(2026, 11, 1)),
        ("0 0 9-17/4 * * *", utc(2026, 1, 1, 9), utc(2026, 1, 1, 13)),
        ("0/20 * * * * ?", utc(2026, 1, 1), utc(2026, 1, 1, 0, 0, 20)),
        ("0 0 0 1 1 ? 2030", utc(2026, 1, 1), utc(2030, 1, 1)),
    ],
)
def test_next_slots_by_example(text: str, after: datetime, expected: datetime) -> None:
    cron = QuartzCron.parse(text)
    if expected.year > 2099:
        assert cron.next_after(after) is None, "Quartz ends with 2099"
        return
    assert cron.next_after(after) == expected
    assert cron.last_until(expected) == expected
    assert cron.last_until(expected - SECOND) != expected


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("30 2 * * *", "has 5 fields, not 6 or 7"),
        ("0 30 2 * * ? 2026 1", "has 8 fields, not 6 or 7"),
        ("60 * * * * ?", "second: '60' is not 0 to 59"),
        ("0 60 * * * ?", "minute: '60' is not 0 to 59"),
        ("0 0 24 * * ?", "hour: '24' is not 0 to 23"),
        ("0 0 0 32 * ?", "day of month: '32' is not 1 to 31"),
        ("0 0 0 1 13 ?", "month: '13' is not 1 to 12"),
        ("0 0 0 ? * 0", "day of week: '0' is not 1 to 7"),
        ("0 0 0 ? * 8", "day of week: '8' is not 1 to 7"),
        ("0 0 0 ? * MON#6", "day of week"),
        ("0 0 0 1 1 ? 1969", "year: '1969' is not 1970 to 2099"),
        ("0 0 0 1 1 ? 2030-2020", "year: '2030-2020' runs backwards"),
        ("0 0/0 * * * ?", "minute: '0/0' has no step"),
        ("0 1,,2 * * * ?", "minute: '' is not"),
        ("0 -5 * * * ?", "minute: '' is not"),
        ("0 0 0 1 * MON", "exactly one of day of month and day of week must be `?`"),
        ("0 0 0 ? * ?", "exactly one of day of month and day of week must be `?`"),
        ("0 0 0 15W * ?", "'15W' is not supported"),
        ("0 0 0 L-3 * ?", "'L-3' is not supported"),
        ("0 0 0 30 2 ?", "bad day-of-month"),
        ("0 0 0 29 2 ? 2025", "no such day in any of its years"),
    ],
)
def test_a_wrong_expression_is_refused_with_the_field_and_the_reason(text: str, detail: str) -> None:
    with pytest.raises(Refusal) as refused:
        QuartzCron.parse(text)
    assert refused.value.reason is ScheduleReason.CronInvalid
    assert detail in refused.value.detail
    assert repr(text) in refused.value.detail


def test_a_year_of_seconds_is_counted_without_being_walked() -> None:
    assert QuartzCron.parse("* * * * * ?").count(utc(2024, 1, 1), utc(2025, 1, 1)) == 366 * 86_400
