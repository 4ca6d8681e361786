"""How fast were saves confirmed, and what was not?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from statlib.runbook.fragments import Column, Figure, Table, Value
from statlib.runbook.look import canvas as c
from statlib.runbook.look import quantities as q
from statlib.runbook.look import thinning
from statlib.runbook.look.canvas import SideLabel, Width

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

    def count(self, intervals: Sequence[SavesInterval]) -> int:
        return sum(interval.unconfirmed[self.at] for interval in intervals)


KINDS = (_Kind("stale", c.SECOND, 0), _Kind("exhausted", c.FAIL, 1), _Kind("other", c.CONTEXT, 2))


def saves_over_time(intervals: Sequence[SavesInterval], *, source: str, finding: str = "") -> Figure:
    """Saves confirmed per second above, saves not confirmed below, over the same time.

    ``intervals`` are in order and do not overlap; refuses (``ValueError``) none at all. ``finding`` replaces
    the computed caption.
    """
    if not intervals:
        raise ValueError("no interval of saves to draw")
    wide, narrow = c.drawn(
        "saves", "Saves over time", finding or _finding(intervals), lambda width: _plot(intervals, width)
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
    each = q.duration(intervals[0].seconds)
    return (
        f"Saves answered in each {each}, UTC. Above: confirmed, per second. Below: submissions that were not "
        f"confirmed, as a count.{thinning.remark(len(intervals), POINTS_MAX, 'intervals')} Source: {source}."
    )


def _plot(intervals: Sequence[SavesInterval], width: Width) -> Drawing:
    above, below, top = (96, 44, 26) if width.narrow else (120, 52, 26)
    fig = c.canvas(width.px, top + above + 40 + below + 30)
    upper = c.axes_px(fig, width.left, top, width.plot_px, above)
    lower = c.axes_px(fig, width.left, top + above + 40, width.plot_px, below)
    start, span = intervals[0].start, _span_s(intervals)
    _confirmed(upper, intervals, width, above)
    _unconfirmed(lower, intervals, width, below)
    c.time_axis(upper, start, span, width, labels=False)
    c.time_axis(lower, start, span, width)
    return fig


def _confirmed(ax: Axes, intervals: Sequence[SavesInterval], width: Width, height: float) -> None:
    start = intervals[0].start
    rates = [interval.rate for interval in intervals]
    middles = [(interval.start - start).total_seconds() + interval.seconds / 2 for interval in intervals]
    kept = thinning.kept_indexes(rates, POINTS_MAX if not width.narrow else POINTS_MAX // 2)
    c.count_axis(ax, max(rates))
    mean = _mean(intervals)
    ax.plot([0, _span_s(intervals)], [mean, mean], color=c.AXIS, linewidth=1, linestyle=c.DOTTED)
    marker = "o" if len(kept) < 3 else ""
    ax.plot([middles[at] for at in kept], [rates[at] for at in kept], marker=marker, markersize=5, color=c.FIRST)
    c.note_above(ax, "Confirmed saves per second", color=c.INK, fontweight="bold")
    said = f"mean {q.number(mean)}"
    if width.narrow:
        c.note_above(ax, said, right=True)
    else:
        c.side_labels(ax, height, [SideLabel(mean, said + " a second", c.MUTED)])


def _unconfirmed(ax: Axes, intervals: Sequence[SavesInterval], width: Width, height: float) -> None:
    start = intervals[0].start
    stretches = thinning.stretches_of(len(intervals), BARS_MAX if not width.narrow else BARS_MAX // 2)
    bars = [[intervals[at] for at in stretch] for stretch in stretches]
    left = [(bar[0].start - start).total_seconds() for bar in bars]
    spans = [_span_s(bar) for bar in bars]
    base = [0] * len(bars)
    present = [kind for kind in KINDS if kind.count(intervals)]
    for kind in present:
        counts = [kind.count(bar) for bar in bars]
        shown = [at for at, count in enumerate(counts) if count]
        ax.bar(
            [left[at] for at in shown],
            [counts[at] for at in shown],
            width=[spans[at] * 0.8 for at in shown],
            bottom=[base[at] for at in shown],
            align="edge",
            color=kind.colour,
        )
        base = [low + count for low, count in zip(base, counts, strict=True)]
    c.count_axis(ax, max(*base, 2), ticks=2)
    c.note_above(ax, f"Not confirmed, in each {q.duration(spans[0])}", color=c.INK, fontweight="bold")
    if not present:
        c.label(ax, _span_s(intervals) / 2, ax.get_ylim()[1] / 2, "none", ha="center", va="center", color=c.MUTED)
    elif width.narrow:
        c.note_above(ax, ", ".join(f"{q.number(kind.count(intervals))} {kind.name}" for kind in present), right=True)
    else:
        top = ax.get_ylim()[1]
        said = [(f"{q.number(kind.count(intervals))} {kind.name}", kind.colour) for kind in present]
        sides = [SideLabel(at * 20.0 / height * top, text, colour) for at, (text, colour) in enumerate(said)]
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
