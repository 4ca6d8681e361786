"""Was every comparison exact, and what were reads served from meanwhile?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from statlib.runbook.fragments import Column, Figure, Table
from statlib.runbook.look import canvas as c
from statlib.runbook.look import quantities as q
from statlib.runbook.look import thinning
from statlib.runbook.look.canvas import SideLabel, Span, Width

MARKS_MAX = 40
BARS_MAX = 120


@dataclass(frozen=True)
class ParityPoint:
    """One comparison of a family's stored values with the authoritative calculation.

    ``exact`` is None where the comparison was put off.
    """

    at: datetime
    family: str
    exact: bool | None


@dataclass(frozen=True)
class ReadsInterval:
    """Bundle reads in the ``seconds`` after ``start`` (UTC): served from the statistics, or fallen back."""

    start: datetime
    seconds: float
    served: int
    fell_back: int


@dataclass(frozen=True)
class _Mark:
    """Comparisons of one family that fall on one place of the axis."""

    seconds: float
    exact: int
    mismatched: int
    put_off: int


def parity_over_time(
    comparisons: Sequence[ParityPoint],
    reads: Sequence[ReadsInterval],
    *,
    source: str,
    finding: str = "",
    over: Span | None = None,
) -> Figure:
    """A row of marks for each family, over the reads of the same time.

    A mark is solid where all its comparisons were exact, hollow where one was put off, and a cross where one
    differed. Refuses (``ValueError``) no comparison at all. ``over`` is the time that the report's figures share.
    """
    if not comparisons:
        raise ValueError("no parity comparison to draw")
    said = finding or _finding(comparisons, reads)
    span = _span(comparisons, reads, over)
    wide, narrow = c.drawn(
        "parity", "Parity comparisons and reads", said, lambda width: _plot(comparisons, reads, span, width)
    )
    merged = " Neighbouring comparisons share a mark." if len(comparisons) > MARKS_MAX else ""
    below = " Below: bundle reads, per second." if reads else ""
    return Figure(
        key="parity",
        title="Parity comparisons and reads",
        finding=said,
        what=(
            "Stored values against the authoritative calculation, UTC. Solid: exact. Hollow: a comparison was put "
            f"off. Cross: differed.{merged}{below} Source: {source}."
        ),
        svg_wide=wide,
        svg_narrow=narrow,
        numbers=_numbers(comparisons, reads),
    )


def _finding(comparisons: Sequence[ParityPoint], reads: Sequence[ReadsInterval]) -> str:
    compared = sum(point.exact is not None for point in comparisons)
    differed = sum(point.exact is False for point in comparisons)
    if not compared:
        parity = "No comparison took place"
    elif differed:
        parity = f"{q.number(differed)} of {q.plural(compared, 'comparison')} differed"
    else:
        parity = (
            f"All {q.plural(compared, 'comparison')} were exact" if compared > 1 else "The one comparison was exact"
        )
    if not reads:
        return parity
    fell_back, served = sum(part.fell_back for part in reads), sum(part.served for part in reads)
    return f"{parity}; {q.number(fell_back)} of {q.plural(served + fell_back, 'read')} fell back to the source"


def _span(comparisons: Sequence[ParityPoint], reads: Sequence[ReadsInterval], over: Span | None) -> Span:
    starts = [point.at for point in comparisons] + [part.start for part in reads]
    ends = [point.at for point in comparisons] + [part.start + timedelta(seconds=part.seconds) for part in reads]
    return Span.covering(over, min(starts), max(ends))


def _plot(
    comparisons: Sequence[ParityPoint],
    reads: Sequence[ReadsInterval],
    span: Span,
    width: Width,
) -> Drawing:
    families = list(dict.fromkeys(point.family for point in comparisons))
    row, top = (34, 10) if width.narrow else (22, 24)
    rows_px, reads_px = row * len(families), (60 if reads else 0)
    between = 44 if reads else 0
    fig = c.canvas(width.px, top + rows_px + between + reads_px + 30)
    ax = c.axes_px(fig, width.left, top, width.plot_px, rows_px)
    ax.set_ylim(len(families) - 0.5, -0.5)
    ax.set_yticks([])
    ax.grid(False)
    for at, family in enumerate(families):
        _family_row(ax, at, [point for point in comparisons if point.family == family], span, width)
    c.time_axis(ax, span, width, labels=not reads)
    if not width.narrow:
        ax.annotate(
            "compared", (1, 1), xycoords="axes fraction", xytext=(width.right - 4, 6), textcoords="offset points",
            ha="right", color=c.MUTED,
        )  # fmt: skip
    if reads:
        below = c.axes_px(fig, width.left, top + rows_px + between, width.plot_px, reads_px)
        _reads(below, reads, span, width, reads_px)
        c.time_axis(below, span, width)
    return fig


def _marks(points: Sequence[ParityPoint], span: Span, most: int) -> list[_Mark]:
    places: dict[int, list[ParityPoint]] = {}
    for point in points:
        place = min(most - 1, int(span.offset(point.at) / span.seconds * most))
        places.setdefault(place, []).append(point)
    alone = len(points) <= most
    return [
        _Mark(
            span.offset(own[0].at) if alone and len(own) == 1 else (place + 0.5) * span.seconds / most,
            sum(point.exact is True for point in own),
            sum(point.exact is False for point in own),
            sum(point.exact is None for point in own),
        )
        for place, own in sorted(places.items())
    ]


def _family_row(ax: Axes, at: int, points: Sequence[ParityPoint], span: Span, width: Width) -> None:
    marks = _marks(points, span, MARKS_MAX if not width.narrow else MARKS_MAX // 2)
    size = 6.0 if width.narrow else 7.4
    height = at + (0.18 if width.narrow else 0)
    bad = [mark for mark in marks if mark.mismatched]
    late = [mark for mark in marks if mark.put_off and not mark.mismatched]
    good = [mark for mark in marks if not mark.put_off and not mark.mismatched]
    solid: dict[str, Any] = {"color": c.FIRST, "markeredgewidth": 0, "markersize": size}
    hollow: dict[str, Any] = {
        "color": "none",
        "markeredgecolor": c.FIRST,
        "markeredgewidth": 1.4,
        "markersize": size - 1.4,
    }
    cross: dict[str, Any] = {"color": c.FAIL, "markeredgewidth": 2.2, "markersize": size + 1}
    for shape, own, look in (("s", good, solid), ("s", late, hollow), ("x", bad, cross)):
        if own:
            ax.plot([m.seconds for m in own], [height] * len(own), shape, ls="", clip_on=False, **look)
    compared, differed = sum(m.exact + m.mismatched for m in marks), sum(m.mismatched for m in marks)
    said = f"{q.number(compared)}, {q.number(differed)} differ"
    colour = c.FAIL if differed else c.MUTED
    end = span.seconds
    if width.narrow:
        c.label(ax, 0, at, points[0].family, (0, 6), color=c.INK)
        c.label(ax, end, at, said, (0, 6), color=colour, ha="right")
    else:
        c.label(ax, end, at, points[0].family, (12, 0), va="center", color=c.INK)
        short = f"{q.number(differed)} differ" if differed else q.number(compared)
        c.label(ax, end, at, short, (width.right - 4, 0), va="center", ha="right", color=colour)


def _reads(ax: Axes, reads: Sequence[ReadsInterval], span: Span, width: Width, height: float) -> None:
    stretches = thinning.stretches_of(len(reads), BARS_MAX if not width.narrow else BARS_MAX // 2)
    parts = [[reads[at] for at in stretch] for stretch in stretches]
    left = [span.offset(part[0].start) for part in parts]
    spans = [sum(piece.seconds for piece in part) for part in parts]
    served = [sum(piece.served for piece in part) / wide for part, wide in zip(parts, spans, strict=True)]
    back = [sum(piece.fell_back for piece in part) / wide for part, wide in zip(parts, spans, strict=True)]
    bar_s = [wide * 0.86 for wide in spans]
    ax.bar(left, served, width=bar_s, align="edge", color=c.FIRST, alpha=0.55)
    fallen = [at for at, rate in enumerate(back) if rate]
    ax.bar(
        [left[at] for at in fallen],
        [back[at] for at in fallen],
        bottom=[served[at] for at in fallen],
        width=[bar_s[at] for at in fallen],
        align="edge",
        color=c.SECOND,
    )
    tops = [served[at] + back[at] for at in fallen]
    ax.plot(
        [left[at] + bar_s[at] / 2 for at in fallen], tops, "v", ls="", markersize=6, color=c.SECOND, markeredgewidth=0,
        clip_on=False, zorder=4,
    )  # fmt: skip
    c.count_axis(ax, max(s + b for s, b in zip(served, back, strict=True)), ticks=2)
    c.note_above(ax, "Reads per second", color=c.INK, fontweight="bold")
    totals = sum(piece.served for piece in reads), sum(piece.fell_back for piece in reads)
    if width.narrow:
        c.note_above(ax, f"{q.number(totals[0])} served, ▾ {q.number(totals[1])} fell back", right=True)
        return
    top = ax.get_ylim()[1]
    sides = [SideLabel(top * 0.3, f"{q.number(totals[0])} served", c.FIRST, bold=True)]
    sides.append(SideLabel(top * 0.3 + top * 18 / height, f"▾ {q.number(totals[1])} fell back", c.SECOND))
    c.side_labels(ax, height, sides)


def _numbers(comparisons: Sequence[ParityPoint], reads: Sequence[ReadsInterval]) -> Table:
    columns = (
        Column("Family, or reads"),
        Column("Exact, or served", numeric=True),
        Column("Differed, or fell back", numeric=True),
        Column("Put off", numeric=True),
    )
    rows: list[tuple[str | int | None, ...]] = []
    for family in dict.fromkeys(point.family for point in comparisons):
        own = [point.exact for point in comparisons if point.family == family]
        rows.append((family, own.count(True), own.count(False), own.count(None)))
    if reads:
        rows.append(("Bundle reads", sum(part.served for part in reads), sum(part.fell_back for part in reads), None))
    return Table("", columns, tuple(rows))
