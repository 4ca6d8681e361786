"""Where things stand on a figure: sizes in pixels, shared margins, time axes, labels that do not collide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from importlib.resources import as_file, files
from itertools import accumulate
from math import ceil, floor, log10
from typing import Any
from unicodedata import category, east_asian_width
from warnings import catch_warnings, filterwarnings

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from statlib.runbook.look import tokens
from statlib.runbook.look.themed_svg import themed_svg

DASHED, DOTTED = (0, (5, 3)), (0, (1, 3))
LINE_PX = 15.0  # least distance between the baselines of two labels

INK, MUTED, FAIL = tokens.INK.light, tokens.INK_2.light, tokens.FAIL.light
PAPER, RULE, AXIS = tokens.PAPER.light, tokens.RULE.light, tokens.RULE_2.light
FIRST, SECOND, CONTEXT = tokens.SERIES_1.light, tokens.SERIES_2.light, tokens.SERIES_3.light


class Width(Enum):
    """The two drawings of a figure; ``left`` and ``right`` are the margins that figures over time share."""

    WIDE = (880, 46, 240, 8)
    NARROW = (350, 40, 10, 4)

    def __init__(self, px: int, left: int, right: int, time_ticks: int) -> None:
        self.px = px
        self.left = left
        self.right = right
        self.time_ticks = time_ticks

    @property
    def narrow(self) -> bool:
        return self is Width.NARROW

    @property
    def plot_px(self) -> int:
        return self.px - self.left - self.right


@dataclass(frozen=True)
class Span:
    """The time that a figure shows: figures of one report are given the same, so that their moments align."""

    start: datetime
    seconds: float

    @classmethod
    def between(cls, start: datetime, end: datetime) -> Span:
        """From ``start`` to ``end``; an empty span becomes a second, which an axis can show."""
        return cls(start, max((end - start).total_seconds(), 1.0))

    @classmethod
    def covering(cls, wanted: Span | None, start: datetime, end: datetime) -> Span:
        """``wanted``, widened where the data reach beyond it: nothing measured falls off the axis."""
        if wanted is None:
            return cls.between(start, end)
        return cls.between(min(start, wanted.start), max(end, wanted.start + timedelta(seconds=wanted.seconds)))

    def offset(self, at: datetime) -> float:
        """Seconds after the start."""
        return (at - self.start).total_seconds()


def drawn(key: str, title: str, description: str, plot: Callable[[Width], Figure]) -> tuple[str, str]:
    """The wide and the narrow SVG of ``plot``, drawn in the house style without touching global state for others.

    A script that the font of the layout lacks takes the room of its substitute; the page's fonts show it.
    """
    with as_file(files("statlib.runbook.look") / "statlib.mplstyle") as path, style.context(path), catch_warnings():
        filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)
        wide = themed_svg(plot(Width.WIDE), f"{key}-w", title=title, description=description)
        narrow = themed_svg(plot(Width.NARROW), f"{key}-n", title=title, description=description)
    return wide, narrow


def canvas(width_px: float, height_px: float) -> Figure:
    return Figure(figsize=(width_px / 72, height_px / 72))


def axes_px(fig: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes placed by pixels from the upper left corner."""
    whole_w, whole_h = fig.get_size_inches() * 72
    return fig.add_axes((left / whole_w, 1 - (top + height) / whole_h, width / whole_w, height / whole_h))


def label(ax: Axes, x: float, y: float, text: str, shift_px: tuple[float, float] = (0, 0), **look: Any) -> None:
    """Text beside a point of the data, also outside the axes."""
    ax.annotate(text, (x, y), xytext=shift_px, textcoords="offset points", annotation_clip=False, **look)


def fitted(text: str, room_px: float) -> str:
    """A person's or a stage's name as one line of at most ``room_px``, cut at its end where it is longer.

    What no line of text can hold, such as a line break or half of a surrogate pair, is shown as a replacement mark.
    """
    line = "".join("\N{REPLACEMENT CHARACTER}" if category(one) in _UNSHOWN else one for one in text)
    room = room_px / CHARACTER_PX
    widths = [2 if east_asian_width(one) in "WF" else 1 for one in line]
    if sum(widths) <= room:
        return line
    kept = sum(taken <= room - 1 for taken in accumulate(widths))
    return line[:kept].rstrip() + "…"


_UNSHOWN = frozenset({"Cc", "Cs", "Cn", "Zl", "Zp"})


def note_above(
    ax: Axes, text: str, *, right: bool = False, shift_px: tuple[float, float] = (0, 8), **look: Any
) -> None:
    """Text above the axes' upper left or right corner."""
    look = {"color": MUTED, "ha": "right" if right else "left"} | look
    ax.annotate(
        text, (1 if right else 0, 1), xycoords="axes fraction", xytext=shift_px, textcoords="offset points", **look
    )


@dataclass(frozen=True)
class SideLabel:
    """A label at the right end of something whose end lies at ``y`` of the data."""

    y: float
    text: str
    colour: str
    bold: bool = False


def side_labels(ax: Axes, height_px: float, labels: Sequence[SideLabel]) -> None:
    """Labels right of the axes, moved apart where they would touch, in the order of their values."""
    low, high = ax.get_ylim()
    scale = height_px / (high - low)
    ordered = sorted(labels, key=lambda item: item.y)
    places = apart([(item.y - low) * scale for item in ordered], LINE_PX, height_px)
    for item, place in zip(ordered, places, strict=True):
        ax.annotate(
            item.text, (1, place / height_px), xycoords="axes fraction", xytext=(10, 0), textcoords="offset points",
            va="center", color=item.colour, fontweight="bold" if item.bold else "normal", annotation_clip=False,
        )  # fmt: skip


def apart(places: Sequence[float], least: float, height: float) -> list[float]:
    """Ascending places at least ``least`` apart, pushed down from ``height`` and up from 0 as little as works."""
    moved = list(places)
    for at in range(1, len(moved)):
        moved[at] = max(moved[at], moved[at - 1] + least)
    if moved and moved[-1] > height:
        moved[-1] = height
        for at in range(len(moved) - 2, -1, -1):
            moved[at] = min(moved[at], moved[at + 1] - least)
    return moved


def count_axis(ax: Axes, greatest: float, unit: str = "", ticks: int = 4) -> None:
    """A vertical axis from zero to just above ``greatest``; its top tick names the unit."""
    step = nice_step(max(greatest, 1e-9) * 1.05, ticks)
    top = step * ceil(max(greatest, 1e-9) * 1.0001 / step)
    values = [step * at for at in range(round(top / step) + 1)]
    decimals = max(0, -floor(log10(step))) if step < 1 else 0
    names = [f"{value:,.{decimals}f}" for value in values]
    if unit:
        names[-1] += f" {unit}"
    ax.set_ylim(0, top)
    ax.set_yticks(values, names)


def nice_step(greatest: float, ticks: int) -> float:
    """1, 2 or 5 times a power of ten, so that at most ``ticks`` steps reach ``greatest``."""
    raw = greatest / ticks
    power = 10.0 ** floor(log10(raw))
    return power * next(m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)


_STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 1_209_600, 2_419_200, 7_257_600, 15_724_800,
)  # fmt: skip
DAY_S = 86_400
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")  # whatever the locale
CHARACTER_PX = 7.2  # a wide digit of 12 px


def time_ticks(start: datetime, span_s: float, most: int) -> list[tuple[float, str]]:
    """At most ``most`` ticks on round times of UTC: (seconds after ``start``, text)."""
    step = next((step for step in _STEPS_S if span_s / step <= most), None)
    if step is None:
        return _year_ticks(start, span_s, most)
    midnight = start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = ceil((start - midnight).total_seconds() / step) * step
    end = (datetime.max.replace(tzinfo=UTC) - midnight).total_seconds()
    offsets = range(first, int(min((start - midnight).total_seconds() + span_s, end)) + 1, step)
    ticks = [midnight + timedelta(seconds=offset) for offset in offsets]
    return [((at - start).total_seconds(), _tick_text(at, step)) for at in ticks]


def _year_ticks(start: datetime, span_s: float, most: int) -> list[tuple[float, str]]:
    """On the first of January of round years. One wrong date in a review may put centuries on an axis."""
    step = max(1, round(nice_step(span_s / (365 * DAY_S), most)))
    first, last = start.astimezone(UTC).year + 1, datetime.max.year
    years = (datetime(year, 1, 1, tzinfo=UTC) for year in range(ceil(first / step) * step, last + 1, step))
    offsets = (((at - start).total_seconds(), str(at.year)) for at in years)
    return [(offset, text) for offset, text in offsets if offset <= span_s]


def _tick_text(at: datetime, step: int) -> str:
    if step > 28 * DAY_S:
        return f"{at.day} {MONTHS[at.month - 1]} {at.year}"
    if step >= DAY_S or (at.hour, at.minute, at.second) == (0, 0, 0):
        return f"{at.day} {MONTHS[at.month - 1]}"
    return f"{at:%H:%M:%S}" if step < 60 else f"{at:%H:%M}"


def time_axis(ax: Axes, span: Span, width: Width, *, labels: bool = True) -> None:
    """Seconds after the span's start on the horizontal axis, named at round times of UTC."""
    ax.set_xlim(0, span.seconds)
    ticks = time_ticks(span.start, span.seconds, width.time_ticks)
    room_px = [width.right + (span.seconds - offset) / span.seconds * width.plot_px for offset, _ in ticks]
    texts = [
        text if room >= len(text) * CHARACTER_PX / 2 else "" for room, (_, text) in zip(room_px, ticks, strict=True)
    ]
    ax.set_xticks([offset for offset, _ in ticks], texts)
    ax.tick_params(axis="x", labelbottom=labels)
