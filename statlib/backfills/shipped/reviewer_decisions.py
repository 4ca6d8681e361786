"""Decisions summed up per reviewer and project.

Each decision is counted once into its reviewer's summary and marked as counted in the same statement, so that counting
again finds nothing to count. What was decided after the start is counted, and marked, by whoever writes it; whoever
deletes a decision takes it off.

The proof holds each summary against the decisions that are marked: a reviewer's whole sum, in the window in which their
first decision lies, so that over all windows each decision is added up once.
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
_UNCOUNTED_OR_MISCOUNTED = """
WITH seen AS MATERIALIZED (
  SELECT decision_id, project_id, reviewer_id, summarised FROM statlib_decision WHERE {window}
), first AS MATERIALIZED (
  SELECT project_id, reviewer_id, min(decision_id) AS decision_id FROM seen GROUP BY project_id, reviewer_id
), begun AS MATERIALIZED (
  SELECT * FROM first WHERE NOT EXISTS (
    SELECT FROM statlib_decision d WHERE d.project_id = first.project_id AND d.reviewer_id = first.reviewer_id
      AND d.decision_id < first.decision_id)
), added AS (
  SELECT begun.*, sums.* FROM begun CROSS JOIN LATERAL (
    SELECT count(*) AS decisions, count(*) FILTER (WHERE d.decision = 'Include') AS included,
      count(*) FILTER (WHERE d.decision = 'Exclude') AS excluded
    FROM statlib_decision d
    WHERE d.project_id = begun.project_id AND d.reviewer_id = begun.reviewer_id AND d.summarised
  ) sums
)
SELECT decision_id FROM seen WHERE NOT summarised
UNION
SELECT added.decision_id FROM added LEFT JOIN statlib_reviewer_summary s USING (project_id, reviewer_id)
WHERE (s.decisions, s.included, s.excluded) IS DISTINCT FROM (added.decisions, added.included, added.excluded)
"""
REVIEWER_DECISIONS = Definition(
    id="reviewer-decisions",
    title="Decisions summed up per reviewer",
    key=key("decision_id"),
    source="statlib_decision",
    mutate=_COUNT,
    validate=_UNCOUNTED_OR_MISCOUNTED,
    bound=BatchBound(rows_max=5_000, changes_per_row=2, transaction_s=10.0, lock_s=2.0, target_s=0.1),
)
