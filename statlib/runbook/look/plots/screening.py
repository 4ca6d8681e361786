"""How far has the screening come, class by class?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from statlib.runbook.fragments import Column, Figure, Table, Value
from statlib.runbook.look import canvas as c
from statlib.runbook.look import quantities as q
from statlib.runbook.look import thinning
from statlib.runbook.look.canvas import SideLabel, Span, Width

ROWS_MAX = 24
POINTS_MAX = 80

# From the bottom of the stack: what is settled, what is not, what is untouched. Colour and density differ.
LOOKS: Mapping[str, tuple[str, float, str]] = {
    "Included": (c.FIRST, 0.95, "included"),
    "Excluded": (c.FIRST, 0.35, "excluded"),
    "Conflict": (c.SECOND, 0.95, "in conflict"),
    "InProgress": (c.CONTEXT, 0.55, "in progress"),
    "Unscreened": (c.CONTEXT, 0.16, "unscreened"),
}


@dataclass(frozen=True)
class ScreeningPoint:
    """Studies of each screening class (``ScreeningClass`` values) at ``at`` (UTC)."""

    at: datetime
    studies: Mapping[str, int]


def screening_progress(
    points: Sequence[ScreeningPoint], *, source: str, finding: str = "", over: Span | None = None
) -> Figure:
    """Studies by class over time, stacked to the number of studies.

    ``points`` are in order. Refuses (``ValueError``) none at all, and a class without a look.
    """
    if not points:
        raise ValueError("no screening progress to draw")
    unknown = sorted({name for point in points for name in point.studies} - set(LOOKS))
    if unknown:
        raise ValueError(f"screening classes without a look: {', '.join(unknown)}")
    said = finding or _finding(points)
    span = Span.covering(over, points[0].at, points[-1].at)
    wide, narrow = c.drawn("screening", "Screening progress", said, lambda width: _plot(points, span, width))
    return Figure(
        key="screening",
        title="Screening progress",
        finding=said,
        what=(f"Studies by screening class, stacked, UTC.{_thinned(len(points))} Source: {source}."),
        svg_wide=wide,
        svg_narrow=narrow,
        numbers=_numbers(points),
    )


def _thinned(count: int) -> str:
    if count <= POINTS_MAX:
        return ""
    return f" Of {q.number(count)} readings, {q.number(POINTS_MAX)} at equal distances are drawn."


def _finding(points: Sequence[ScreeningPoint]) -> str:
    first, last = points[0].studies, points[-1].studies
    total = sum(last.values())
    settled = last.get("Included", 0) + last.get("Excluded", 0)
    before = first.get("Included", 0) + first.get("Excluded", 0)
    conflicts = last.get("Conflict", 0)
    moved = f"{q.number(settled)} of {q.plural(total, 'study', 'studies')} are settled"
    since = f", {q.number(before)} at the start" if len(points) > 1 else ""
    return f"{moved}{since}; {q.number(conflicts)} in conflict"


def _plot(points: Sequence[ScreeningPoint], span: Span, width: Width) -> Drawing:
    height, top = (150, 12) if width.narrow else (190, 12)
    present = [name for name in LOOKS if any(point.studies.get(name, 0) for point in points)]
    below = 20 * -(-len(present) // 2) + 8 if width.narrow else 0
    fig = c.canvas(width.px, top + height + 30 + below)
    ax = c.axes_px(fig, width.left, top, width.plot_px, height)
    kept = [stretch[-1] for stretch in thinning.stretches_of(len(points), POINTS_MAX // (2 if width.narrow else 1))]
    kept = [0, *kept[1:]] if len(kept) > 1 else [0, 0]
    chosen = [points[at] for at in kept]
    seconds = [span.offset(point.at) for point in chosen]
    if len(points) == 1:
        seconds = [0.0, span.seconds]
    c.count_axis(ax, max(sum(point.studies.values()) for point in points))
    _stack(ax, seconds, chosen, present)
    c.time_axis(ax, span, width)
    last = points[-1].studies
    if width.narrow:
        _legend(fig, present, last, width)
    else:
        _side(ax, present, last, height)
    return fig


def _stack(ax: Axes, seconds: Sequence[float], points: Sequence[ScreeningPoint], present: Sequence[str]) -> None:
    base = [0] * len(points)
    for name in present:
        colour, density, _ = LOOKS[name]
        top = [low + point.studies.get(name, 0) for low, point in zip(base, points, strict=True)]
        ax.fill_between(seconds, base, top, color=colour, alpha=density, linewidth=0)
        ax.plot(seconds, top, color=c.PAPER, linewidth=1)
        base = top


def _side(ax: Axes, present: Sequence[str], last: Mapping[str, int], height: float) -> None:
    labels, base = [], 0
    for name in present:
        count = last.get(name, 0)
        labels.append(
            SideLabel(base + count / 2, f"{q.number(count)} {LOOKS[name][2]}", _ink(name), name == "Included")
        )
        base += count
    c.side_labels(ax, height, labels)


def _legend(fig: Drawing, present: Sequence[str], last: Mapping[str, int], width: Width) -> None:
    """Two columns of swatches under the plot: a narrow one has no room beside it."""
    whole = fig.get_size_inches()[1] * 72
    lines = -(-len(present) // 2)
    ax = c.axes_px(fig, width.left, whole - 20 * lines - 4, width.plot_px, 20 * lines)
    ax.set_axis_off()
    ax.set_xlim(0, 2)
    ax.set_ylim(lines, 0)
    for at, name in enumerate(present):
        column, line = divmod(at, lines)
        colour, density, words = LOOKS[name]
        ax.plot([column + 0.03], [line + 0.5], "s", markersize=9, color=colour, alpha=density, markeredgewidth=0)
        c.label(
            ax, column + 0.03, line + 0.5, f"{q.number(last.get(name, 0))} {words}", (10, 0), va="center", color=c.INK
        )


def _ink(name: str) -> str:
    """The text colour that goes with a class: pale areas are named in ink, since pale text cannot be read."""
    colour, density, _ = LOOKS[name]
    return colour if density > 0.9 else c.MUTED


def _numbers(points: Sequence[ScreeningPoint]) -> Table:
    names = [name for name in LOOKS if any(name in point.studies for point in points)]
    columns = (Column("At (UTC)"), *(Column(LOOKS[name][2].capitalize(), numeric=True) for name in names))
    stretches = thinning.stretches_of(len(points), ROWS_MAX)
    chosen = [points[stretch[-1]] for stretch in stretches]
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (q.instant(point.at, seconds=True), *(point.studies.get(name, 0) for name in names)) for point in chosen
    )
    return Table("", columns, rows)
