"""Small exports, written as reviewers' tools write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from statlib.review.loading.review import LoadedReview

LOG_HEADER = "seq,created_at,reviewer,article_id,kind,key,value"
ARTICLES = "article_id,title,year\n10,First,2001\n11,Second,2002\n"
SHEET_HEADER = "ID,title,R1_decision,R2_decision,R3_arbitration"
FULL_TEXT_HEADER = "title,ID,R2_full_text_response,R1_full_text_response,final_decision"
ANSWERS_HEADER = "session_id,submitted_at,coder,article_id,question_id,answer"

WriteExport = Callable[..., Path]


@pytest.fixture
def write_rayyan(tmp_path: Path) -> WriteExport:
    """write_rayyan(*log rows, articles=…, header=…) → folder"""

    def write(*rows: str, articles: str = ARTICLES, header: str = LOG_HEADER) -> Path:
        folder = tmp_path / "my_review"
        folder.mkdir(exist_ok=True)
        (folder / "log.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        (folder / "articles.csv").write_text(articles, encoding="utf-8")
        return folder

    return write


@pytest.fixture
def write_sheet(tmp_path: Path) -> WriteExport:
    """write_sheet(*rows, header=…) → folder"""

    def write(*rows: str, header: str = SHEET_HEADER) -> Path:
        folder = tmp_path / "my_sheet"
        folder.mkdir(exist_ok=True)
        (folder / "screening.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        return folder

    return write


@pytest.fixture
def write_csv(tmp_path: Path) -> WriteExport:
    """write_csv(file name, *lines) → folder"""

    def write(name: str, *lines: str) -> Path:
        folder = tmp_path / "my_export"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder

    return write


def told(review: LoadedReview) -> list[tuple[str, str, str]]:
    """(record, reviewer, decision) of the events in order, by the names that the source uses."""
    names = {member.investigator_id: member.name for member in review.project.memberships}
    keys = {study.id: study.to_bson()["SourceKey"] for study in review.studies}
    return [(keys[e.study_id], names[e.investigator_id], e.decision.value) for e in review.events]
