"""Study records and decisions of a loaded review, as rows in PostgreSQL: what the shipped data backfills repair.

Rows arrive as an export wrote them: identifiers uncanonical, decisions not summed up. Loading a project again replaces
nothing: what is there of it stays, and only studies that are new are added, without their decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

from statlib.backfills import SCHEMA
from statlib.kernel.settings import Settings
from statlib.postgres.connection import connected
from statlib.postgres.migrations import require_schema
from statlib.postgres.transactions import Limits, Session, transact
from statlib.review.loading.review import LoadedReview

ROWS_AT_A_TIME = 5_000
_STUDIES = """
INSERT INTO statlib_study_record (project_id, study_id, title, year, doi)
SELECT %(project)s, * FROM unnest(%(ids)s::uuid[], %(titles)s::text[], %(years)s::integer[], %(dois)s::text[])
ON CONFLICT DO NOTHING
"""
_DECISIONS = """
INSERT INTO statlib_decision (project_id, study_id, reviewer_id, decision)
SELECT %(project)s, * FROM unnest(%(studies)s::uuid[], %(reviewers)s::uuid[], %(decisions)s::text[])
"""


@dataclass(frozen=True, slots=True)
class CopiedRecords:
    """How many rows were added. ``decisions`` is 0 for a project that had some."""

    studies: int
    decisions: int


def copy_records(review: LoadedReview, settings: Settings) -> CopiedRecords:
    """Add the review's rows, in one transaction. Refuses as ``connected`` and ``require_schema`` do."""
    project = review.project.id

    def body(session: Session) -> CopiedRecords:
        known = session.required(
            "SELECT EXISTS (SELECT 1 FROM statlib_decision WHERE project_id = %(project)s) AS known", project=project
        )["known"]
        studies = 0
        for start in range(0, len(review.studies), ROWS_AT_A_TIME):
            rows = [study.to_bson() for study in review.studies[start : start + ROWS_AT_A_TIME]]
            studies += session.run(
                _STUDIES,
                project=project,
                ids=[study.id for study in review.studies[start : start + ROWS_AT_A_TIME]],
                titles=[_text(row.get("Title")) or "" for row in rows],
                years=[_year(row.get("Year")) for row in rows],
                dois=[_text(row.get("Doi")) for row in rows],
            )
        decisions = 0
        for start in range(0, 0 if known else len(review.events), ROWS_AT_A_TIME):
            events = review.events[start : start + ROWS_AT_A_TIME]
            decisions += session.run(
                _DECISIONS,
                project=project,
                studies=[event.study_id for event in events],
                reviewers=[event.investigator_id for event in events],
                decisions=[event.decision.value for event in events],
            )
        return CopiedRecords(studies, decisions)

    with connected(settings, app_name="statlib-load") as postgres:
        require_schema(postgres, [SCHEMA])
        return transact(postgres, body, limits=Limits(statement_s=300.0, idle_s=300.0))


def _text(value: object) -> str | None:
    text = "" if value is None else str(value).replace("\x00", "")
    return text or None


def _year(value: object) -> int | None:
    text = str(value or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) == 4 else None
