"""The report of one run: everything that the page shows, and the page.

``render_report`` is pure. The page is one file that loads nothing (its content security policy says so), has
no script, and stays under ``REPORT_BYTES_MAX``: outputs of cells that do not fit are replaced by a sentence
that says so, and the bundle's notebook keeps them. Verdict, gates, figures and timeline are never left out.
Invariant: where any data was simulated, or a run was a rehearsal, the first screen says it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache, partial

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from statlib.evidence.entries import StepOutcome
from statlib.evidence.results import GateResult
from statlib.evidence.verdicts import Verdict
from statlib.runbook.fragments import (
    Code,
    Column,
    Figure,
    GateTable,
    GateValues,
    KeyValues,
    Quantity,
    Table,
    Value,
)
from statlib.runbook.look import quantities as q
from statlib.runbook.look import shapes
from statlib.runbook.look.outputs import CellOutput, output_html, prose_html
from statlib.runbook.look.shapes import Shape, status_html
from statlib.runbook.look.stylesheet import report_css
from statlib.runbook.look.verdicts import headline, look_of

REPORT_BYTES_MAX = 250_000
RAW_FOLDER = "evidence/"
CODE_CHARACTERS_MAX = 4_000
LEFT_OUT = "Left out here for its size; notebook.ipynb of this bundle has it."
ROOM_FOR_CLOSING_BYTES = 2_000


STEP_LOOKS: Mapping[StepOutcome | None, tuple[Shape, str]] = {
    StepOutcome.DONE: (shapes.PASSED, "Done"),
    StepOutcome.FAILED: (shapes.FAILED, "Failed"),
    StepOutcome.REFUSED: (shapes.REFUSED, "Refused"),
    StepOutcome.DRY_RUN: (shapes.DRY, "Dry run only"),
    StepOutcome.SKIPPED: (shapes.PENDING, "Not needed"),
    None: (shapes.INTERRUPTED, "Incomplete"),
}


class DataKind(StrEnum):
    RECORDED = "recorded"
    SIMULATED = "simulated"


@dataclass(frozen=True)
class NextStep:
    """What to do: ``lead`` is the instruction, ``text`` its reason, ``command`` what to type."""

    lead: str
    text: str = ""
    command: str = ""


@dataclass(frozen=True)
class Halt:
    """Why a run ended before its gates: a refusal's reason, an interruption or a fault, and the remedy."""

    cause: str
    detail: str
    remedy: str
    at_step: str = ""


@dataclass(frozen=True)
class Highlight:
    """One number that the first screen shows large."""

    label: str
    value: float
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class StepEvent:
    """Something that happened within a step."""

    at: datetime
    text: str


@dataclass(frozen=True)
class TimelineStep:
    """``outcome`` and ``duration_s`` are None for a step that the journal opens and never closes."""

    name: str
    started: datetime
    duration_s: float | None
    outcome: StepOutcome | None
    note: str = ""
    events: tuple[StepEvent, ...] = ()

    def status(self) -> Markup:
        return _trusted(status_html(*STEP_LOOKS[self.outcome]))


@dataclass(frozen=True)
class DataSource:
    """Where data came from. ``amount`` is None where it cannot be counted."""

    name: str
    kind: DataKind
    use: str
    amount: int | None = None
    unit: str = ""

    @property
    def simulated(self) -> bool:
        return self.kind is DataKind.SIMULATED


@dataclass(frozen=True)
class BundleFile:
    """A file of the run's folder: ``size_bytes`` is None for one that is still being written."""

    path: str
    size_bytes: int | None
    sha256: str = ""


@dataclass(frozen=True)
class Integrity:
    """What proves the bundle. ``assurance`` says against whom it holds, in one or two sentences."""

    journal_head: str
    verify_command: str
    assurance: str
    signed_by: str = ""
    anchored_in: str = ""
    files: tuple[BundleFile, ...] = ()


@dataclass(frozen=True)
class ReportCell:
    """One executed (or not executed) code cell with the prose before it."""

    number: int
    title: str
    code: str
    prose: str = ""
    outputs: tuple[CellOutput, ...] = ()
    duration_s: float | None = None
    executed: bool = True


@dataclass(frozen=True)
class Report:
    """Everything that the page shows. Times are UTC; texts are plain and are escaped by the page.

    ``subject`` is what the runbook tries, as the headline names it ("Soak"). ``rehearsal`` is empty for the
    real thing, else the reason why this was only a rehearsal; ``soak`` says whether a soak is what it rehearsed.
    ``ended`` is None while a run is unfinished.
    """

    runbook: str
    run_id: str
    deployment: str
    started: datetime
    ended: datetime | None
    principal: str
    capability: str
    applied: bool
    verdict: Verdict
    lead: str
    integrity: Integrity
    subject: str = ""
    deployment_note: str = ""
    took_note: str = ""
    rehearsal: str = ""
    soak: bool = False
    halt: Halt | None = None
    highlights: tuple[Highlight, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    gates: tuple[GateResult, ...] = ()
    figures: tuple[Figure, ...] = ()
    timeline: tuple[TimelineStep, ...] = ()
    provenance: tuple[DataSource, ...] = ()
    parameters: tuple[tuple[str, Value], ...] = ()
    environment: tuple[tuple[str, Value], ...] = ()
    cells: tuple[ReportCell, ...] = ()
    version: str = ""
    sample_notice: str = ""
    figure_of_gate: Mapping[str, str] | None = None

    @property
    def failing(self) -> tuple[GateResult, ...]:
        return tuple(gate for gate in self.gates if not gate.passed)

    @property
    def passing_count(self) -> int:
        return len(self.gates) - len(self.failing)

    @property
    def unclosed(self) -> int:
        return sum(step.outcome is None for step in self.timeline)

    @property
    def simulated(self) -> tuple[DataSource, ...]:
        return tuple(source for source in self.provenance if source.simulated)

    @property
    def headline(self) -> str:
        return headline(
            self.verdict,
            subject=self.subject,
            failed=len(self.failing),
            gates=len(self.gates),
            cause=self.halt.cause if self.halt else "",
        )

    def figure_number(self, key: str) -> int | None:
        """The number of the figure called ``key``, or of the one that shows the gate ``key``."""
        wanted = (self.figure_of_gate or {}).get(key, key)
        return next((n for n, figure in enumerate(self.figures, start=1) if figure.key == wanted), None)


def render_report(report: Report) -> str:
    """The page as one self-contained HTML document, at most ``REPORT_BYTES_MAX`` bytes of UTF-8.

    Guarantees: no script, no address with a scheme, every text escaped. Raises ``KeyError`` for a verdict that
    has no shape.
    """
    without_cells = _page(report, ())
    room = REPORT_BYTES_MAX - ROOM_FOR_CLOSING_BYTES - len(without_cells.encode())
    return _page(report, tuple(_shown_cells(report, room)))


@dataclass(frozen=True)
class ShownCell:
    """A cell ready for the page."""

    cell: ReportCell
    prose: Markup
    code: str
    outputs: tuple[Markup, ...]
    aside: str

    def weight(self) -> int:
        parts = (self.prose, self.code, *self.outputs, self.cell.title, self.aside)
        return sum(len(part.encode()) for part in parts) + 400 + 30 * len(self.outputs)


def _shown_cells(report: Report, room: int) -> Iterator[ShownCell]:
    """Cells in order, each as whole as the room that is left allows; nothing is dropped without a word."""
    numbers = {figure.key: n for n, figure in enumerate(report.figures, start=1)}
    reserve = 600
    for position, cell in enumerate(report.cells):
        left = room - reserve * (len(report.cells) - position - 1)
        outputs = []
        for output in cell.outputs:
            outputs.append(_trusted(output_html(output, max(0, left // 2), numbers)))
            left -= len(outputs[-1].encode())
        aside = _cell_aside(cell)
        shown = ShownCell(cell, _trusted(prose_html(cell.prose)), _clipped(cell.code), tuple(outputs), aside)
        if shown.weight() > room - reserve * (len(report.cells) - position - 1):
            shown = ShownCell(cell, _trusted(""), LEFT_OUT, (), aside)
        room -= shown.weight()
        yield shown


def _cell_aside(cell: ReportCell) -> str:
    if not cell.executed:
        return "not executed"
    return q.duration(cell.duration_s) if cell.duration_s is not None else ""


def _clipped(code: str) -> str:
    if len(code) <= CODE_CHARACTERS_MAX:
        return code
    left_out = q.number(len(code) - CODE_CHARACTERS_MAX)
    return f"{code[:CODE_CHARACTERS_MAX]}\n… {left_out} further characters: see notebook.ipynb of this bundle"


def _page(report: Report, cells: tuple[ShownCell, ...]) -> str:
    look = look_of(report.verdict)
    return _template().render(
        r=report,
        look=look,
        css=_trusted(report_css()),
        gate_table=GateTable(report.gates, links_below=RAW_FOLDER),
        failing=[(gate, GateValues.of(gate), report.figure_number(gate.key)) for gate in report.failing],
        files=_files_table(report.integrity.files),
        parameters=KeyValues(report.parameters),
        environment=KeyValues(report.environment),
        integrity=KeyValues(tuple(_proofs(report.integrity)), one_column=True),
        passed_status=_trusted(status_html(shapes.PASSED, f"{q.plural(report.passing_count, 'gate')} passed")),
        cells=cells,
        foot=_trusted(_css_string(_foot(report))),
        figures=[_trusted(figure.numbered(n)) for n, figure in enumerate(report.figures, start=1)],
    )


def _foot(report: Report) -> str:
    head = " ".join(q.grouped(report.integrity.journal_head[:16], 4))
    return f"{report.runbook} {report.run_id[:8]}" + (f", journal head {head}" if head else "")


def _trusted(markup: str) -> Markup:
    """Only for markup that a fragment, a shape or the cleaning of outputs made: each escapes what it is given."""
    return Markup(markup)  # noqa: S704


def _css_string(text: str) -> str:
    """A CSS string in which everything but plain letters and digits is an escape, so that none can end it."""
    return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in text) + '"'


def _proofs(integrity: Integrity) -> Iterator[tuple[str, Value]]:
    yield "Journal head", Code(" ".join(q.grouped(integrity.journal_head))) if integrity.journal_head else "none"
    yield "Signed by", integrity.signed_by or "nobody"
    yield "Anchored in", integrity.anchored_in or "nothing"
    yield "Verify", Code(integrity.verify_command)


def _files_table(files: tuple[BundleFile, ...]) -> Table:
    columns = (Column("File"), Column("Size", numeric=True), Column("SHA-256 begins"))
    rows = tuple(
        (
            Code(file.path),
            "this page" if file.size_bytes is None else _size(file.size_bytes),
            Code(" ".join(q.grouped(file.sha256[:16], 4))) if file.sha256 else "in the manifest",
        )
        for file in files
    )
    return Table("", columns, rows)


def _size(count: int) -> Value:
    amount, _, unit = q.size(count).partition(q.NBSP)
    return Quantity(float(amount.replace(",", "")), unit, len(amount.partition(".")[2]))


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("statlib.runbook"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"duration": q.duration, "instant": q.instant, "number": q.number, "plural": q.plural}
    environment.filters.update(filters, sentence=q.sentence)
    environment.globals["clock"] = partial(q.instant, seconds=True)
    return environment.get_template("report.html.j2")
