"""Which collection grows, how fast, and how sure is the slope?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from statlib.evidence.slope import Slope, fit
from statlib.kernel.refusals import Refusal
from statlib.runbook.fragments import Column, Figure, Table, Value
from statlib.runbook.look import canvas as c
from statlib.runbook.look import quantities as q
from statlib.runbook.look import thinning
from statlib.runbook.look.canvas import Width

POINTS_MAX = 60
POINTS_OF_ALL_MAX = 300
PANELS_MAX = 12
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))


@dataclass(frozen=True)
class StoragePoint:
    """A collection's size when ``count`` of what drives it (confirmed operations, say) had been reached."""

    count: float
    size_bytes: float


@dataclass(frozen=True)
class _Collection:
    """Growth since the first reading; ``slope`` is None where too little was read to fit one."""

    name: str
    points: tuple[StoragePoint, ...]
    slope: Slope | None
    over: bool

    @property
    def grown(self) -> list[float]:
        return [point.size_bytes - self.points[0].size_bytes for point in self.points]


def storage_growth(
    collections: Mapping[str, Sequence[StoragePoint]],
    *,
    source: str,
    driver: str = "confirmed operations",
    per: str = "operation",
    limit: float | None = None,
    finding: str = "",
) -> Figure:
    """A panel for each collection, steepest first, all on one scale; beyond ``PANELS_MAX`` only in the numbers.

    The slope and its 95 % interval are those of ``statlib.evidence.slope``, in bytes per ``per``; a collection
    whose upper bound passes ``limit`` is marked, as the gate counts it. Refuses (``ValueError``) no readings.
    """
    grown = _fitted(collections, limit)
    if not grown:
        raise ValueError("no reading of a collection's size to draw")
    said = finding or _finding(grown, per, limit)
    shown = grown[:PANELS_MAX]
    rest = (
        f" The {q.number(len(grown) - PANELS_MAX)} that grow slowest are only in the numbers." if shown != grown else ""
    )
    wide, narrow = c.drawn("storage", "Storage growth", said, lambda width: _plot(shown, driver, per, limit, width))
    longest = max(len(one.points) for one in grown)
    dashed = f" Dashed: the limit of {q.with_unit(limit, 'B')} per {per}." if limit is not None else ""
    return Figure(
        key="storage",
        title="Storage growth",
        finding=said,
        what=(
            f"Growth of what each collection's documents hold since the first reading, over {driver}; one scale. Line: "
            f"least squares. Wedge and brackets: 95 % interval of the slope.{dashed}"
            f"{thinning.remark(longest, _points_max(shown), 'readings')}{rest} Source: {source}."
        ),
        svg_wide=wide,
        svg_narrow=narrow,
        numbers=_numbers(grown, per),
    )


def _fitted(collections: Mapping[str, Sequence[StoragePoint]], limit: float | None) -> list[_Collection]:
    grown = []
    for name, points in collections.items():
        if not points:
            continue
        try:
            slope = fit([(point.count, point.size_bytes) for point in points])
        except Refusal:
            slope = None
        over = limit is not None and slope is not None and slope.upper > limit
        grown.append(_Collection(name, tuple(points), slope, over))
    return sorted(grown, key=lambda one: -(one.slope.upper if one.slope else 0.0))


def _points_max(grown: Sequence[_Collection]) -> int:
    """Points of one panel: many panels share what a figure may weigh."""
    return max(8, min(POINTS_MAX, POINTS_OF_ALL_MAX // len(grown)))


def _finding(grown: Sequence[_Collection], per: str, limit: float | None) -> str:
    steepest = next((one for one in grown if one.slope), None)
    if steepest is None or steepest.slope is None:
        return "Too few readings to fit a slope"
    opening = f"{steepest.name} grows fastest, by {_interval(steepest.slope)} B per {per}"
    if limit is None:
        return opening
    others = [one.name for one in grown if one.over and one is not steepest]
    if steepest.over:
        also = f"; so do {', '.join(others)}" if others else ""
        return f"{opening}, and passes the limit of {q.number(limit)}{also}"
    return f"{opening}; all stay below the limit of {q.number(limit)}"


def _interval(slope: Slope) -> str:
    decimals = 0 if max(abs(slope.lower), abs(slope.upper)) >= 100 else 1
    value, lower, upper = (q.number(v, decimals) for v in (slope.value, slope.lower, slope.upper))
    return f"{value} ({lower} to {upper})"


def _plot(grown: Sequence[_Collection], driver: str, per: str, limit: float | None, width: Width) -> Drawing:
    across = min(2 if width.narrow else 3, len(grown))
    left, gap, height = (54, 14, 78) if width.narrow else (66, 30, 96)
    panel = (width.px - left - gap * (across - 1) - 14) / across
    pitch, down = height + 62, -(-len(grown) // across)
    fig = c.canvas(width.px, pitch * down + 24)
    scale = _Scale.of(grown, limit)
    for at, one in enumerate(grown):
        line, column = divmod(at, across)
        ax = c.axes_px(fig, left + column * (panel + gap), 42 + line * pitch, panel, height)
        scale.apply(ax, 3 if width.narrow else 5)
        ax.tick_params(axis="y", labelleft=column == 0)
        ax.tick_params(axis="x", labelbottom=at + across >= len(grown))
        _panel(ax, one, scale, limit, width, most=_points_max(grown))
    fig.axes[-1].set_xlabel(f"{driver}{scale.thousands}", loc="right", labelpad=2)
    return fig


@dataclass(frozen=True)
class _Scale:
    """What all panels share: the count's reach, the growth's reach, and the unit of growth."""

    count_from: float
    count_to: float
    lowest: float
    highest: float
    unit: str
    unit_bytes: float
    thousands: str

    @classmethod
    def of(cls, grown: Sequence[_Collection], limit: float | None) -> _Scale:
        counts = [point.count for one in grown for point in one.points]
        sizes = [size for one in grown for size in one.grown]
        reach = max(*sizes, 1.0)
        if limit is not None:
            reach = max(reach, min(limit * (max(counts) - min(counts)), 2 * reach))
        unit, unit_bytes = next((unit, size) for unit, size in UNITS if reach >= size)
        thousands = ", thousands" if max(counts) >= 20_000 else ""
        return cls(min(counts), max(counts), min(*sizes, 0.0), reach, unit, float(unit_bytes), thousands)

    def apply(self, ax: Axes, ticks: int) -> None:
        c.count_axis(ax, self.highest / self.unit_bytes, self.unit, ticks=2)
        if self.lowest < 0:
            ax.set_ylim(min(self.lowest / self.unit_bytes, 0), ax.get_ylim()[1])
        span = max(self.count_to - self.count_from, 1.0)
        ax.set_xlim(self.count_from, self.count_from + span)
        by = 1_000 if self.thousands else 1
        step = c.nice_step(span, ticks)
        first = -(-self.count_from // step) * step
        places = [first + step * at for at in range(ticks + 1) if first + step * at <= self.count_to]
        ax.set_xticks(places, [q.number(place / by) for place in places])


def _panel(ax: Axes, one: _Collection, scale: _Scale, limit: float | None, width: Width, *, most: int) -> None:
    colour, title = (c.FAIL, c.FAIL) if one.over else (c.FIRST, c.INK)
    sizes = [size / scale.unit_bytes for size in one.grown]
    counts = [point.count for point in one.points]
    low, high = counts[0], counts[-1]
    if limit is not None:
        rise = limit * (scale.count_to - scale.count_from) / scale.unit_bytes
        ax.plot(
            [scale.count_from, scale.count_to], [0, rise], color=c.FAIL if one.over else c.AXIS, lw=1.1, ls=c.DASHED
        )
    if one.slope is not None:
        mean_x, mean_y = sum(counts) / len(counts), sum(sizes) / len(sizes)
        ends = [
            [mean_y + s / scale.unit_bytes * (x - mean_x) for x in (low, mean_x, high)]
            for s in (one.slope.lower, one.slope.value, one.slope.upper)
        ]
        at = [low, mean_x, high]
        ax.fill_between(at, ends[0], ends[2], color=colour, alpha=0.22, linewidth=0)
        ax.plot(at, ends[1], color=colour, linewidth=1.6)
    kept = thinning.kept_indexes(sizes, most // 2 if width.narrow else most)
    ax.plot([counts[k] for k in kept], [sizes[k] for k in kept], "o", markersize=3, color=colour, markeredgewidth=0)
    name = one.name if not width.narrow or len(one.name) <= 20 else one.name[:9] + "…" + one.name[-9:]
    c.note_above(ax, ("✕ " if one.over else "") + name, color=title, fontweight="bold", shift_px=(0, 22))
    unit = "" if width.narrow else " B each"
    said = f"{_interval(one.slope)}{unit}" if one.slope else "too few readings"
    c.note_above(ax, said, shift_px=(0, 7))


def _numbers(grown: Sequence[_Collection], per: str) -> Table:
    columns = (
        Column("Collection"),
        Column("Readings", numeric=True),
        Column("Grown by", numeric=True),
        Column(f"B per {per}", decimals=1, numeric=True),
        Column("from", decimals=1, numeric=True),
        Column("to (95 %)", decimals=1, numeric=True),
    )
    rows: list[tuple[Value, ...]] = []
    for one in grown:
        slope: tuple[Value, ...] = (one.slope.value, one.slope.lower, one.slope.upper) if one.slope else (None,) * 3
        rows.append((one.name, len(one.points), q.size(one.grown[-1]), *slope))
    return Table("", columns, tuple(rows), failing=frozenset(at for at, one in enumerate(grown) if one.over))
