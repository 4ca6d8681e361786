"""How fast were saves confirmed, and what was not?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from statlib.runbook.fragments import Column, Figure, Table, Value
from statlib.runbook.look import canvas as c
from statlib.runbook.look import quantities as q
from statlib.runbook.look import thinning
from statlib.runbook.look.canvas import SideLabel, Span, Width

ROWS_MAX = 24
POINTS_MAX = 300
BARS_MAX = 120


@dataclass(frozen=True)
class SavesInterval:
    """What became of the saves answered in the ``seconds`` after ``start`` (UTC).

    ``confirmed`` were saved or recognised as duplicates, ``stale`` met a newer version, ``exhausted`` used up
    their attempts, ``other`` were refused, failed or stayed unresolved.
    """

    start: datetime
    seconds: float
    confirmed: int
    stale: int = 0
    exhausted: int = 0
    other: int = 0

    @property
    def rate(self) -> float:
        return self.confirmed / self.seconds

    @property
    def unconfirmed(self) -> tuple[int, int, int]:
        return (self.stale, self.exhausted, self.other)


@dataclass(frozen=True)
class _Kind:
    """One way in which a save was not confirmed, with its look in the lower panel."""

    name: str
    colour: str
    at: int
    sign: str = ""

    def count(self, intervals: Sequence[SavesInterval]) -> int:
        return sum(interval.unconfirmed[self.at] for interval in intervals)


STALE, OTHER = _Kind("stale", c.SECOND, 0), _Kind("other", c.CONTEXT, 2)
EXHAUSTED = _Kind("exhausted", c.FAIL, 1, "✕ ")
KINDS = (STALE, EXHAUSTED, OTHER)


def saves_over_time(
    intervals: Sequence[SavesInterval], *, source: str, finding: str = "", over: Span | None = None
) -> Figure:
    """Saves confirmed per second above, saves not confirmed below, over the same time.

    ``intervals`` are in order and do not overlap; refuses (``ValueError``) none at all. ``finding`` replaces
    the computed caption, ``over`` is the time that the report's figures share.
    """
    if not intervals:
        raise ValueError("no interval of saves to draw")
    last = intervals[-1].start + timedelta(seconds=intervals[-1].seconds)
    span = Span.covering(over, intervals[0].start, last)
    wide, narrow = c.drawn(
        "saves", "Saves over time", finding or _finding(intervals), lambda width: _plot(intervals, span, width)
    )
    return Figure(
        key="saves",
        title="Saves over time",
        finding=finding or _finding(intervals),
        what=_what(intervals, source),
        svg_wide=wide,
        svg_narrow=narrow,
        numbers=_numbers(intervals),
    )


def _span_s(intervals: Sequence[SavesInterval]) -> float:
    return (intervals[-1].start - intervals[0].start).total_seconds() + intervals[-1].seconds


def _mean(intervals: Sequence[SavesInterval]) -> float:
    return sum(interval.confirmed for interval in intervals) / _span_s(intervals)


def _finding(intervals: Sequence[SavesInterval]) -> str:
    confirmed = q.plural(sum(interval.confirmed for interval in intervals), "save")
    losses = [f"{q.number(kind.count(intervals))} {kind.name}" for kind in KINDS if kind.count(intervals)]
    rest = f"; not confirmed: {', '.join(losses)}" if losses else "; every submission was confirmed"
    return f"{confirmed} confirmed, {q.with_unit(_mean(intervals), 'a second')} on average{rest}"


def _what(intervals: Sequence[SavesInterval], source: str) -> str:
    return (
        f"Saves answered in each {q.each(intervals[0].seconds)}, UTC. Above: confirmed, per second. "
        "Below: submissions that were not confirmed, as a count."
        f"{thinning.remark(len(intervals), POINTS_MAX, 'intervals')} Source: {source}."
    )


def _plot(intervals: Sequence[SavesInterval], span: Span, width: Width) -> Drawing:
    above, below, top, between = (96, 44, 26, 52) if width.narrow else (120, 52, 26, 40)
    fig = c.canvas(width.px, top + above + between + below + 30)
    upper = c.axes_px(fig, width.left, top, width.plot_px, above)
    lower = c.axes_px(fig, width.left, top + above + between, width.plot_px, below)
    _confirmed(upper, intervals, span, width, above)
    _unconfirmed(lower, intervals, span, width, below)
    c.time_axis(upper, span, width, labels=False)
    c.time_axis(lower, span, width)
    return fig


def _confirmed(ax: Axes, intervals: Sequence[SavesInterval], span: Span, width: Width, height: float) -> None:
    rates = [interval.rate for interval in intervals]
    middles = [span.offset(interval.start) + interval.seconds / 2 for interval in intervals]
    kept = thinning.kept_indexes(rates, POINTS_MAX if not width.narrow else POINTS_MAX // 2)
    c.count_axis(ax, max(rates))
    mean = _mean(intervals)
    ax.plot([0, span.seconds], [mean, mean], color=c.AXIS, linewidth=1, linestyle=c.DOTTED)
    marker = "o" if len(kept) < 3 else ""
    ax.plot([middles[at] for at in kept], [rates[at] for at in kept], marker=marker, markersize=5, color=c.FIRST)
    c.note_above(ax, "Confirmed saves per second", color=c.INK, fontweight="bold")
    said = f"mean {q.number(mean)}"
    if width.narrow:
        c.note_above(ax, said, right=True)
    else:
        c.side_labels(ax, height, [SideLabel(mean, said + " a second", c.MUTED)])


def _unconfirmed(ax: Axes, intervals: Sequence[SavesInterval], span: Span, width: Width, height: float) -> None:
    """Stale and other submissions as stacked bars, exhausted ones as crosses at their own count."""
    stretches = thinning.stretches_of(len(intervals), BARS_MAX if not width.narrow else BARS_MAX // 2)
    parts = [[intervals[at] for at in stretch] for stretch in stretches]
    left = [span.offset(part[0].start) for part in parts]
    wide = [_span_s(part) for part in parts]
    base = [0] * len(parts)
    for kind in (STALE, OTHER):
        counts = [kind.count(part) for part in parts]
        shown = [at for at, count in enumerate(counts) if count]
        ax.bar(
            [left[at] for at in shown],
            [counts[at] for at in shown],
            width=[wide[at] * 0.8 for at in shown],
            bottom=[base[at] for at in shown],
            align="edge",
            color=kind.colour,
        )
        base = [low + count for low, count in zip(base, counts, strict=True)]
    exhausted = [EXHAUSTED.count(part) for part in parts]
    met = [at for at, count in enumerate(exhausted) if count]
    middles, heights = [left[at] + wide[at] * 0.4 for at in met], [exhausted[at] for at in met]
    halo: dict[str, Any] = {"marker": "x", "linestyle": "", "clip_on": False, "zorder": 4}
    ax.plot(middles, heights, markersize=8, markeredgewidth=5, color=c.PAPER, **halo)
    ax.plot(middles, heights, markersize=8, markeredgewidth=2, color=c.FAIL, **halo)
    c.count_axis(ax, max(*base, *exhausted, 2), ticks=2)
    lines_px = 22 if width.narrow and any(base + exhausted) else 8
    c.note_above(
        ax, f"Not confirmed, in each {q.each(wide[0])}", color=c.INK, fontweight="bold", shift_px=(0, lines_px)
    )
    _name_unconfirmed(ax, intervals, span, width, height)


def _name_unconfirmed(ax: Axes, intervals: Sequence[SavesInterval], span: Span, width: Width, height: float) -> None:
    present = [kind for kind in KINDS if kind.count(intervals)]
    said = [f"{kind.sign}{q.number(kind.count(intervals))} {kind.name}" for kind in present]
    top = ax.get_ylim()[1]
    if not present:
        c.label(ax, span.seconds / 2, top / 2, "none", ha="center", va="center", color=c.MUTED)
    elif width.narrow:
        c.note_above(ax, ", ".join(said))
    else:
        step = c.LINE_PX / height * top
        sides = [
            SideLabel(at * step, text, kind.colour) for at, (kind, text) in enumerate(zip(present, said, strict=True))
        ]
        c.side_labels(ax, height, sides)


def _numbers(intervals: Sequence[SavesInterval]) -> Table:
    columns = (
        Column("From (UTC)"),
        Column("For", numeric=True),
        Column("Confirmed", numeric=True),
        Column("Per second", numeric=True),
        *(Column(kind.name.capitalize(), numeric=True) for kind in KINDS),
    )
    rows: list[tuple[Value, ...]] = []
    for stretch in thinning.stretches_of(len(intervals), ROWS_MAX):
        part = [intervals[at] for at in stretch]
        confirmed = sum(interval.confirmed for interval in part)
        losses = (kind.count(part) for kind in KINDS)
        rows.append(
            (q.instant(part[0].start, seconds=True), q.duration(_span_s(part)), confirmed, _mean(part), *losses)
        )
    return Table("", columns, tuple(rows))
