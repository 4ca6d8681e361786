"""Rows under columns, and names with values. What a table shows stays readable where styles are stripped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from statlib.runbook.fragments.base import Fragment, Value, aligned, slotted, value_html, value_text
from statlib.runbook.fragments.lines import Quantity
from statlib.runbook.look import quantities as q

SLOT_MAX = 14  # characters of a unit that the stylesheet has a slot for
BLOCKS_FROM = 4  # columns from which a row becomes a block where there is no width for a table


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
            f'<th{self._role("columnheader")} scope="col"{aligned(numeric)}>{escape(column.name)}</th>'
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
            return slotted(value.text(), "")
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
            cells.append(f"<{tag}{kind}{label}{aligned(right[at])}>{self._value_html(value)}</{tag}>")
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
