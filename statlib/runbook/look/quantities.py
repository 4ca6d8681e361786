"""Numbers, durations, sizes and times as people read them.

True minus sign, commas between thousands, no-break space before a unit, ISO dates in UTC, the two largest
units of a duration. A rounded measurement never contradicts its comparison: ``decimals_that_agree`` adds
digits until what is shown compares as the values themselves do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from math import floor, isfinite, log10

NBSP = "\u00a0"
MINUS = "\u2212"
DECIMALS_MAX = 9


def number(value: float, decimals: int | None = None) -> str:
    """``1,234``, ``0.31``, ``−2.5``: three significant digits where ``decimals`` is not given."""
    if not isfinite(value):
        return "not a number" if value != value else ("∞" if value > 0 else f"{MINUS}∞")  # noqa: PLR0124
    if decimals is None:
        decimals = natural_decimals(value)
    shown = f"{round(value, decimals) + 0.0:,.{decimals}f}" if decimals else f"{round(value):,}"
    return shown.replace("-", MINUS)


def natural_decimals(value: float) -> int:
    """Enough for three significant digits, without zeros that say nothing; none from 100 upwards."""
    if not isfinite(value) or value == int(value) or abs(value) >= 100:
        return 0
    enough = min(DECIMALS_MAX, max(0, 2 - floor(log10(abs(value)))))
    shown = f"{value:.{enough}f}".rstrip("0")
    return len(shown.partition(".")[2])


def decimals_that_agree(measured: float, threshold: float, holds: Callable[[float, float], bool]) -> int:
    """As few decimals as show both values and the same answer to ``holds(measured, threshold)``."""
    fewest = min(3, max(natural_decimals(measured), natural_decimals(threshold)))
    truth = holds(measured, threshold)
    for decimals in range(fewest, DECIMALS_MAX):
        if holds(round(measured, decimals), round(threshold, decimals)) == truth:
            return decimals
    return DECIMALS_MAX


def with_unit(value: float, unit: str, decimals: int | None = None) -> str:
    return f"{number(value, decimals)}{NBSP}{unit}" if unit else number(value, decimals)


def duration(seconds: float) -> str:
    """The two largest units: ``7 d 00 h``, ``2 min 05 s``, ``41 s``, ``0.42 s``, ``3.1 ms``."""
    if seconds < 0:
        return MINUS + duration(-seconds)
    if seconds < 1:
        return (
            with_unit(seconds * 1000, "ms") if 0 < seconds < 0.1 else with_unit(seconds, "s", 0 if not seconds else 2)
        )
    if seconds < 10:
        return with_unit(seconds, "s", 0 if seconds == int(seconds) else 1)
    whole = round(seconds)
    for size, unit, lesser, lesser_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            more, rest = divmod(round(whole / lesser), size // lesser)
            return f"{more}{NBSP}{unit} {rest:02d}{NBSP}{lesser_unit}".replace(" ", NBSP)
    return f"{whole}{NBSP}s"


def each(seconds: float) -> str:
    """An interval after the word *each*: ``second``, ``5 min 00 s``."""
    return "second" if seconds == 1 else duration(seconds)


def size(count: float) -> str:
    """Bytes in binary units: ``412 KiB``, ``9.4 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return with_unit(count, unit, 0 if unit == "B" or abs(count) >= 100 else 1)
        count /= 1024
    raise AssertionError("unreachable")


def instant(at: datetime, *, seconds: bool = False) -> str:
    """``2026-03-09 05:48`` in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def plural(count: int, singular: str, several: str = "") -> str:
    """``1 gate``, ``2 gates``."""
    return f"{number(count)}{NBSP}{singular if count == 1 else several or singular + 's'}"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def grouped(digest: str, by: int = 8) -> tuple[str, ...]:
    """A long hexadecimal digest in groups that the eye can compare."""
    return tuple(digest[i : i + by] for i in range(0, len(digest), by))
