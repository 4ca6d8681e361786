"""Sessions as they were filed: who, on which record, when, and what they answered, with damage reported per row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from statlib.review.loading.recording import made_up_time, recorded_time
from statlib.review.loading.tables import Row, Table

SESSION, CODER, ARTICLE, TIME = "session_id", "coder", "article_id", "submitted_at"
QUESTION, ANSWER = "question_id", "answer"
SESSION_COLUMNS = (SESSION, CODER, ARTICLE)
ANSWER_COLUMNS = (*SESSION_COLUMNS, QUESTION, ANSWER)
SECONDS_BETWEEN = 3_600
"""Sessions of an export without times are taken to be filed so far apart."""

_WITHDRAWN = re.compile(r"(?P<who>.+?)\s+excluded?\b.*", re.IGNORECASE)
"""A coder's name with a note that the session does not count, such as ``C09 exclude (recoded)``."""


@dataclass(slots=True)
class Filed:
    """One session. ``withdrawn``: the export says that it does not count. Answers by question, in file order."""

    key: str
    row: int
    coder: str
    withdrawn: bool
    article: str
    at: datetime
    answers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How an export writes its times. ``name`` is for the provenance."""

    name: str
    read: Callable[[str], datetime | None]


def read_sessions(table: Table) -> tuple[dict[str, Filed], TimeFormat | None]:
    """The sessions by key, in file order, and how their times are written; None if they have none.

    Works on a file of sessions and on one of answers alike: there a session is told by its first row.
    """
    rows = list(table.rows())
    times = time_format([row[TIME] for row in rows]) if TIME in table.header else None
    answers_file = QUESTION in table.header
    sessions: dict[str, Filed] = {}
    for row in rows:
        key = row[SESSION]
        if answers_file and key in sessions:
            continue
        read = _session(row, times, len(sessions))
        if key in sessions:
            table.report(row.number, f"{SESSION} {key} occurs already in row {sessions[key].row}")
        elif isinstance(read, Filed):
            sessions[key] = read
        elif not answers_file:  # otherwise it is reported where the answers are read
            table.report(row.number, read)
    return sessions, times


def read_answers(table: Table, sessions: Mapping[str, Filed], questions: Mapping[str, str] | None) -> None:
    """Give the sessions their answers. ``questions``: those there are, None to take every question that occurs."""
    rows: dict[tuple[str, str], int] = {}
    for row in table.rows():
        wrong = _answer_damage(row, sessions, questions)
        if wrong is None and (earlier := rows.get((row[SESSION], row[QUESTION]))) is not None:
            wrong = f"{QUESTION} {row[QUESTION]} of session {row[SESSION]} is answered already in row {earlier}"
        if wrong is not None:
            table.report(row.number, wrong)
            continue
        rows[row[SESSION], row[QUESTION]] = row.number
        sessions[row[SESSION]].answers[row[QUESTION]] = row[ANSWER]


def time_format(texts: Sequence[str]) -> TimeFormat:
    """The way of writing times that most of ``texts`` follow; month first where day first would do as well."""
    return max(_TIME_FORMATS, key=lambda offered: sum(offered.read(text) is not None for text in texts))


def _session(row: Row, times: TimeFormat | None, before: int) -> Filed | str:
    """The session that a row describes, or what is wrong with it. ``before``: how many there are so far."""
    empty = [column for column in SESSION_COLUMNS if not row[column]]
    if empty:
        return f"{empty[0]} is empty"
    at = made_up_time(SECONDS_BETWEEN * (before + 1)) if times is None else times.read(row[TIME])
    if at is None:
        return f"{TIME} {row[TIME]!r} is not a time" + (f" written as {times.name}" if times else "")
    withdrawn = _WITHDRAWN.fullmatch(row[CODER])
    coder = withdrawn["who"] if withdrawn else row[CODER]
    return Filed(row[SESSION], row.number, coder, withdrawn is not None, row[ARTICLE], at)


def _answer_damage(row: Row, sessions: Mapping[str, Filed], questions: Mapping[str, str] | None) -> str | None:
    empty = [column for column in ANSWER_COLUMNS if not row[column]]
    if empty:
        return f"{empty[0]} is empty"
    if (session := sessions.get(row[SESSION])) is None:
        return f"{SESSION} {row[SESSION]} is of no session that could be read"
    if session.article != row[ARTICLE]:
        return f"{ARTICLE} is {row[ARTICLE]}, while session {session.key} is on {session.article}"
    if _coder(row[CODER]) != session.coder:
        return f"{CODER} is {row[CODER]}, while session {session.key} is {session.coder}'s"
    if questions is not None and row[QUESTION] not in questions:
        return f"{QUESTION} {row[QUESTION]} is no question of the export"
    return None


def _coder(text: str) -> str:
    withdrawn = _WITHDRAWN.fullmatch(text)
    return withdrawn["who"] if withdrawn else text


def _written(pattern: str) -> Callable[[str], datetime | None]:
    def read(text: str) -> datetime | None:
        try:
            return datetime.strptime(text, pattern).replace(tzinfo=UTC)
        except ValueError:
            return None

    return read


_TIME_FORMATS = (
    TimeFormat("ISO 8601", recorded_time),
    TimeFormat("month/day/year", _written("%m/%d/%Y %H:%M:%S")),
    TimeFormat("day/month/year", _written("%d/%m/%Y %H:%M:%S")),
)
