"""The definitions that ship: what they repair, and that their proofs find what is wrong."""

from __future__ import annotations

import pytest

from statlib.backfills.lifecycle import Operator
from statlib.backfills.shipped.reviewer_decisions import REVIEWER_DECISIONS
from tests.backfilling import Bench, bench
from tests.postgres import Database

DECISIONS = """
INSERT INTO statlib_decision (project_id, study_id, reviewer_id, decision)
SELECT md5('project' || n %% 2)::uuid, md5(n::text)::uuid, md5('reviewer' || n %% 3)::uuid,
  (ARRAY['Include', 'Exclude', 'Maybe'])[1 + n %% 3] FROM generate_series(1, %s) n
"""
NAIVE = """
SELECT project_id, reviewer_id, count(*), count(*) FILTER (WHERE decision = 'Include'),
  count(*) FILTER (WHERE decision = 'Exclude') FROM statlib_decision GROUP BY 1, 2 ORDER BY 1, 2
"""
STORED = "SELECT project_id, reviewer_id, decisions, included, excluded FROM statlib_reviewer_summary ORDER BY 1, 2"
WRONG = {
    "one decision too many": "UPDATE statlib_reviewer_summary SET decisions = decisions + 1",
    "an inclusion too few": "UPDATE statlib_reviewer_summary SET included = included - 1 WHERE included > 0",
    "an exclusion too many": "UPDATE statlib_reviewer_summary SET excluded = excluded + 1",
    "a summary that is gone": "DELETE FROM statlib_reviewer_summary",
    "a decision that is not marked": "UPDATE statlib_decision SET summarised = false WHERE decision_id = 7",
    "a decision written past the summary": "INSERT INTO statlib_decision (project_id, study_id, reviewer_id, decision,"
    " summarised) SELECT project_id, study_id, reviewer_id, decision, true FROM statlib_decision LIMIT 1",
}


def summed_up(b: Bench, decisions: int = 60) -> None:
    b.database.admin(DECISIONS, decisions)
    b.start()
    b.mutate_all()


@pytest.mark.req("BF-VALID-02", "BF-VALID-03")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_sum_that_is_wrong_is_found_and_named(database: Database, wrong: str) -> None:
    with bench(database, REVIEWER_DECISIONS) as b:
        summed_up(b)
        database.admin(WRONG[wrong])
        assert b.drive() == "failed"
        assert "lack the postcondition" in b.row()["diagnostic"]


def test_right_sums_are_proved_in_steps_also_of_what_was_written_meanwhile(database: Database) -> None:
    with bench(database, REVIEWER_DECISIONS) as b:
        b.database.admin(DECISIONS, 25_000)
        b.start()
        b.database.admin(  # the write path that was rolled out before: it counts, and marks, what it writes
            "WITH written AS (INSERT INTO statlib_decision (project_id, study_id, reviewer_id, decision, summarised)"
            " SELECT project_id, study_id, md5('somebody new')::uuid, 'Include', true FROM statlib_decision LIMIT 4"
            " RETURNING project_id, reviewer_id) INSERT INTO statlib_reviewer_summary SELECT project_id, reviewer_id,"
            " count(*), count(*), 0 FROM written GROUP BY 1, 2"
        )
        assert b.drive() == "completed"
        assert database.admin(STORED) == database.admin(NAIVE)


def test_a_sum_that_was_mended_is_proved_when_it_is_tried_again(database: Database) -> None:
    with bench(database, REVIEWER_DECISIONS) as b:
        summed_up(b)
        database.admin(WRONG["one decision too many"])
        assert b.drive() == "failed"
        database.admin("UPDATE statlib_reviewer_summary SET decisions = decisions - 1")
        assert b.ask(Operator.RETRY)["lifecycle"] == "validating"
        assert b.drive() == "completed"
