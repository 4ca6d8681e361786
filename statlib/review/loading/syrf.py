"""The SyRF screening export: one row per study, its decisions as lists joined by semicolons, in the order made.

A row names its reviewers by their ids, or does not: then they are told apart by their positions in the list, which the
provenance says. A third decision reconciles the first two, and is an ordinary one. The platform's own verdict on a
study is not read into it: it is held against the decisions, and a contradiction is remarked on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from statlib.review.documents import AgreementThreshold, Provenance
from statlib.review.loading.recording import STARTED_AT, THRESHOLD_DEFAULT, Recorder, made_up_time, recorded_time
from statlib.review.loading.review import LoadedReview, Naming
from statlib.review.loading.tables import Row, Table, headers, only, others, read_table
from statlib.review.screening import Decision, ScreeningClass, screening_class

FORMAT = "syrf"
JOINT = ";"
STUDY = "StudyId"
DECISION_LISTS = ("ScreeningDecisions", "InvestigatorDecisions")
VERDICTS = ("ScreeningStatus", "ScreeningDecision")
IDS, NAMES, TIMES, SEARCH = "InvestigatorIds", "InvestigatorNames", "DateTimeOfScreenings", "SystematicSearchName"

MEANINGS: Mapping[str, Decision] = {"included": Decision.INCLUDE, "excluded": Decision.EXCLUDE}
MISSPELLED: Mapping[str, str] = {"exluded": "excluded", "inluded": "included"}
"""What people typed into real exports, and meant; a row that needs it is remarked on."""

_BIBLIOGRAPHIC: Mapping[str, str] = {"PublicationName": "journal", "Year": "year", "Doi": "doi", "Url": "url"}


@dataclass(frozen=True, slots=True)
class _Made:
    """One decision as its row records it. ``at`` is None where the export has no times."""

    reviewer: str
    name: str  # empty if the export does not say
    by_position: bool
    decision: Decision
    at: datetime | None


@dataclass(frozen=True, slots=True)
class SyrfScreening:
    """Loader of a folder with one such export. ``name`` defaults to the folder's."""

    name: str | None = None
    threshold: AgreementThreshold = THRESHOLD_DEFAULT

    @property
    def format(self) -> str:
        return "SyRF screening export"

    @property
    def expects(self) -> str:
        return f"one file with columns {STUDY} and {' or '.join(DECISION_LISTS)}"

    def recognises(self, folder: Path) -> bool:
        return any(_decision_list(header) for header in headers(folder).values())

    def load(self, folder: Path) -> LoadedReview:
        """Every well-formed row as a study with its decisions.

        In order of their recorded times; without times row by row, as joined. Refuses FormatUnknown and
        FormatAmbiguous unless exactly one file fits, ExportUnreadable for one that cannot be read.
        """
        found = headers(folder)
        fitting = [path for path, header in found.items() if _decision_list(header)]
        path = only(folder, "screening export", fitting, self.expects)
        table = read_table(path, (STUDY, _decision_list(found[path])))
        recorder = Recorder(Naming(FORMAT, self.name or folder.resolve().name))
        made = self._read(table, recorder)
        _record(made, recorder)
        return recorder.finish(
            _provenance(table, made),
            self.threshold,
            problems=table.problems,
            remarks=table.remarks,
            unread=others(found, table.name),
        )

    def load_all(self, folder: Path) -> tuple[LoadedReview, ...]:
        return (self.load(folder),)

    def _read(self, table: Table, recorder: Recorder) -> list[tuple[str, _Made]]:
        """(study, decision) in the order of rows and lists; the studies are recorded on the way."""
        read: list[tuple[str, _Made]] = []
        for key, row in table.keyed_rows(STUDY):
            made = _decisions(row)
            if isinstance(made, str):
                table.report(row.number, made)
                continue
            extra = {**row.values, **{to: row.get(column) for column, to in _BIBLIOGRAPHIC.items()}}
            title = row.get("Title") or f"Study {key} (no title exported)"
            recorder.record(key, title, search=row.get(SEARCH), extra=extra)
            read += [(key, decision) for decision in made]
            self._remark(table, row, made)
        return read

    def _remark(self, table: Table, row: Row, made: Sequence[_Made]) -> None:
        for cell in _parts(row[_decision_list(table.header)]):
            if cell.lower() in MISSPELLED:
                table.remark(row.number, f"{cell!r} is read as {MISSPELLED[cell.lower()].capitalize()!r}")
        verdict = next((row.get(column) for column in VERDICTS if row.get(column)), "")
        included = {decision.reviewer: decision.decision is Decision.INCLUDE for decision in made}
        amounts_to = screening_class(len(included), sum(included.values()), self.threshold)
        if verdict in (ScreeningClass.INCLUDED, ScreeningClass.EXCLUDED) and verdict != amounts_to:
            table.remark(row.number, f"is said to be {verdict}, while its decisions amount to {amounts_to}")


def _decision_list(header: Sequence[str]) -> str:
    """The column that lists the decisions; empty if the header is not of this format."""
    return next((column for column in DECISION_LISTS if STUDY in header and column in header), "")


def _parts(cell: str) -> list[str]:
    return [part.strip() for part in cell.split(JOINT)] if cell else []


def _decisions(row: Row) -> list[_Made] | str:
    """The row's decisions in the order joined, or what is wrong with it."""
    column = next(column for column in DECISION_LISTS if column in row.values)
    cells = _parts(row[column])
    decisions = []
    for cell in cells:
        lower = cell.lower()
        if (decision := MEANINGS.get(MISSPELLED.get(lower, lower))) is None:
            return f"{column} {cell!r} is not a decision ({', '.join(MEANINGS)})"
        decisions.append(decision)
    lists = {name: _parts(row.get(name)) for name in (IDS, NAMES, TIMES)}
    for name, parts in lists.items():
        if len(parts) != len(cells) and (parts or (name == TIMES and TIMES in row.values)):
            return f"{column} lists {len(cells)}, {name} {len(parts)}"
    times = [recorded_time(part) for part in lists[TIMES]]
    if None in times:
        return f"{TIMES} {lists[TIMES][times.index(None)]!r} is not an ISO 8601 time"
    ids, names = lists[IDS] or [""] * len(cells), lists[NAMES] or [""] * len(cells)
    return [
        _Made(
            reviewer=ids[place] or f"Reviewer {place + 1} (by position)",
            name=names[place] if ids[place] else "",
            by_position=not ids[place],
            decision=decision,
            at=times[place] if times else None,
        )
        for place, decision in enumerate(decisions)
    ]


def _record(made: Sequence[tuple[str, _Made]], recorder: Recorder) -> None:
    """Number the decisions in recorded order: by time, and as read where times are equal or missing."""
    ordered = sorted(made, key=lambda of: of[1].at or STARTED_AT)
    for seq, (key, decision) in enumerate(ordered, 1):
        at = decision.at or made_up_time(seq)
        recorder.join(decision.reviewer, at, name=decision.name)
        recorder.decide(seq, key, decision.reviewer, decision.decision, at)


def _provenance(table: Table, made: Sequence[tuple[str, _Made]]) -> Provenance:
    timed = TIMES in table.header
    simulated = []
    if any(decision.by_position for _, decision in made):
        simulated.append(
            "Who decided, where no id is exported: the n-th decision on every study is taken to be reviewer n's, "
            "a third one a reconciling reviewer's."
        )
    if not timed:
        simulated.append(
            "Order between studies, and times, neither of which is exported: row by row, the n-th decision n seconds "
            f"after {STARTED_AT:%Y-%m-%d %H:%M} UTC."
        )
    recorded = ["Studies, decisions and their order on each study", *(["reviewers"] if IDS in table.header else [])]
    return Provenance(
        source=f"SyRF screening export: {table.source}",
        recorded=", ".join([*recorded, *(["times"] if timed else [])]) + ".",
        simulated=" ".join(simulated),
    )
