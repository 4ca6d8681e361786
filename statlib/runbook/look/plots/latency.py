"""What does a save cost, by outcome and as the run goes on?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import floor, log10

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import NullLocator

from statlib.runbook.fragments import Column, Figure, Table
from statlib.runbook.look import canvas as c
from statlib.runbook.look import quantities as q
from statlib.runbook.look import thinning
from statlib.runbook.look.canvas import SideLabel, Span, Width

ROWS_MAX = 24
POINTS_MAX = 140
POINTS_OF_ALL_MAX = 300
ARM_COLOURS = {"fold": c.FIRST, "transactional": c.SECOND, "source-only": c.CONTEXT, "source only": c.CONTEXT}


@dataclass(frozen=True)
class LatencySummary:
    """Quantiles in ms over ``count`` saves of one ``group`` (an outcome, an arm) in one ``panel`` (a load)."""

    panel: str
    group: str
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True)
class LatencyInterval:
    """Quantiles in ms over the ``count`` (> 0) saves of one outcome that were answered after ``start`` (UTC)."""

    start: datetime
    outcome: str
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


# --- by group, on a log scale ----------------------------------------------------


def save_latency(summaries: Sequence[LatencySummary], *, source: str, finding: str = "") -> Figure:
    """p50, p95 and p99 of each group, one panel a load; all panels share one logarithmic scale.

    Groups and panels keep the order of their first appearance. Refuses (``ValueError``) no summaries at all, and
    quantiles that are not positive: a log scale has no place for them.
    """
    if not summaries:
        raise ValueError("no latency to draw")
    if any(s.p50_ms <= 0 for s in summaries):
        raise ValueError("a latency of 0 ms or less has no place on a log scale")
    said = finding or _slowest(summaries)
    wide, narrow = c.drawn("latency", "Save latency", said, lambda width: _summary_plot(summaries, width))
    columns = (
        Column("Load"),
        Column("Group"),
        Column("Saves", numeric=True),
        *(Column(name, "ms", numeric=True) for name in ("p50", "p95", "p99")),
    )
    rows = tuple((s.panel or "all", s.group, s.count, s.p50_ms, s.p95_ms, s.p99_ms) for s in summaries)
    return Figure(
        key="latency",
        title="Save latency",
        finding=said,
        what=f"Time from submission to answer, in ms on a log scale. Ring p50, disc p95, bar p99. Source: {source}.",
        svg_wide=wide,
        svg_narrow=narrow,
        numbers=Table("", columns, rows),
    )


def _slowest(summaries: Sequence[LatencySummary]) -> str:
    worst = max(summaries, key=lambda s: s.p95_ms)
    where = ", ".join(part for part in (worst.group, worst.panel) if part)
    return f"95 of 100 saves were answered within {q.with_unit(worst.p95_ms, 'ms')} or less; slowest: {where}"


def _summary_plot(summaries: Sequence[LatencySummary], width: Width) -> Drawing:
    panels = list(dict.fromkeys(s.panel for s in summaries))
    groups = list(dict.fromkeys(s.group for s in summaries))
    columns = 1 if width.narrow else min(4, len(panels))
    rows = -(-len(panels) // columns)
    left, gap, top = min(150, 16 + 7.4 * max(map(len, groups))), 24, 26
    height = 22.0 * len(groups) + 10
    pitch = height + 50
    across = (width.px - left - gap * (columns - 1) - 16) / columns
    fig = c.canvas(width.px, top + pitch * rows + 14)
    bounds = (min(s.p50_ms for s in summaries), max(s.p99_ms for s in summaries))
    for at, panel in enumerate(panels):
        line, column = divmod(at, columns)
        ax = c.axes_px(fig, left + column * (across + gap), top + line * pitch, across, height)
        _log_axis(ax, bounds, across)
        ax.set_ylim(len(groups) - 0.4, -0.6)
        ax.set_yticks(range(len(groups)), groups)
        ax.tick_params(axis="y", labelleft=column == 0)
        if panel:
            c.note_above(ax, panel, color=c.INK, fontweight="bold")
        for summary in summaries:
            if summary.panel == panel:
                _dumbbell(ax, groups.index(summary.group), summary)
    fig.axes[-1].set_xlabel("ms, log scale", loc="right", labelpad=2)
    key = "\u00a0\u00a0 ".join(("○ p50", "● p95, in ms", "| p99"))
    fig.text(left / width.px, 6 / (fig.get_size_inches()[1] * 72), key, color=c.MUTED, va="bottom")
    return fig


def _log_axis(ax: Axes, bounds: tuple[float, float], across_px: float) -> None:
    low, high = bounds[0] / 1.4, bounds[1] * 1.6
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    steps = [m * 10.0**p for p in range(floor(log10(low)), floor(log10(high)) + 1) for m in (1, 3)]
    ticks = [tick for tick in steps if low <= tick <= high]
    while len(ticks) > max(2, across_px / 44):
        ticks = ticks[::2]
    ax.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(False)
    ax.grid(True, axis="x")


def _dumbbell(ax: Axes, at: int, s: LatencySummary) -> None:
    colour = ARM_COLOURS.get(s.group, (c.FIRST, c.SECOND, c.CONTEXT)[min(at, 2)])
    ax.plot([s.p50_ms, s.p99_ms], [at, at], color=colour, linewidth=1.6)
    ax.plot([s.p99_ms], [at], "|", markersize=9, color=colour, markeredgewidth=1.6)
    ax.plot([s.p95_ms], [at], "o", markersize=7.5, color=colour, markeredgewidth=0)
    ax.plot([s.p50_ms], [at], "o", markersize=5, color=c.PAPER, markeredgecolor=colour, markeredgewidth=1.4)
    bold = {"color": c.INK, "fontweight": "bold"}
    c.label(ax, s.p95_ms, at, q.number(s.p95_ms), (0, 6), ha="center", **bold)


# --- over time ---------------------------------------------------------------------


def save_latency_over_time(
    intervals: Sequence[LatencyInterval], *, source: str, finding: str = "", over: Span | None = None
) -> Figure:
    """p50, p95 and p99 over time, one panel an outcome; the panels share both axes, which start at zero.

    Refuses (``ValueError``) no intervals at all.
    """
    if not intervals:
        raise ValueError("no latency to draw")
    outcomes: dict[str, list[LatencyInterval]] = {}
    for interval in intervals:
        outcomes.setdefault(interval.outcome, []).append(interval)
    said = finding or _worst(intervals)
    starts = [interval.start for interval in intervals]
    span = Span.covering(over, min(starts), max(starts))
    title = "Save latency over time"
    wide, narrow = c.drawn("latency-time", title, said, lambda width: _time_plot(outcomes, span, width))
    longest = max(len(own) for own in outcomes.values())
    return Figure(
        key="latency-time",
        title=title,
        finding=said,
        what=(
            "Time from submission to answer in ms, quantiles over each interval, UTC; one panel an outcome, one scale. "
            "Thin: p50. Bold: p95. Dotted: p99."
            f"{thinning.remark(longest, _points_max(outcomes), 'intervals')} Source: {source}."
        ),
        svg_wide=wide,
        svg_narrow=narrow,
        numbers=_time_numbers(outcomes),
    )


def _points_max(outcomes: Mapping[str, Sequence[LatencyInterval]]) -> int:
    """Points of one line: many panels share what a figure may weigh."""
    return max(8, min(POINTS_MAX, POINTS_OF_ALL_MAX // len(outcomes)))


def _worst(intervals: Sequence[LatencyInterval]) -> str:
    worst = max(intervals, key=lambda i: i.p95_ms)
    return (
        f"p95 was {q.with_unit(worst.p95_ms, 'ms')} at its worst, "
        f"at {q.instant(worst.start, seconds=True)} among {worst.outcome} saves"
    )


def _time_plot(outcomes: Mapping[str, Sequence[LatencyInterval]], span: Span, width: Width) -> Drawing:
    every = [interval for own in outcomes.values() for interval in own]
    height, pitch, top = (84, 118, 26) if width.narrow else (92, 126, 26)
    fig = c.canvas(width.px, top + pitch * len(outcomes) - (pitch - height) + 32)
    for at, (outcome, own) in enumerate(outcomes.items()):
        ax = c.axes_px(fig, width.left, top + pitch * at, width.plot_px, height)
        c.count_axis(ax, max(interval.p99_ms for interval in every), ticks=3)
        _quantiles(ax, own, span, width, height, most=_points_max(outcomes))
        total = q.number(sum(interval.count for interval in own))
        c.note_above(ax, f"{outcome.capitalize()}, ms", color=c.INK, fontweight="bold")
        c.note_above(ax, f"{total} saves", right=True)
        c.time_axis(ax, span, width, labels=at == len(outcomes) - 1)
    return fig


def _quantiles(ax: Axes, own: Sequence[LatencyInterval], span: Span, width: Width, height: float, *, most: int) -> None:
    seconds = [span.offset(interval.start) for interval in own]
    lines = (
        ("p99", [i.p99_ms for i in own], c.CONTEXT, c.DOTTED, 1.4),
        ("p95", [i.p95_ms for i in own], c.FIRST, "-", 1.7),
        ("p50", [i.p50_ms for i in own], c.CONTEXT, "-", 1.1),
    )
    most = most // 2 if width.narrow else most
    gaps = [later - earlier for earlier, later in pairwise(seconds)]
    usual = sorted(gaps)[len(gaps) // 2] if gaps else 0.0
    for _, values, colour, dash, weight in lines:
        kept = thinning.kept_indexes(values, most)
        marker = "o" if len(own) < 3 or (gaps and max(gaps) > 3 * usual) else ""
        ax.plot(
            [seconds[at] for at in kept], [values[at] for at in kept],
            marker=marker, markersize=3, color=colour, linestyle=dash, linewidth=weight,
        )  # fmt: skip
    if not width.narrow:
        c.side_labels(ax, height, [SideLabel(v[-1], n, col, n == "p95") for n, v, col, _, _ in lines])


def _time_numbers(outcomes: Mapping[str, Sequence[LatencyInterval]]) -> Table:
    columns = (
        Column("From (UTC)"),
        Column("Outcome"),
        Column("Saves", numeric=True),
        Column("Least p50", "ms", numeric=True),
        Column("Greatest p95", "ms", numeric=True),
        Column("Greatest p99", "ms", numeric=True),
    )
    rows = []
    for outcome, own in outcomes.items():
        for stretch in thinning.stretches_of(len(own), max(2, ROWS_MAX // len(outcomes))):
            part = [own[at] for at in stretch]
            rows.append(
                (
                    q.instant(part[0].start, seconds=True),
                    outcome,
                    sum(i.count for i in part),
                    min(i.p50_ms for i in part),
                    max(i.p95_ms for i in part),
                    max(i.p99_ms for i in part),
                )
            )
    return Table("", columns, tuple(rows))
