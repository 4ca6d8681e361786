"""A two-reviewer spreadsheet: one row per record, a decision column for each reviewer, and perhaps one for an arbiter.

A spreadsheet records no times and no order but that of its rows. Both are made up, and the provenance says how. The
arbiter's decision is an ordinary third one. A folder with a second sheet, of full texts, is another format
(``two_stage``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from statlib.review.documents import AgreementThreshold, Provenance
from statlib.review.loading.recording import STARTED_AT, THRESHOLD_DEFAULT, Recorder, made_up_time
from statlib.review.loading.review import LoadedReview, Naming
from statlib.review.loading.tables import Row, Table, headers, only, others, read_table
from statlib.review.screening import Decision

FORMAT = "spreadsheet"
FULL_TEXT = re.compile(r"(?P<who>(?:r|reviewer)[ _-]?\d+)[ _-]full[ _-]?text[ _-](?:response|decision)", re.IGNORECASE)
"""Decision columns of a full-text sheet."""

MEANINGS: Mapping[str, Decision] = {
    "1": Decision.INCLUDE,
    "include": Decision.INCLUDE,
    "included": Decision.INCLUDE,
    "yes": Decision.INCLUDE,
    "2": Decision.EXCLUDE,
    "exclude": Decision.EXCLUDE,
    "excluded": Decision.EXCLUDE,
    "no": Decision.EXCLUDE,
    "maybe": Decision.RETRACT,
    "deleted": Decision.RETRACT,
}
"""What cells mean, in lower case; an empty cell is no decision. 0 is missing on purpose: it means either, by tool."""

_DECISION = re.compile(r"(?P<who>(?:r|reviewer)[ _-]?\d+)[ _-]decision", re.IGNORECASE)
_ARBITRATION = re.compile(
    r"(?:(?P<who>(?:r|reviewer)[ _-]?\d+)[ _-])?arbitration|(?P<arbiter>arbiter)(?:[ _-]decision)?", re.IGNORECASE
)
_RECORD = ("id", "record_id", "record id", "study_id", "study id")
_SEARCH = ("database", "search")


@dataclass(frozen=True, slots=True)
class SpreadsheetColumns:
    """Which column holds what, as the header spells it. ``reviewers`` are two; empty names are columns not there."""

    record: str
    reviewers: tuple[str, str]
    arbitration: str = ""
    title: str = ""
    search: str = ""

    @property
    def deciding(self) -> tuple[str, ...]:
        """Decision columns in the order in which a row's decisions are taken to be made."""
        return (*self.reviewers, self.arbitration) if self.arbitration else self.reviewers

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name in (self.record, *self.deciding, self.title, self.search) if name)


@dataclass(frozen=True, slots=True)
class SheetRead:
    """A review, the file it is from, and the row of each record by its key."""

    review: LoadedReview
    file: str
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Spreadsheet:
    """Loader of a folder with one such spreadsheet, saved as CSV. ``columns`` are found by their names if not given."""

    name: str | None = None
    columns: SpreadsheetColumns | None = None
    meanings: Mapping[str, Decision] | None = None
    threshold: AgreementThreshold = THRESHOLD_DEFAULT

    @property
    def format(self) -> str:
        return "two-reviewer spreadsheet"

    @property
    def expects(self) -> str:
        if self.columns is not None:
            return f"one file with columns {', '.join(self.columns.required)}"
        return "one file with columns ID, R1_decision, R2_decision and, if any, R3_arbitration"

    def recognises(self, folder: Path) -> bool:
        found = headers(folder).values()
        two_stage = self.columns is None and any(FULL_TEXT.fullmatch(name) for header in found for name in header)
        return not two_stage and any(self._columns(header) is not None for header in found)

    def load(self, folder: Path) -> LoadedReview:
        """Every well-formed row as a study with up to three decisions, in row order.

        Refuses FormatUnknown and FormatAmbiguous unless exactly one file fits, ExportUnreadable for one that cannot
        be read.
        """
        return self.read(folder).review

    def load_all(self, folder: Path) -> tuple[LoadedReview, ...]:
        return (self.load(folder),)

    def read(self, folder: Path) -> SheetRead:
        """``load``, with what ties its studies to their rows."""
        found = headers(folder)
        fitting = {path: columns for path, header in found.items() if (columns := self._columns(header))}
        path = only(folder, "spreadsheet", list(fitting), self.expects)
        columns = fitting[path]
        table = read_table(path, columns.required)
        recorder = Recorder(Naming(FORMAT, self.name or folder.resolve().name))
        for column in columns.deciding:
            recorder.join(_reviewer(column), STARTED_AT)
        rows = self._read(table, columns, recorder)
        review = recorder.finish(
            _provenance(table), self.threshold, problems=table.problems, unread=others(found, table.name)
        )
        return SheetRead(review, table.name, rows)

    def _columns(self, header: Sequence[str]) -> SpreadsheetColumns | None:
        if self.columns is None:
            return detected_columns(header)
        return self.columns if set(self.columns.required) <= set(header) else None

    def _read(self, table: Table, columns: SpreadsheetColumns, recorder: Recorder) -> dict[str, int]:
        """{key: row number} of what was recorded"""
        rows: dict[str, int] = {}
        seq = 0
        for key, row in table.keyed_rows(columns.record):
            decisions = self._decisions(row, columns)
            if isinstance(decisions, str):
                table.report(row.number, decisions)
                continue
            rows[key] = row.number
            title = row.get(columns.title) or f"Record {key} (no title in the spreadsheet)"
            recorder.record(key, title, search=row.get(columns.search), extra=row.values)
            for reviewer, decision in decisions:
                seq += 1
                recorder.decide(seq, key, reviewer, decision, made_up_time(seq))
        return rows

    def _decisions(self, row: Row, columns: SpreadsheetColumns) -> list[tuple[str, Decision]] | str:
        """(reviewer, decision) of each filled cell, or what is wrong with one."""
        decisions = decisions_in(row, columns.deciding, MEANINGS if self.meanings is None else self.meanings)
        if isinstance(decisions, str):
            return decisions
        return [(_reviewer(column), decision) for column, decision in decisions]


def decisions_in(
    row: Row, columns: Sequence[str], meanings: Mapping[str, Decision] = MEANINGS
) -> list[tuple[str, Decision]] | str:
    """(column, decision) of each filled cell, or what is wrong with one."""
    decisions = []
    for column in columns:
        if not (cell := row[column]):
            continue
        if (decision := meanings.get(cell.lower())) is None:
            return f"{column} {cell!r} is not a decision ({', '.join(meanings)}, or empty)"
        decisions.append((column, decision))
    return decisions


def detected_columns(header: Sequence[str]) -> SpreadsheetColumns | None:
    """The columns of a two-reviewer spreadsheet by their usual names, or None if they are not there, or not clearly."""
    deciding = [name for name in header if _DECISION.fullmatch(name)]
    arbitration = [name for name in header if _ARBITRATION.fullmatch(name) and name not in deciding]
    record = _first(header, _RECORD)
    if len(deciding) != 2 or len(arbitration) > 1 or not record:
        return None
    return SpreadsheetColumns(
        record=record,
        reviewers=(deciding[0], deciding[1]),
        arbitration=arbitration[0] if arbitration else "",
        title=_first(header, ("title",)),
        search=_first(header, _SEARCH),
    )


def _first(header: Sequence[str], names: Sequence[str]) -> str:
    return next((column for name in names for column in header if column.lower() == name), "")


def _reviewer(column: str) -> str:
    """The reviewer's name as the column gives it: ``R1`` of ``R1_decision``, a column of another form whole."""
    if match := _DECISION.fullmatch(column):
        return match["who"]
    if match := _ARBITRATION.fullmatch(column):
        return match["who"] or match["arbiter"] or column
    return column


def _provenance(table: Table) -> Provenance:
    return Provenance(
        source=f"Two-reviewer spreadsheet: {table.source}",
        recorded="Records, reviewers and decisions.",
        simulated=(
            "Order and times of the decisions, which the spreadsheet does not record: row by row, within a row the two "
            f"reviewers and then the arbiter, the n-th decision n seconds after {STARTED_AT:%Y-%m-%d %H:%M} UTC."
        ),
    )
