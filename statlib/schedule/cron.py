"""Quartz cron expressions, in UTC.

What Quartz writes differently is translated here and nothing else: the calendar is searched by cronsim. Every
field is spelled out as a list of numbers first, because the dialects disagree on ranges and steps (Quartz counts
Sunday as 1, lets ranges wrap, and starts ``a/n`` at ``a``). Source: the Quartz documentation of CronExpression.

Supported: six or seven fields; ``* ? , - /``; names; ``L`` and ``LW`` as day of month; ``nL``, ``n#k`` and ``L``
(Saturday) as day of week. Refused with CronInvalid: ``nW`` and ``L-n``, and two restricted day fields, which
Quartz refuses too.
"""

from __future__ import annotations

import calendar
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import takewhile

from cronsim import CronSim, CronSimError

from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Refusal
from statlib.schedule.reasons import ScheduleReason

YEAR_MIN, YEAR_MAX = 1970, 2099  # the years that Quartz accepts
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # their numbers count from ``low``

    def number(self, text: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.low
        if not re.fullmatch(r"\d{1,4}", text) or not self.low <= int(text) <= self.high:
            raise _wrong(self.name, f"{text!r} is not {self.low} to {self.high}")
        return int(text)


_SECONDS = _Field("second", 0, 59)
_MINUTES = _Field("minute", 0, 59)
_HOURS = _Field("hour", 0, 23)
_DAYS = _Field("day of month", 1, 31)
_MONTHS = _Field("month", 1, 12, tuple(name.upper() for name in calendar.month_abbr[1:]))
_WEEKDAYS = _Field("day of week", 1, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
_YEARS = _Field("year", YEAR_MIN, YEAR_MAX)


@dataclass(frozen=True)
class QuartzCron:
    """A validated expression. Slots are aware UTC times of whole seconds, and strictly increase."""

    text: str
    _seconds: tuple[int, ...]
    _minutes: tuple[int, ...]
    _hours: tuple[int, ...]
    _days: str
    _months: str
    _weekdays: str
    _years: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> QuartzCron:
        """Refuses CronInvalid, naming the field; also an expression that has no slot in any year."""
        fields = text.upper().split()
        if len(fields) not in (6, 7):
            raise Refusal(ScheduleReason.CronInvalid, f"{text!r} has {plural(len(fields), 'field')}, not 6 or 7")
        try:
            cron = cls(
                text,
                _numbers(_SECONDS, fields[0]),
                _numbers(_MINUTES, fields[1]),
                _numbers(_HOURS, fields[2]),
                *_day_fields(fields[3], fields[5], _numbers(_MONTHS, fields[4])),
                _numbers(_YEARS, fields[6] if len(fields) == 7 else "*"),
            )
            cron._search(datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise Refusal(ScheduleReason.CronInvalid, f"{text!r}: {str(error).lower()}") from error
        except Refusal as refusal:
            raise Refusal(ScheduleReason.CronInvalid, f"{text!r}: {refusal.detail}") from refusal
        if cron.next_after(datetime(YEAR_MIN, 1, 1, tzinfo=UTC) - _SECOND) is None:
            raise Refusal(ScheduleReason.CronInvalid, f"{text!r}: no such day in any of its years")
        return cron

    def next_after(self, moment: datetime) -> datetime | None:
        """The first slot strictly after ``moment``; None if there is none."""
        after = moment
        for year in self._years[max(0, bisect_right(self._years, moment.year - 1)) :]:
            after = max(moment, datetime(year, 1, 1, tzinfo=UTC) - _SECOND)
            if (found := next(self._search(after), None)) is None:
                return None
            if found.year in self._years_set:
                return found
        return None

    def last_until(self, moment: datetime) -> datetime | None:
        """The last slot at or before ``moment``; None if there is none."""
        for year in reversed(self._years[: bisect_right(self._years, moment.year)]):
            until = min(moment.replace(microsecond=0), datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC))
            if (found := next(self._search(until + _SECOND, reverse=True), None)) is None:
                return None
            if found.year in self._years_set:
                return found
        return None

    def latest(self, after: datetime, until: datetime, at_most: int) -> tuple[datetime, ...]:
        """The last slots of (``after``, ``until``], at most ``at_most`` of them, in order."""
        found: list[datetime] = []
        slot = self.last_until(until)
        while slot is not None and slot > after and len(found) < at_most:
            found.append(slot)
            slot = self.last_until(slot - _SECOND)
        return tuple(reversed(found))

    def count(self, after: datetime, until: datetime) -> int:
        """How many slots (``after``, ``until``] has, exactly; its cost grows with the days that have one."""
        if until <= after:
            return 0
        return self._count_until(until, since=after) - self._of_day_until(after)

    def _count_until(self, until: datetime, *, since: datetime) -> int:
        """Slots from the start of the day of ``since`` until ``until``."""
        first, last = _midnight(since), _midnight(until)
        whole = sum(1 for _ in takewhile(lambda day: day < last, self._matching_days(first)))
        return whole * len(self._of_day) + self._of_day_until(until)

    def _of_day_until(self, moment: datetime) -> int:
        """Slots of this day at or before ``moment``."""
        midnight = _midnight(moment)
        if next(self._matching_days(midnight), None) != midnight:
            return 0
        return bisect_right(self._of_day, int((moment - midnight).total_seconds()))

    def _matching_days(self, first: datetime) -> Iterator[datetime]:
        """Midnights, from ``first`` on, of the days that have slots."""
        days = QuartzCron("", (0,), (0,), (0,), self._days, self._months, self._weekdays, self._years)
        day = days.next_after(first - _SECOND)
        while day is not None:
            yield day
            day = days.next_after(day)

    @cached_property
    def _of_day(self) -> tuple[int, ...]:
        """Seconds since midnight of a day's slots."""
        of_hours = (hour * 3600 for hour in self._hours)
        of_minutes = (hour + minute * 60 for hour in of_hours for minute in self._minutes)
        return tuple(minute + second for minute in of_minutes for second in self._seconds)

    @cached_property
    def _years_set(self) -> frozenset[int]:
        return frozenset(self._years)

    def _search(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        times = (",".join(map(str, numbers)) for numbers in (self._seconds, self._minutes, self._hours))
        return CronSim(" ".join((*times, self._days, self._months, self._weekdays)), start, reverse=reverse)


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _numbers(field: _Field, text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for item in text.split(","):
        found |= _item(field, item)
    return tuple(sorted(found))


def _item(field: _Field, item: str) -> set[int]:
    base, slash, step_text = item.partition("/")
    if slash and not re.fullmatch(r"[1-9]\d{0,3}", step_text):
        raise _wrong(field.name, f"{item!r} has no step")
    step = int(step_text) if slash else 1
    low_text, dash, high_text = base.partition("-")
    if base == "*" or (slash and base == ""):
        low, high = field.low, field.high
    else:
        low = field.number(low_text)
        high = field.number(high_text) if dash else (field.high if slash else low)
    if high >= low:
        return set(range(low, high + 1, step))
    if field is _YEARS:
        raise _wrong(field.name, f"{base!r} runs backwards")
    size = field.high - field.low + 1  # a range such as FRI-MON goes round
    return {(number - field.low) % size + field.low for number in range(low, high + size + 1, step)}


def _day_fields(days: str, weekdays: str, months: tuple[int, ...]) -> tuple[str, str, str]:
    """Both day fields and the months as cronsim writes them."""
    if (days == "?") == (weekdays == "?"):
        if days == "?" or "*" not in (days, weekdays):
            raise _wrong("day fields", "exactly one of day of month and day of week must be `?`")
        days, weekdays = ("?", weekdays) if days == "*" else (days, "?")
    month_text = ",".join(map(str, months))
    day_text = "*" if days in {"?", "*"} else ",".join(_day(item) for item in days.split(","))
    week_text = "*" if weekdays in {"?", "*"} else ",".join(_weekday(item) for item in weekdays.split(","))
    return day_text, month_text, week_text


def _day(item: str) -> str:
    if item in {"L", "LW"}:
        return item
    if item.startswith("L-") or item.endswith("W"):
        raise _wrong(_DAYS.name, f"{item!r} is not supported; use L, LW or a number")
    return ",".join(str(number) for number in sorted(_item(_DAYS, item)))


def _weekday(item: str) -> str:
    if item == "L":
        return "6"
    if match := re.fullmatch(r"(\w+?)(L|#([1-5]))", item):
        day, special, nth = match[1], match[2], match[3]
        number = _WEEKDAYS.number(day) - 1
        return f"{number}L" if special == "L" else f"{number}#{nth}"
    return ",".join(str(number - 1) for number in sorted(_item(_WEEKDAYS, item)))


def _wrong(field: str, why: str) -> Refusal:
    return Refusal(ScheduleReason.CronInvalid, f"{field}: {why}")
