"""The Rayyan log: every decision in recorded order and at its recorded time, with the exported articles.

The articles file also holds each reviewer's final state. It is deliberately not read: the decisions come from the log
alone, so that the platform's own state can check them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from statlib.review.documents import AgreementThreshold, Provenance
from statlib.review.loading.recording import THRESHOLD_DEFAULT, Recorder, recorded_time
from statlib.review.loading.review import LoadedReview, Naming
from statlib.review.loading.tables import Row, Table, headers, only, others, read_table
from statlib.review.screening import Decision

FORMAT = "rayyan"
LOG_COLUMNS = ("seq", "created_at", "reviewer", "article_id", "kind", "key", "value")
ARTICLE_KEY = "article_id"
DECISION_KIND = "decision"
DECISIONS: Mapping[str, Decision] = {
    "1": Decision.INCLUDE,
    "-1": Decision.EXCLUDE,
    "0": Decision.RETRACT,  # "maybe": the reviewer no longer stands by either
    "deleted": Decision.RETRACT,
}


@dataclass(frozen=True, slots=True)
class RayyanLog:
    """Loader of a folder with a log and an articles file. ``name`` defaults to the folder's."""

    name: str | None = None
    threshold: AgreementThreshold = THRESHOLD_DEFAULT

    @property
    def format(self) -> str:
        return "Rayyan log"

    @property
    def expects(self) -> str:
        return f"a log with columns {', '.join(LOG_COLUMNS)} and an articles file with column {ARTICLE_KEY}"

    def recognises(self, folder: Path) -> bool:
        return any(_is_log(header) for header in headers(folder).values())

    def load(self, folder: Path) -> LoadedReview:
        """Decisions of every well-formed log row; labels and exclusion reasons are counted as ignored.

        An article that only the log mentions is loaded under a placeholder title. Refuses FormatUnknown without
        exactly the two files, ExportUnreadable for a file that cannot be read.
        """
        found = headers(folder)
        log = read_table(only(folder, "log", [p for p, h in found.items() if _is_log(h)], self.expects), LOG_COLUMNS)
        articles_path = only(folder, "articles file", [p for p, h in found.items() if _is_articles(h)], self.expects)
        articles = read_table(articles_path, (ARTICLE_KEY,))
        recorder = Recorder(Naming(FORMAT, self.name or folder.resolve().name))
        _read_articles(articles, recorder)
        described = recorder.studies
        ignored = _read_log(log, recorder)
        provenance = Provenance(
            source=f"Rayyan export: {log.source}, {articles.source}",
            recorded="Articles, reviewers, decisions, order and times. Maybe and deleted are taken as retractions.",
        )
        return recorder.finish(
            provenance,
            self.threshold,
            problems=[*articles.problems, *log.problems],
            ignored=ignored,
            untitled=recorder.studies - described,
            unread=others(found, log.name, articles.name),
        )

    def load_all(self, folder: Path) -> tuple[LoadedReview, ...]:
        return (self.load(folder),)


def _is_log(header: Sequence[str]) -> bool:
    return set(LOG_COLUMNS) <= set(header)


def _is_articles(header: Sequence[str]) -> bool:
    return ARTICLE_KEY in header and not _is_log(header)


def _read_articles(table: Table, recorder: Recorder) -> None:
    for key, row in table.keyed_rows(ARTICLE_KEY):
        recorder.record(key, row.get("title") or _placeholder(key), extra=row.values)


def _read_log(table: Table, recorder: Recorder) -> int:
    """Record the decisions; returns how many rows are of another kind."""
    ignored = 0
    for row in table.rows():
        if row["kind"] and row["kind"] != DECISION_KIND:
            ignored += 1
        elif (wrong := _read_decision(row, recorder)) is not None:
            table.report(row.number, wrong)
    return ignored


def _read_decision(row: Row, recorder: Recorder) -> str | None:
    """Record one decision, or say what is wrong with its row."""
    empty = [column for column in ("seq", "reviewer", "article_id", "kind") if not row[column]]
    if empty:
        return f"{empty[0]} is empty"
    if not row["seq"].isascii() or not row["seq"].isdigit():
        return f"seq {row['seq']!r} is not a whole number"
    seq = int(row["seq"])
    if recorder.recorded(seq):
        return f"seq {seq} occurs more than once"
    if (at := recorded_time(row["created_at"])) is None:
        return f"created_at {row['created_at']!r} is not an ISO 8601 time"
    if (decision := DECISIONS.get(row["value"])) is None:
        return f"value {row['value']!r} is not a decision ({', '.join(DECISIONS)})"
    key = row["article_id"]
    if not recorder.knows(key):
        recorder.record(key, _placeholder(key))
    recorder.decide(seq, key, row["reviewer"], decision, at)
    return None


def _placeholder(key: str) -> str:
    return f"Article {key} (title not exported)"
