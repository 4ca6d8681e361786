"""The reconciled answers: one row per record, a column ``…_agreed`` for each question that was reconciled.

Such a file names its columns in words of its own. Which question a column belongs to is told by its neighbours
``…_primary`` and ``…_secondary``: they repeat what two coders answered, and the question is the one where they do.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from statlib.review.loading.annotation.filed import ARTICLE, Filed
from statlib.review.loading.tables import Row, Table

AGREED = "_agreed"
SIDES = ("primary", "secondary")
MISSING = ("", "NA")
SHARE_MIN = 0.75
"""What share of a column's cells must repeat the coders' answers to a question to be that question's."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One reconciled record. Answers by question, spelt as the coders spelt them where they gave the same."""

    row: int
    article: str
    answers: dict[str, str] = field(default_factory=dict)


def is_reconciled(header: Sequence[str]) -> bool:
    return ARTICLE in header and any(name.endswith(AGREED) for name in header)


def read_reconciled(table: Table, sessions: Iterable[Filed], questions: Iterable[str]) -> list[Reconciled]:
    """The reconciled records in file order. A column that is no question's is remarked on, with the header's row."""
    rows = list(table.keyed_rows(ARTICLE))
    counted = [session for session in sessions if not session.withdrawn]
    spelling = _spellings(session.answers for session in counted)
    by_coder = {
        (session.article, session.coder): {key: squeezed(answer) for key, answer in session.answers.items()}
        for session in counted
    }
    columns: dict[str, str] = {}
    for column in table.header:
        if column.endswith(AGREED):
            question = _question([row for _, row in rows], column.removesuffix(AGREED), by_coder, questions)
            if question is None:
                table.remark(1, f"{column} is left out: its coders' columns repeat the answers to no question")
            elif question in columns.values():
                table.remark(1, f"{column} is left out: question {question} has a reconciled column already")
            else:
                columns[column] = question
    return [
        Reconciled(
            row.number,
            article,
            {
                question: spelling.get((question, squeezed(row[column])), row[column])
                for column, question in columns.items()
                if row[column] not in MISSING
            },
        )
        for article, row in rows
    ]


def squeezed(text: str) -> str:
    """Without what tools lose on the way: letters beyond ASCII become spaces, and spaces become one."""
    ascii_only = "".join(char if char.isascii() else " " for char in unicodedata.normalize("NFKD", text))
    return re.sub(r"\s+", " ", ascii_only).strip()


def _question(
    rows: Sequence[Row],
    name: str,
    by_coder: Mapping[tuple[str, str], Mapping[str, str]],
    questions: Iterable[str],
) -> str | None:
    """The question whose answers the coders' columns of ``name`` repeat best, and well enough.

    ``by_coder``: {(record, coder): {question: squeezed answer}}.
    """
    filled: Counter[str] = Counter()
    repeated: Counter[str] = Counter()
    known = list(questions)
    for row in rows:
        for side in SIDES:
            answers = by_coder.get((row[ARTICLE], row.get(f"coder_id_{side}")))
            if answers is None:
                continue
            text = row.get(f"{name}_{side}")
            cell = "" if text in MISSING else squeezed(text)
            for question in known:
                answer = answers.get(question, "")
                filled[question] += bool(cell or answer)
                repeated[question] += bool(cell) and cell == answer
    shares = sorted((repeated[question] / filled[question], question) for question in filled if filled[question])
    if not shares or shares[-1][0] < SHARE_MIN:
        return None
    return shares[-1][1]


def _spellings(answers: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], str]:
    """{(question, squeezed answer): its most frequent spelling}"""
    counted: dict[tuple[str, str], Counter[str]] = {}
    for of_session in answers:
        for question, answer in of_session.items():
            counted.setdefault((question, squeezed(answer)), Counter())[answer] += 1
    return {key: spellings.most_common(1)[0][0] for key, spellings in counted.items()}
