"""Did the served number ever lag while saves waited to be folded?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from matplotlib.figure import Figure as Drawing

from statlib.runbook.fragments import Column, Figure, Table, Value
from statlib.runbook.look import canvas as c
from statlib.runbook.look import quantities as q
from statlib.runbook.look import thinning
from statlib.runbook.look.canvas import SideLabel, Span, Width

POINTS_MAX = 140
ROWS_MAX = 24
WAITING_PX, GAP_PX = 60, 34


@dataclass(frozen=True)
class FoldPoint:
    """One counter in one snapshot at ``at`` (UTC): as a reader is served it, as its row holds it, as the studies give
    it; and the entries that were pending."""

    at: datetime
    served: int
    stored: int
    counted: int
    pending: int

    @property
    def exact(self) -> bool:
        return self.served == self.counted


def fold_over_time(points: Sequence[FoldPoint], *, counter: str, source: str) -> Figure:
    """The served and the stored number as steps, and below them what was pending.

    ``points`` are in order. Refuses (``ValueError``) none at all.
    """
    if not points:
        raise ValueError("no samples to draw")
    said = _finding(points)
    span = Span.between(points[0].at, points[-1].at)
    title = f"{counter} while the fold runs"
    wide, narrow = c.drawn("folding", title, said, lambda width: _plot(points, span, width))
    return Figure(
        key="folding",
        title=title,
        finding=said,
        what=f"Above: the number. Below: entries pending. UTC.{_thinned(len(points))} Source: {source}.",
        svg_wide=wide,
        svg_narrow=narrow,
        numbers=_numbers(points),
    )


def _finding(points: Sequence[FoldPoint]) -> str:
    exact = sum(point.exact for point in points)
    behind = sum(point.stored < point.served for point in points)
    return (
        f"The served number was exact in {q.number(exact)} of {q.plural(len(points), 'sample')}; "
        f"the row was behind it in {q.number(behind)}"
    )


def _thinned(count: int) -> str:
    return f" Of {q.number(count)} samples, {q.number(POINTS_MAX)} are drawn." if count > POINTS_MAX else ""


def _plot(points: Sequence[FoldPoint], span: Span, width: Width) -> Drawing:
    height, top = (150, 30) if width.narrow else (190, 30)
    fig = c.canvas(width.px, top + height + GAP_PX + WAITING_PX + 30)
    ax = c.axes_px(fig, width.left, top, width.plot_px, height)
    below = c.axes_px(fig, width.left, top + height + GAP_PX, width.plot_px, WAITING_PX)
    chosen = [points[stretch[-1]] for stretch in thinning.stretches_of(len(points), POINTS_MAX)]
    seconds = [span.offset(point.at) for point in chosen]
    served, stored = [point.served for point in chosen], [point.stored for point in chosen]
    waiting = [point.pending for point in chosen]
    c.count_axis(ax, max(*served, *stored, 1))
    ax.fill_between(seconds, stored, served, step="post", color=c.SECOND, alpha=0.16, linewidth=0)
    ax.step(seconds, stored, where="post", color=c.SECOND, linewidth=1.5, linestyle=c.DASHED)
    ax.step(seconds, served, where="post", color=c.FIRST, linewidth=2)
    c.time_axis(ax, span, width, labels=False)
    c.count_axis(below, max(*waiting, 1), ticks=2)
    below.fill_between(seconds, 0, waiting, step="post", color=c.CONTEXT, alpha=0.5, linewidth=0)
    c.time_axis(below, span, width)
    c.note_above(below, "entries pending")
    if width.narrow:
        c.note_above(ax, "served", color=c.FIRST, fontweight="bold")
        c.note_above(ax, "in the row", right=True, color=c.SECOND)
    else:
        labels = [
            SideLabel(stored[-1], f"{q.number(stored[-1])} in the row", c.SECOND),
            SideLabel(served[-1], f"{q.number(served[-1])} served", c.FIRST, bold=True),
        ]
        c.side_labels(ax, height, labels)
    return fig


def _numbers(points: Sequence[FoldPoint]) -> Table:
    names = ("Served", "In the row", "Counted from the studies", "Pending entries")
    columns = (Column("At (UTC)"), *(Column(name, numeric=True) for name in names))
    chosen = [points[stretch[-1]] for stretch in thinning.stretches_of(len(points), ROWS_MAX)]
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (q.instant(point.at, seconds=True), point.served, point.stored, point.counted, point.pending)
        for point in chosen
    )
    return Table("", columns, rows)
