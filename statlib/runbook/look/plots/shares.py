"""What is each of these made of? One bar a row, divided into its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from statlib.runbook.fragments import Column, Figure, Table
from statlib.runbook.look import canvas as c
from statlib.runbook.look import quantities as q
from statlib.runbook.look.canvas import Width

ROWS_MAX = 18  # of six parts each, all with their numbers: as many as the bytes of a figure hold
ROW_PX, BAR_AT, BAR_SHARE = 44.0, 0.66, 0.46  # a row holds its name above its bar
NAME_PX = 340.0  # a longer name is cut: it fits the narrow drawing, and many of them into its bytes
LABEL_PX = 34.0  # least length of a part that carries its number
LEGEND_PX, LETTER_PX = 22.0, 7.0  # height of a legend's line; width of a letter, generously


@dataclass(frozen=True)
class Part:
    """One part of every bar: ``name`` as people say it, and how it looks."""

    name: str
    colour: str
    density: float


@dataclass(frozen=True)
class Row:
    """One bar: ``amounts`` per part's name; parts that are not named are empty."""

    name: str
    amounts: Mapping[str, int]

    @property
    def whole(self) -> int:
        return sum(self.amounts.values())


_LOOKS = ((c.FIRST, 0.95), (c.FIRST, 0.35), (c.SECOND, 0.9), (c.SECOND, 0.35), (c.CONTEXT, 0.6))
_LAST = (c.CONTEXT, 0.2)


def parts(*names: str) -> tuple[Part, ...]:
    """Parts with the house's looks: first what everybody waits for, last what nobody has touched."""
    if len(names) > len(_LOOKS) + 1:
        raise ValueError(f"at most {len(_LOOKS) + 1} parts can be told apart")
    looks = (*_LOOKS[: len(names) - 1], _LAST)
    return tuple(Part(name, *look) for name, look in zip(names, looks, strict=True))


def shares(
    key: str, title: str, rows: Sequence[Row], of: Sequence[Part], *, finding: str, source: str, unit: str
) -> Figure:
    """Bars of equal scale, one per row, with a legend of the parts that occur. ``unit``: what is counted, in plural.

    Draws the first ``ROWS_MAX`` rows and says so; the table has them all. Refuses (``ValueError``) no rows at all, and
    an amount of a part that is not in ``of``.
    """
    if not rows:
        raise ValueError(f"{title}: nothing to draw")
    known = {part.name for part in of}
    if unknown := sorted({name for row in rows for name in row.amounts} - known):
        raise ValueError(f"parts without a look: {', '.join(unknown)}")
    present = [part for part in of if any(row.amounts.get(part.name) for row in rows)] or list(of[:1])
    shown = rows[:ROWS_MAX]
    wide, narrow = c.drawn(key, title, finding, lambda width: _plot(shown, present, width))
    left_out = f" The first {q.number(ROWS_MAX)} of {q.number(len(rows))} are drawn." if len(rows) > ROWS_MAX else ""
    return Figure(
        key=key,
        title=title,
        finding=finding,
        what=f"{unit.capitalize()} per row, bars of one scale.{left_out} Source: {source}.",
        svg_wide=wide,
        svg_narrow=narrow,
        numbers=Table(
            "",
            (Column(""), *(Column(part.name.capitalize(), numeric=True) for part in of), Column("All", numeric=True)),
            tuple((row.name, *(row.amounts.get(part.name, 0) for part in of), row.whole) for row in rows),
        ),
    )


def _plot(rows: Sequence[Row], present: Sequence[Part], width: Width) -> Drawing:
    legend = _places([part.name for part in present], width.px - 8)
    head = LEGEND_PX * (legend[-1][1] + 1) + 10
    left, right = (4.0, 44.0) if width.narrow else (4.0, 70.0)
    plot_px = width.px - left - right
    fig = c.canvas(width.px, head + ROW_PX * len(rows) + 8)
    _legend(fig, present, legend, width)
    ax = c.axes_px(fig, left, head, plot_px, ROW_PX * len(rows))
    ax.set_axis_off()
    most = max(1, *(row.whole for row in rows))
    ax.set_xlim(0, most)
    ax.set_ylim(len(rows), 0)
    _bars(ax, rows, present)
    for at, row in enumerate(rows):
        _words(ax, at, row, present, plot_px / most)
    return fig


def _bars(ax: Axes, rows: Sequence[Row], present: Sequence[Part]) -> None:
    """Part by part: equal marks that follow one another become one path, or many rows would not fit into a figure."""
    starts = [0] * len(rows)
    for part in present:
        for at, row in enumerate(rows):
            if amount := row.amounts.get(part.name, 0):
                ax.barh(
                    at + BAR_AT, amount, BAR_SHARE, left=starts[at], color=part.colour, alpha=part.density,
                    edgecolor=c.PAPER, linewidth=1, joinstyle="round", clip_on=False,
                )  # fmt: skip
            starts[at] += amount


def _words(ax: Axes, at: int, row: Row, present: Sequence[Part], px_per_unit: float) -> None:
    middle, start = at + BAR_AT, 0
    c.label(ax, 0, at + 0.22, c.fitted(row.name, NAME_PX), va="center", color=c.INK)
    for part in present:
        amount = row.amounts.get(part.name, 0)
        text = q.number(amount)
        if amount and amount * px_per_unit >= max(LABEL_PX, 9.0 * len(text)):
            light = part.density > 0.8
            c.label(ax, start + amount / 2, middle, text, ha="center", va="center", color=c.PAPER if light else c.INK)
        start += amount
    c.label(ax, start, middle, q.number(row.whole), (8, 0), va="center", color=c.MUTED)


def _places(names: Sequence[str], room_px: float) -> list[tuple[float, int]]:
    """(pixels from the left, line) of each entry of a legend that is as wide as there is room."""
    places, at, line = [], 0.0, 0
    for name in names:
        needed = 24 + LETTER_PX * len(name)
        if at and at + needed > room_px:
            at, line = 0.0, line + 1
        places.append((at, line))
        at += needed + 12
    return places


def _legend(fig: Drawing, present: Sequence[Part], places: Sequence[tuple[float, int]], width: Width) -> None:
    lines = places[-1][1] + 1
    ax = c.axes_px(fig, 4, 2, width.px - 8, LEGEND_PX * lines)
    ax.set_axis_off()
    ax.set_xlim(0, width.px - 8)
    ax.set_ylim(lines, 0)
    for part, (at, line) in zip(present, places, strict=True):
        ax.plot([at + 5], [line + 0.5], "s", markersize=9, color=part.colour, alpha=part.density, mew=0)
        c.label(ax, at + 5, line + 0.5, part.name, (10, 0), va="center", color=c.INK)
