"""Records as HTML: the first page, and the months' pages. Pure; one template for both.

A page is one file that loads nothing: styles and script are inside, the script named by its hash in the content
security policy. Without script every row is shown. Every text is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from statlib.runbook.look import quantities as q
from statlib.runbook.look import shapes
from statlib.runbook.look.shapes import Shape
from statlib.runbook.look.stylesheet import compact
from statlib.runbook.look.tokens import declarations
from statlib.runbook.look.verdicts import LOOKS
from statlib.runbook.site.ledger import Line, Month
from statlib.runbook.site.records import Measure, Outcome, RunRecord
from statlib.runbook.site.trends import Trend

INDEX_NAME = "index.html"
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_CHIPS: Mapping[Outcome, tuple[Shape, str]] = {
    Outcome.PASSED: (shapes.PASSED, "Passed"),
    Outcome.REHEARSAL: (shapes.REHEARSED, "Rehearsal"),
    Outcome.DRY: (shapes.DRY, "Dry run"),
    Outcome.FAILED: (shapes.FAILED, "Failed"),
    Outcome.REFUSED: (shapes.REFUSED, "Refused"),
    Outcome.STOPPED: (shapes.INTERRUPTED, "Interrupted or fault"),
}
_LABEL_CHARACTERS_MAX = 30


@dataclass(frozen=True, slots=True)
class Row:
    """A run as its row shows it."""

    run: RunRecord

    @property
    def address(self) -> str:
        """Every page is beside the archive's folders, so that one row serves them all."""
        return f"{quote(self.run.runbook)}/{quote(self.run.folder)}/report.html"

    @property
    def outcome(self) -> str:
        return self.run.outcome.value

    @property
    def shape(self) -> Shape:
        return LOOKS[self.run.verdict].shape if self.run.verdict is not None else shapes.FAULTED

    @property
    def started(self) -> str:
        return q.instant(self.run.started)

    @property
    def machine_time(self) -> str:
        return self.started.replace(" ", "T") + "Z"

    @property
    def took(self) -> str:
        return q.duration(self.run.duration_s) if self.run.duration_s is not None else ""

    @property
    def figures(self) -> tuple[Figure, ...]:
        return tuple(Figure(measure) for measure in self.run.shown)

    @property
    def summary(self) -> str:
        return "; ".join(
            f"{'✕ ' if one.over else ''}{one.value}{one.unit and q.NBSP}{one.unit} {one.label}" for one in self.figures
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and what it is of, the unit with the words, as the row has no room for a column of units."""

    measure: Measure

    @property
    def over(self) -> bool:
        return self.measure.over

    @property
    def value(self) -> str:
        return q.duration(self.measure.value) if self.measure.unit == "s" else q.number(self.measure.value)

    @property
    def unit(self) -> str:
        return "" if self.measure.unit == "s" else self.measure.unit

    @property
    def label(self) -> str:
        return self.measure.label[:1].lower() + self.measure.label[1:]

    @property
    def short(self) -> str:
        label = self.label
        return label if len(label) <= _LABEL_CHARACTERS_MAX else label[: _LABEL_CHARACTERS_MAX - 1].rstrip(" ,") + "…"


@dataclass(frozen=True, slots=True)
class MonthLink:
    """A month in the list of all: its pages, newest first, and how many runs it has."""

    name: str
    runs: str
    failed: int
    pages: tuple[str, ...]


def index_page(
    lines: Sequence[Line],
    months: Sequence[Month],
    month_items: Sequence[str],
    trends: Sequence[str],
    failures: Sequence[RunRecord],
) -> str:
    """The first page: ``lines`` newest first, of an archive that has ``months``. ``month_items`` and ``trends`` are as
    ``month_item`` and ``trend_item`` gave them."""
    total, failed = sum(month.runs for month in months), sum(month.failed for month in months)
    return _render(
        lines,
        title=f"{q.plural(total, 'run')}, {q.number(failed)} failed" if total else "No run yet",
        failures=[(Row(run), _day(run)) for run in failures],
        trends=_own("\n".join(trends)),
        months=_own("\n".join(month_items)),
        total=total,
        counts={month.name: month for month in months},
    )


def month_page(month: str, part: int, lines: Sequence[Line]) -> str:
    """One part of a month, newest first."""
    again = f", part {part}" if part > 1 else ""
    return _render(lines, title=f"{month_words(month)}{again}", total=len(lines), home=INDEX_NAME)


def month_page_name(month: str, part: int) -> str:
    return f"month-{month}.html" if part == 1 else f"month-{month}-{part}.html"


def month_words(month: str) -> str:
    """``March 2026``."""
    year, _, number = month.partition("-")
    return f"{_MONTHS[int(number) - 1]} {year}"


@cache
def look_digest() -> str:
    """Changes whenever pages would look otherwise, so that old ones are written again."""
    parts = (
        _css(),
        _read("site.js"),
        _read("templates/page.html.j2"),
        _read("templates/row.html.j2"),
        _read("pages.py"),
        _read("trends.py"),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def row(record: RunRecord) -> str:
    """The run's row, the same on every page."""
    return str(_rows_module().line(Row(record)))


def trend_item(trend: Trend) -> str:
    """A runbook's trend, for the list on the first page."""
    return str(_rows_module().trend(trend, _own(trend.svg()), Row(trend.last)))


def month_item(month: Month, parts: range) -> str:
    """A month and the way to its pages, for the list of all on the first page."""
    pages = tuple(month_page_name(month.name, part) for part in reversed(parts))
    link = MonthLink(month_words(month.name), q.plural(month.runs, "run"), month.failed, pages)
    return str(_rows_module().month_link(link))


def _render(
    lines: Sequence[Line],
    *,
    title: str,
    total: int,
    home: str = "",
    failures: Sequence[tuple[Row, str]] = (),
    trends: Markup | None = None,
    months: Markup | None = None,
    counts: Mapping[str, Month] | None = None,
) -> str:
    script = _read("site.js")
    outcomes = Counter(line.outcome for line in lines)
    return _template().render(
        title=title,
        home=home,
        css=_own(_css()),
        script=_own(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        symbols=_own(_symbols()),
        chips=[(outcome.value, *_CHIPS[outcome], outcomes[outcome]) for outcome in Outcome if outcomes[outcome]],
        runbooks=sorted({line.runbook for line in lines}),
        groups=[
            (
                month_words(month),
                _month_note(month, inside, counts or {}),
                _own("\n".join(line.html for line in inside)),
            )
            for month, inside in _by_month(lines)
        ],
        shown=len(lines),
        total=total,
        failures=failures,
        trends=trends,
        months=months,
    )


def _own(markup: str) -> Markup:
    """Only for what this package wrote or rendered: text of runs is escaped before it comes here."""
    return Markup(markup)  # noqa: S704


def _by_month(lines: Sequence[Line]) -> Iterator[tuple[str, Sequence[Line]]]:
    for month, inside in groupby(lines, lambda line: line.month):
        yield month, tuple(inside)


def _month_note(month: str, inside: Sequence[Line], counts: Mapping[str, Month]) -> str:
    whole = counts.get(month)
    runs = whole.runs if whole else len(inside)
    failed = whole.failed if whole else sum(line.outcome in (Outcome.FAILED, Outcome.STOPPED) for line in inside)
    here = f", {q.number(len(inside))} of them here" if len(inside) < runs else ""
    return f"{q.plural(runs, 'run')}, {q.number(failed)} failed{here}"


def _day(run: RunRecord) -> str:
    at = run.started
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}"


def _symbols() -> str:
    """Each shape once; rows refer to it."""
    return "".join(
        f'<symbol id="i-{shape.name}" viewBox="0 0 16 16">{shape.body}</symbol>'
        for shape in shapes.SHAPES
        if shape is not shapes.PENDING
    )


@cache
def _css() -> str:
    return compact(f":root{{{declarations()}}}{_read('site.css')}")


@cache
def _read(name: str) -> str:
    return (files("statlib.runbook.site") / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("statlib.runbook.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=q.number)
    environment.globals["loud"] = ("fail", "caution")
    return environment


@cache
def _template() -> Template:
    return _environment().get_template("page.html.j2")


@cache
def _rows_module() -> Any:
    return _environment().get_template("row.html.j2").module
