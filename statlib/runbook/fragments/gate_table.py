"""A run's gates: what was asked, what was measured, and the raw data that it came from."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from statlib.evidence.results import Comparison, GateResult
from statlib.runbook.fragments.base import RIGHT, Fragment, Value, aligned, slotted
from statlib.runbook.fragments.tables import SLOT_MAX, Column, Table
from statlib.runbook.look import quantities as q
from statlib.runbook.look import shapes
from statlib.runbook.look.shapes import status_html

LONG_S = 120.0


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
            f'<th role="columnheader" scope="col"{aligned(numeric)}>{slotted(name, "") if numeric else name}</th>'
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
        limit, measured = slotted(shown.limit, shown.limit_unit), slotted(shown.measured, shown.measured_unit)
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


def inside(path: str) -> str:
    """A link that cannot leave the bundle: an absolute, outward or schemed path becomes an inert anchor."""
    parts = path.replace("\\", "/").split("/")
    outward = parts[0] == "" or ".." in parts or ":" in parts[0]
    return "#gates" if outward else quote(path)
