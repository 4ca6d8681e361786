"""What a step shows: tables, status lines, gates, progress and figures, as values that render themselves.

Each fragment gives ``text/html`` and, beside it, ``text/plain`` that says the same in words: a host that
strips styles, a terminal and a log all stay readable. The stylesheet is emitted once, by
``stylesheet_fragment()``; a report embeds the very same fragments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from urllib.parse import quote

from statlib.evidence.results import Comparison, GateResult
from statlib.runbook.look import quantities as q
from statlib.runbook.look import shapes
from statlib.runbook.look.shapes import Shape, status_html
from statlib.runbook.look.stylesheet import notebook_css

NOTHING = "–"
SLOT_MAX = 14  # characters of a unit that the stylesheet has a slot for
BLOCKS_FROM = 4  # columns from which a row becomes a block where there is no width for a table
LONG_S = 120.0
RIGHT = 'style="text-align:right"'


class Fragment(ABC):
    """Something that shows itself in a notebook, in a report and in a terminal."""

    @abstractmethod
    def html(self) -> str:
        """The markup, without the ``.statlib`` element around it; every text in it is escaped."""

    @abstractmethod
    def text(self) -> str:
        """The same in plain text."""

    def __html__(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f'<div class="statlib">{self.html()}</div>'

    def _repr_mimebundle_(
        self, include: Container[str] | None = None, exclude: Container[str] | None = None
    ) -> dict[str, str]:
        bundle = {"text/html": self._repr_html_(), "text/plain": self.text()}
        kept = {kind: body for kind, body in bundle.items() if not include or kind in include}
        return {kind: body for kind, body in kept.items() if not exclude or kind not in exclude}


@dataclass(frozen=True, repr=False)
class Stylesheet(Fragment):
    """The one ``<style>`` of a notebook; plain text has nothing to say about it."""

    def html(self) -> str:
        return f"<style>{notebook_css()}</style>"

    def text(self) -> str:
        return ""

    def _repr_html_(self) -> str:
        return self.html()


def stylesheet_fragment() -> Stylesheet:
    """Show this once, when a run opens; every later fragment relies on it."""
    return Stylesheet()


@dataclass(frozen=True, repr=False)
class Code(Fragment):
    """A command, a path or an identifier."""

    content: str

    def html(self) -> str:
        return f"<code>{escape(self.content)}</code>"

    def text(self) -> str:
        return self.content


@dataclass(frozen=True, repr=False)
class Quantity(Fragment):
    """A number with its unit; ``decimals`` as ``quantities.number`` takes it."""

    value: float
    unit: str = ""
    decimals: int | None = None

    def html(self) -> str:
        shown = q.number(self.value, self.decimals)
        return _slotted(shown, self.unit) if self.unit else shown

    def text(self) -> str:
        return q.with_unit(self.value, self.unit, self.decimals)


@dataclass(frozen=True, repr=False)
class StatusLine(Fragment):
    """A state in words with its shape, and what there is to say about it."""

    shape: Shape
    words: str
    detail: str = ""

    def html(self) -> str:
        detail = f' <span class="soft">{escape(self.detail)}</span>' if self.detail else ""
        return f'<div class="line">{status_html(self.shape, self.words)}{detail}</div>'

    def text(self) -> str:
        return f"{self.words}: {self.detail}" if self.detail else self.words


@dataclass(frozen=True, repr=False)
class RefusalLine(Fragment):
    """A typed no and what to do about it."""

    reason: str
    detail: str
    remedy: str

    def html(self) -> str:
        line = StatusLine(shapes.REFUSED, f"Refused: {self.reason}", self.detail).html()
        return f'{line}<p class="remedy">{escape(self.remedy)}</p>'

    def text(self) -> str:
        return "\n".join(part for part in (f"Refused: {self.reason}", self.detail, self.remedy) if part)


Value = str | int | float | datetime | Fragment | None


@dataclass(frozen=True)
class Column:
    """``unit`` stands in every cell, so that a cell read alone is complete. ``numeric`` aligns right."""

    name: str
    unit: str = ""
    decimals: int | None = None
    numeric: bool = False

    def cell(self, value: Value, decimals: int | None = None) -> Value:
        """The value in this column's form; ``decimals`` holds where the column itself states none."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return Quantity(value, self.unit, self.decimals if self.decimals is not None else decimals)


@dataclass(frozen=True, repr=False)
class Table(Fragment):
    """Rows under named columns; the first column names the row. ``failing`` holds indexes of failed rows.

    Refuses (``ValueError``) a row whose length differs from the columns'.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    failing: frozenset[int] = frozenset()
    slim: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.caption!r}: a row of {len(row)} under {len(self.columns)} columns")

    def html(self) -> str:
        right = [self._is_numeric(at) for at in range(len(self.columns))]
        head = "".join(
            f'<th{self._role("columnheader")} scope="col"{_aligned(numeric)}>{escape(column.name)}</th>'
            for column, numeric in zip(self.columns, right, strict=True)
        )
        body = "".join(self._row_html(at, row, right) for at, row in enumerate(self.rows))
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        look = " ".join(name for name in ("slim" if self.slim else "", self._slot()) if name)
        group, row_role = self._role("rowgroup"), self._role("row")
        classes = f' class="{look}"' if look else ""
        table = (
            f"<table{self._role('table')}{classes}>{caption}"
            f"<thead{group}><tr{row_role}>{head}</tr></thead><tbody{group}>{body}</tbody></table>"
        )
        return f'<div class="rows">{table}</div>' if self._becomes_blocks else table

    @property
    def _becomes_blocks(self) -> bool:
        return len(self.columns) >= BLOCKS_FROM

    def _role(self, role: str) -> str:
        """Said where the stylesheet may change an element's display, which drops what it means by itself."""
        return f' role="{role}"' if self._becomes_blocks else ""

    def text(self) -> str:
        right = [self._is_numeric(at) for at in range(len(self.columns))]
        shown = [[value_text(value) for value in self._cells(row)] for row in self.rows]
        lines = [[column.name for column in self.columns], *shown]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.columns))]
        aligned = (
            "  ".join(
                cell.rjust(width) if to_right else cell.ljust(width)
                for cell, width, to_right in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in lines
        )
        return "\n".join([*([self.caption] if self.caption else []), *aligned])

    def _cells(self, row: tuple[Value, ...]) -> list[Value]:
        return [column.cell(v, d) for column, v, d in zip(self.columns, row, self._decimals(), strict=True)]

    def _decimals(self) -> list[int]:
        """Numbers of one column share their decimals, so that they line up at the point."""
        plain = ([row[at] for row in self.rows] for at in range(len(self.columns)))
        return [
            max((q.natural_decimals(value) for value in column if isinstance(value, int | float)), default=0)
            for column in plain
        ]

    def _value_html(self, value: Value) -> str:
        """Where a column mixes units, a number without one keeps the room for it."""
        if isinstance(value, Quantity) and not value.unit and self._slot():
            return _slotted(value.text(), "")
        return value_html(value)

    def _slot(self) -> str:
        """The class that gives units a fixed width, where a column mixes them."""
        for at in range(len(self.columns)):
            units = {value.unit for row in self.rows if isinstance(value := row[at], Quantity)}
            if len(units) > 1:
                return f"u{min(SLOT_MAX, max(map(len, units)))}"
        return ""

    def _is_numeric(self, at: int) -> bool:
        values = [row[at] for row in self.rows if row[at] is not None]
        plain = bool(values) and all(isinstance(v, int | float | Quantity) for v in values)
        return self.columns[at].numeric or plain

    def _row_html(self, index: int, row: tuple[Value, ...], right: Sequence[bool]) -> str:
        cells = []
        for at, value in enumerate(self._cells(row)):
            label = f' data-l="{escape(self.columns[at].name)}"' if self._becomes_blocks and at else ""
            tag, kind = ("th", f'{self._role("rowheader")} scope="row"') if at == 0 else ("td", self._role("cell"))
            cells.append(f"<{tag}{kind}{label}{_aligned(right[at])}>{self._value_html(value)}</{tag}>")
        bad = ' class="bad"' if index in self.failing else ""
        return f"<tr{self._role('row')}{bad}>{''.join(cells)}</tr>"


@dataclass(frozen=True, repr=False)
class KeyValues(Fragment):
    """Names and values in two columns where there is room. ``one_column`` suits long values."""

    pairs: tuple[tuple[str, Value], ...]
    one_column: bool = False

    @classmethod
    def of(cls, mapping: Mapping[str, Value]) -> KeyValues:
        return cls(tuple(mapping.items()))

    def html(self) -> str:
        rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{value_html(v)}</dd></div>" for name, v in self.pairs)
        return f'<dl class="pairs{" one" if self.one_column else ""}">{rows}</dl>'

    def text(self) -> str:
        width = max((len(name) for name, _ in self.pairs), default=0)
        return "\n".join(f"{name.ljust(width)}  {value_text(v)}" for name, v in self.pairs)


@dataclass(frozen=True, repr=False)
class Progress(Fragment):
    """How far a long wait has come. ``total`` and ``rate_per_s`` are None while they are unknown.

    ``waiting_for`` says what is being polled, and ``remaining_s`` how long that will take if it keeps its rate.
    """

    what: str
    done: float
    total: float | None
    unit: str
    rate_per_s: float | None = None
    remaining_s: float | None = None
    waiting_for: str = ""

    def html(self) -> str:
        share = self._share()
        bar = (
            f'<div class="bar" aria-hidden="true"><span style="width:{100 * share:.1f}%"></span></div>'
            if share is not None
            else ""
        )
        parts = " · ".join(f'<span class="unbroken">{escape(part)}</span>' for part in self._parts())
        waiting = f'<div class="note">Waiting for {escape(self.waiting_for)}</div>' if self.waiting_for else ""
        return f'<div class="line"><b>{escape(self.what)}</b>{bar}<div class="soft">{parts}</div>{waiting}</div>'

    def text(self) -> str:
        waiting = [f"waiting for {self.waiting_for}"] if self.waiting_for else []
        return f"{self.what}: " + ", ".join([*self._parts(), *waiting])

    def _share(self) -> float | None:
        return None if not self.total else min(1.0, max(0.0, self.done / self.total))

    def _parts(self) -> Iterable[str]:
        of = f" of {q.number(self.total)}" if self.total is not None else ""
        share = self._share()
        yield f"{q.number(self.done)}{of}{q.NBSP}{self.unit}" + (
            f" ({floor_percent(share)}{q.NBSP}%)" if share is not None else ""
        )
        if self.rate_per_s is not None:
            yield q.with_unit(self.rate_per_s, f"{self.unit}/s")
        if self.remaining_s is not None:
            yield f"{q.duration(self.remaining_s)} remaining"


@dataclass(frozen=True)
class GateValues:
    """A gate's two numbers as shown: rounded together, so that they still compare as they do."""

    limit: str
    limit_unit: str
    measured: str
    measured_unit: str

    @classmethod
    def of(cls, gate: GateResult) -> GateValues:
        """Long times are said in days, hours or minutes, unless that would make two different ones equal."""
        sign = "" if gate.comparison is Comparison.EXACTLY else f"{gate.comparison.value}{q.NBSP}"
        if gate.measured is None:
            return cls(sign + q.number(gate.threshold), gate.unit, "not measured", "")
        if gate.unit == "s" and gate.threshold >= LONG_S:
            limit, measured = q.duration(gate.threshold), q.duration(gate.measured)
            if limit != measured or gate.threshold == gate.measured:
                return cls(sign + limit, "", measured, "")
        decimals = q.decimals_that_agree(gate.measured, gate.threshold, gate.comparison.holds)
        shown = q.number(gate.measured, decimals)
        return cls(sign + q.number(gate.threshold, decimals), gate.unit, shown, gate.unit)


@dataclass(frozen=True, repr=False)
class GateTable(Fragment):
    """Every gate in declared order: threshold, measured value, result, and the raw data that it came from.

    ``links_below`` is the folder that raw data is linked from, as the page sees it; None links nothing.
    """

    gates: tuple[GateResult, ...]
    links_below: str | None = None

    def html(self) -> str:
        columns = (("Gate", False), ("Threshold", True), ("Measured", True), ("Result", False), ("Raw data", False))
        head = "".join(
            f'<th role="columnheader" scope="col"{_aligned(numeric)}>{_slotted(name, "") if numeric else name}</th>'
            for name, numeric in columns
        )
        rows = "".join(self._row(gate) for gate in self.gates)
        slot = max((len(gate.unit) for gate in self.gates), default=0)
        blocks = " rows" if self.links_below is None else ""  # a report's page has its own way with narrow gates
        return (
            f'<div class="gates{blocks} u{min(slot, SLOT_MAX)}"><table role="table"><thead role="rowgroup">'
            f'<tr role="row">{head}</tr></thead><tbody role="rowgroup">{rows}</tbody></table></div>'
        )

    def text(self) -> str:
        numeric = (Column("Threshold", numeric=True), Column("Measured", numeric=True))
        rows: list[tuple[Value, ...]] = []
        for gate in self.gates:
            shown = GateValues.of(gate)
            limit = f"{shown.limit} {shown.limit_unit}".strip()
            measured = f"{shown.measured} {shown.measured_unit}".strip()
            rows.append((gate.title, limit, measured, "Pass" if gate.passed else "Fail"))
        return Table("", (Column("Gate"), *numeric, Column("Result")), tuple(rows)).text()

    def _row(self, gate: GateResult) -> str:
        shown = GateValues.of(gate)
        note = f'<span class="note">{escape(gate.note)}</span>' if gate.note else ""
        status = status_html(shapes.PASSED, "Pass") if gate.passed else status_html(shapes.FAILED, "Fail")
        bad = "" if gate.passed else ' class="bad"'
        limit, measured = _slotted(shown.limit, shown.limit_unit), _slotted(shown.measured, shown.measured_unit)
        return (
            f'<tr role="row"{bad}><th role="rowheader" scope="row">{escape(gate.title)}{note}</th>'
            f'<td role="cell" class="num t" {RIGHT} data-l="threshold">{limit}</td>'
            f'<td role="cell" class="num m" {RIGHT} data-l="measured">{measured}</td>'
            f'<td role="cell" class="r">{status}</td><td role="cell" class="raw">{self._sources(gate)}</td></tr>'
        )

    def _sources(self, gate: GateResult) -> str:
        return "<br>".join(self._source(path.strip()) for path in gate.source.split(",") if path.strip())

    def _source(self, path: str) -> str:
        shown = f"<code>{escape(path.rsplit('/', 1)[-1])}</code>"
        if self.links_below is None:
            return shown
        return f'<a href="{escape(inside(self.links_below + path))}">{shown}</a>'


@dataclass(frozen=True, repr=False)
class Figure(Fragment):
    """One question, drawn wide (880 px) and narrow (350 px), with what was found above it.

    ``finding`` is the bold line; ``what`` says what is plotted, in which unit, by which method and from which
    source. ``numbers`` is the table that folds out below. The two SVGs come from ``look.themed_svg``.
    """

    key: str
    title: str
    finding: str
    what: str
    svg_wide: str
    svg_narrow: str
    numbers: Table

    def html(self) -> str:
        return self.numbered(None)

    def numbered(self, number: int | None) -> str:
        """The figure as the report's ``number``-th; an unnumbered one stands in a notebook cell."""
        name = f"Figure {number}" if number is not None else self.title
        above = f"<span>{name}</span>" if number is not None else ""
        anchor = f' id="fig{number}"' if number is not None else ""
        return (
            f'<figure class="fig-box" data-figure="{escape(self.key)}"{anchor}><figcaption>{above}'
            f"<b>{escape(self.finding)}</b><span>{escape(self.what)}</span></figcaption>"
            f'<div class="wide">{self.svg_wide}</div><div class="narrow">{self.svg_narrow}</div>'
            f"<details><summary>The numbers of {escape(name if number is not None else 'this figure')}</summary>"
            f"{self.numbers.html()}</details></figure>"
        )

    def text(self) -> str:
        return "\n".join([self.finding, self.what, "", self.numbers.text()])


def value_html(value: Value) -> str:
    """A table's or a list's value as markup."""
    if isinstance(value, Fragment):
        return value.html()
    return escape(value_text(value))


def value_text(value: Value) -> str:
    """A table's or a list's value as words."""
    if value is None:
        return NOTHING
    if isinstance(value, Fragment):
        return value.text()
    if isinstance(value, datetime):
        return q.instant(value, seconds=True)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else q.number(value)


def floor_percent(share: float) -> int:
    """Rounded down: 100 % is shown only when everything is done."""
    return int(100 * share)


def inside(path: str) -> str:
    """A link that cannot leave the bundle: an absolute, outward or schemed path becomes an inert anchor."""
    parts = path.replace("\\", "/").split("/")
    outward = parts[0] == "" or ".." in parts or ":" in parts[0]
    return "#gates" if outward else quote(path)


def _slotted(shown: str, unit: str) -> str:
    """A number and its unit in a slot of its own, so that digits line up under each other."""
    return f'<span class="q">{escape(shown)}<i>{escape(q.NBSP + unit) if unit else ""}</i></span>'


def _aligned(right: bool) -> str:
    return f' class="num" {RIGHT}' if right else ""


__all__ = [
    "Code", "Column", "Figure", "Fragment", "GateTable", "GateValues", "KeyValues", "Progress", "Quantity",
    "RefusalLine", "StatusLine", "Stylesheet", "Table", "Value", "inside", "stylesheet_fragment",
]  # fmt: skip
