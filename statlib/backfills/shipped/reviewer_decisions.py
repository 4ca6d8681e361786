"""Decisions summed up per reviewer and project.

Each decision is counted once into its reviewer's summary and marked as counted in the same statement, so that counting
again finds nothing to count. What was decided after the start is counted by whoever writes it.
"""

from __future__ import annotations

from statlib.backfills.definitions import BatchBound, Definition, key

_COUNT = """
WITH counted AS (
  UPDATE statlib_decision SET summarised = true WHERE {window} AND NOT summarised
  RETURNING project_id, reviewer_id, decision
)
INSERT INTO statlib_reviewer_summary AS s (project_id, reviewer_id, decisions, included, excluded)
SELECT project_id, reviewer_id, count(*), count(*) FILTER (WHERE decision = 'Include'),
  count(*) FILTER (WHERE decision = 'Exclude')
FROM counted GROUP BY project_id, reviewer_id ORDER BY project_id, reviewer_id
ON CONFLICT (project_id, reviewer_id) DO UPDATE SET decisions = s.decisions + excluded.decisions,
  included = s.included + excluded.included, excluded = s.excluded + excluded.excluded
"""
_UNCOUNTED = """
SELECT d.decision_id FROM (SELECT * FROM statlib_decision WHERE {window}) d
LEFT JOIN statlib_reviewer_summary s USING (project_id, reviewer_id)
WHERE NOT d.summarised OR s.decisions IS NULL OR s.decisions < 1
"""
REVIEWER_DECISIONS = Definition(
    id="reviewer-decisions",
    title="Decisions summed up per reviewer",
    key=key("decision_id"),
    source="statlib_decision",
    mutate=_COUNT,
    validate=_UNCOUNTED,
    bound=BatchBound(rows_max=5_000, changes_per_row=2, transaction_s=10.0, lock_s=2.0, target_s=0.1),
)
