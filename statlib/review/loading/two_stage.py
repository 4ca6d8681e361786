"""A review in two stages, a sheet for each: titles and abstracts, then the full texts of what was included.

The stages are two projects, because a study has one set of screenings. A record keeps its id in both. Where the sheets
contradict one another, the row is remarked on; nothing is carried over from one stage to the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from statlib.kernel.refusals import Refusal
from statlib.review.documents import AgreementThreshold, Provenance
from statlib.review.loading.recording import STARTED_AT, THRESHOLD_DEFAULT, Recorder, made_up_time
from statlib.review.loading.review import LoadedReview, LoadReason, Naming, RowRemark, replayed
from statlib.review.loading.spreadsheet import (
    FORMAT,
    FULL_TEXT,
    SheetRead,
    Spreadsheet,
    decisions_in,
    detected_columns,
)
from statlib.review.loading.tables import Row, Table, headers, only, others, read_table
from statlib.review.screening import Decision, ScreeningClass, screening_class, tally

STAGES = ("title and abstract", "full text")
RECORD, FINAL = "ID", "final_decision"
ARBITER = "Arbiter (final decision)"
NO_ID = ("", "na", "n/a")


@dataclass(frozen=True, slots=True)
class TwoStageReview:
    """Loader of a folder with both sheets. ``stage`` (one of ``STAGES``) is what ``load`` reads: the first, if None."""

    name: str | None = None
    stage: str | None = None
    threshold: AgreementThreshold = THRESHOLD_DEFAULT

    @property
    def format(self) -> str:
        return "two-stage review"

    @property
    def expects(self) -> str:
        return (
            "two files, one with columns ID, R1_decision, R2_decision and, if any, R3_arbitration, "
            f"one with columns {RECORD}, R1_full_text_response, R2_full_text_response and, if any, {FINAL}"
        )

    def recognises(self, folder: Path) -> bool:
        found = headers(folder).values()
        return any(map(detected_columns, found)) and any(map(_deciding, found))

    def load(self, folder: Path) -> LoadedReview:
        """One stage. Refuses ReviewNotNamed for a stage that is none, else as ``load_all``."""
        if self.stage not in (None, *STAGES):
            raise Refusal(LoadReason.ReviewNotNamed, f"{self.stage!r} is no stage; there are {' and '.join(STAGES)}")
        return self.load_all(folder)[STAGES.index(self.stage or STAGES[0])]

    def load_all(self, folder: Path) -> tuple[LoadedReview, ...]:
        """Both stages, titles and abstracts first.

        Refuses FormatUnknown and FormatAmbiguous unless exactly one file fits each, ExportUnreadable for one that
        cannot be read.
        """
        whole = self.name or folder.resolve().name
        first = Spreadsheet(name=f"{whole}, {STAGES[0]}", threshold=self.threshold).read(folder)
        second = self._full_texts(folder, f"{whole}, {STAGES[1]}")
        rest = others(headers(folder), first.file, second.file)
        return (
            replace(first.review, remarks=tuple(sorted(_not_followed_up(first, second, self.threshold))), unread=rest),
            replace(
                second.review,
                remarks=tuple(sorted([*second.review.remarks, *_not_included_before(first, second, self.threshold)])),
                unread=rest,
            ),
        )

    def _full_texts(self, folder: Path, name: str) -> SheetRead:
        found = headers(folder)
        path = only(folder, "full-text sheet", [p for p, h in found.items() if _deciding(h)], self.expects)
        reviewers = _deciding(found[path])
        final = FINAL if FINAL in found[path] else ""
        table = read_table(path, (RECORD, *reviewers, *([final] if final else [])))
        recorder = Recorder(Naming(FORMAT, name))
        for column in reviewers:
            recorder.join(_who(column), STARTED_AT)
        rows = _read(table, reviewers, final, recorder)
        review = recorder.finish(_provenance(table), self.threshold, problems=table.problems, remarks=table.remarks)
        return SheetRead(review, table.name, rows)


def _deciding(header: Sequence[str]) -> tuple[str, ...]:
    """The two decision columns of a full-text sheet; empty if the header is of another."""
    columns = tuple(name for name in header if FULL_TEXT.fullmatch(name))
    return columns if len(columns) == 2 and RECORD in header else ()


def _who(column: str) -> str:
    match = FULL_TEXT.fullmatch(column)
    return match["who"] if match else ARBITER


def _read(table: Table, reviewers: Sequence[str], final: str, recorder: Recorder) -> dict[str, int]:
    """{key: row number} of what was recorded"""
    rows: dict[str, int] = {}
    seq = 0
    for row in table.rows():
        anonymous = row[RECORD].lower() in NO_ID
        key = f"row {row.number}" if anonymous else row[RECORD]
        decisions = _decisions(table, row, reviewers, final)
        if key in rows:
            table.report(row.number, f"{RECORD} {key} occurs already in row {rows[key]}")
        elif isinstance(decisions, str):
            table.report(row.number, decisions)
        else:
            rows[key] = row.number
            if anonymous:
                table.remark(row.number, f"has no {RECORD}: it is known by its row")
            recorder.record(key, row.get("title") or f"Record {key} (no title in the sheet)", extra=row.values)
            for column, decision in decisions:
                seq += 1
                recorder.decide(seq, key, _who(column), decision, made_up_time(seq))
    return rows


def _decisions(table: Table, row: Row, reviewers: Sequence[str], final: str) -> list[tuple[str, Decision]] | str:
    """(column, decision) of both reviewers, and the final one where it had something to settle."""
    made = decisions_in(row, reviewers)
    settled = decisions_in(row, [final] if final else [])
    if isinstance(made, str) or isinstance(settled, str):
        return made if isinstance(made, str) else settled
    if not settled or [decision for _, decision in made] == [settled[0][1]] * len(reviewers):
        return made
    if len({decision for _, decision in made}) == 1 and len(made) == len(reviewers):
        table.remark(row.number, f"{final} is {settled[0][1]}, while both reviewers decided {made[0][1]}")
    return made + settled


def _included(sheet: SheetRead, threshold: AgreementThreshold) -> Mapping[str, bool]:
    """{key: whether its decisions include it}"""
    after = replayed(sheet.review.events)
    return {
        str(study.to_bson()["SourceKey"]): screening_class(*tally(after.get(study.id, ())), threshold)
        is ScreeningClass.INCLUDED
        for study in sheet.review.studies
    }


def _not_followed_up(first: SheetRead, second: SheetRead, threshold: AgreementThreshold) -> list[RowRemark]:
    return [
        RowRemark(first.file, first.rows[key], f"{RECORD} {key} was included, and is not in {second.file}")
        for key, included in _included(first, threshold).items()
        if included and key not in second.rows
    ]


def _not_included_before(first: SheetRead, second: SheetRead, threshold: AgreementThreshold) -> list[RowRemark]:
    before = _included(first, threshold)
    return [
        RowRemark(second.file, row, f"{RECORD} {key} was {'excluded' if key in before else 'never'} in {first.file}")
        for key, row in second.rows.items()
        if not key.startswith("row ") and not before.get(key, False)
    ]


def _provenance(table: Table) -> Provenance:
    return Provenance(
        source=f"Two-stage review, {STAGES[1]}: {table.source}",
        recorded=f"Records, reviewers and decisions. Where the two differ, {FINAL} is a third decision.",
        simulated=(
            f"Who made that third decision: it is {ARBITER}'s. Order and times of the decisions, which the sheet does "
            f"not record: row by row, the n-th decision n seconds after {STARTED_AT:%Y-%m-%d %H:%M} UTC."
        ),
    )
