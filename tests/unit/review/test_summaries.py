"""Derived summaries, held against hand-counted studies and against the naive oracle's own walk over them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from statlib.review.documents import (
    AgreementThreshold,
    AnswerKind,
    InclusionClass,
    Question,
    Stage,
    StageKind,
)
from statlib.review.screening import ScreeningClass
from statlib.review.summaries import (
    AnnotationSummary,
    ReconciliationSummary,
    WorkloadSummary,
    annotation_summary,
    answer_summary,
    reviewer_screening_summary,
    screening_summary,
    stage_summary,
    workload_summary,
)

SCREENING = {
    "Studies": 20,
    "Profile/0:0": 8, "Profile/1:1": 2, "Profile/2:2": 3, "Profile/2:1": 2, "Profile/3:1": 1, "Profile/2:0": 4,
    "Class/Unscreened": 8, "Class/InProgress": 2, "Class/Included": 3, "Class/Excluded": 5, "Class/Conflict": 2,
    "Decisions": 23, "Inclusions": 11, "Exclusions": 12,
}  # fmt: skip


def test_screening_shares_and_missing_decisions_follow_from_the_profiles() -> None:
    found = screening_summary(SCREENING, AgreementThreshold())
    assert (found.studies, found.decisions, found.inclusions, found.exclusions) == (20, 23, 11, 12)
    assert found.classes == {
        ScreeningClass.UNSCREENED: 8, ScreeningClass.IN_PROGRESS: 2, ScreeningClass.INCLUDED: 3,
        ScreeningClass.EXCLUDED: 5, ScreeningClass.CONFLICT: 2,
    }  # fmt: skip
    assert found.progress == 8 / 20
    assert found.agreement == 7 / 10  # 2:2 and 2:0, of all with two or more
    assert found.decisions_missing == 8 * 2 + 2 * 1


@pytest.mark.parametrize(("min_screenings", "missing"), [(1, 8), (2, 18), (3, 8 * 3 + 2 * 2 + 9 * 1)])
def test_the_missing_decisions_are_up_to_the_least_number_of_screenings(min_screenings: int, missing: int) -> None:
    threshold = AgreementThreshold(min_screenings=min_screenings)
    assert screening_summary(SCREENING, threshold).decisions_missing == missing


def test_a_share_of_nothing_is_none_and_not_zero() -> None:
    screening = screening_summary({}, AgreementThreshold())
    assert (screening.studies, screening.progress, screening.agreement) == (0, None, None)
    reviewer = reviewer_screening_summary({}, {})
    assert (reviewer.progress, reviewer.agreement) == (None, None)
    assert workload_summary({}).progress is None


ANNOTATION = {
    "Population/Included": 10, "Population/Excluded": 5, "Population/Undecided": 4,
    "Tally/Included/0:0": 1, "Tally/Included/1:0": 1, "Tally/Included/2:1": 2, "Tally/Included/2:2": 3,
    "Tally/Excluded/2:2": 1, "Tally/Undecided/1:1": 1,
    "Sessioned/Included/Started": 6, "Sessioned/Included/Completed": 5, "Sessioned/Excluded/Started": 1,
    "Reserved/Included": 1, "Reservations/Included": 2, "Reservations/Excluded": 7,
}  # fmt: skip
RECONCILIATION = {
    "Included/Reconciled": 1, "Included/InProgress": 1, "Included/Awaiting": 1, "Included/NotReady": 4,
    "Excluded/Reconciled": 1, "Undecided/NotReady": 1,
}  # fmt: skip


def stage(**changed: Any) -> Stage:
    return Stage(**{"id": UUID(int=1), "name": "full text", "kind": StageKind.ANNOTATION} | changed)


def test_an_annotation_stage_is_about_the_included_studies() -> None:
    found = stage_summary(stage(), ANNOTATION, RECONCILIATION)
    assert found.population == dict(zip(InclusionClass, (4, 10, 5), strict=True))
    assert (found.eligible, found.started, found.completed, found.reservations) == (10, 6, 5, 2)
    assert found.reconciliation == ReconciliationSummary(
        reconciled=1, in_progress=1, awaiting=1, not_ready=4, untouched=3
    )
    assert found.completion == 3 / 10
    assert found.reconciled == 1 / 10
    assert found.sessions_missing == 3 * 2 + 1 * 2 + 1 * 2 + 2 * 1


def test_a_screening_stage_is_about_all_studies() -> None:
    found = stage_summary(stage(kind=StageKind.SCREENING), ANNOTATION, RECONCILIATION)
    assert (found.eligible, found.started, found.completion, found.reservations) == (19, 7, 4 / 19, 9)
    assert found.reconciliation.untouched == 19 - 9
    assert found.reconciled == 2 / 19


def test_a_higher_target_means_fewer_complete_studies_and_more_missing_sessions() -> None:
    found = stage_summary(stage(session_count_target=3), ANNOTATION, RECONCILIATION)
    assert found.completion == 0
    assert found.sessions_missing == 3 * 3 + 1 * 3 + 1 * 3 + 2 * 2 + 3 * 1


def test_a_stage_that_nobody_touched_misses_every_session() -> None:
    found = stage_summary(stage(), {"Population/Included": 5}, {})
    assert (found.reconciliation.untouched, found.sessions_missing, found.completion) == (5, 10, 0)


def test_a_persons_annotation_adds_up_over_the_inclusion_classes() -> None:
    counters = {
        "Included/Started": 3, "Excluded/Started": 1, "Undecided/Started": 1, "Included/Completed": 2,
        "Included/ReconciliationStarted": 2, "Included/ReconciliationCompleted": 1, "Excluded/Reserved": 4,
    }  # fmt: skip
    assert annotation_summary(counters) == AnnotationSummary(5, 2, 2, 1, 4)


def test_what_others_have_covered_does_not_hold_a_persons_progress_down() -> None:
    found = workload_summary({"Completed": 3, "InProgress": 1, "Available": 2, "Unavailable": 50})
    assert found == WorkloadSummary(3, 1, 2, 50, 0.5)


def test_a_reviewer_agrees_where_their_decision_prevailed() -> None:
    found = reviewer_screening_summary(
        {"Screened": 10, "Included": 4, "Excluded": 6, "Available": 30, "Unavailable": 5},
        {"Decisions": 10, "Included": 4, "Excluded": 6, "Agreed": 6, "Overruled": 2, "Open": 2},
    )
    assert (found.progress, found.agreement) == (10 / 40, 6 / 8)
    assert (found.screened, found.available, found.unavailable, found.open) == (10, 30, 5, 2)


def test_answers_are_of_their_question_alone_and_most_frequent_first() -> None:
    question, other = (
        Question(id=UUID(int=n), stage_id=UUID(int=1), text="which?", answer=AnswerKind.CHOICE) for n in (5, 6)
    )
    counters = {
        f"{question.id}/Answered": 6, f"{question.id}/Value/a/b": 2, f"{question.id}/Value/c.d": 3,
        f"{question.id}/Value/gone": 0, f"{question.id}/Text": 1, f"{other.id}/Answered": 9, f"{other.id}/Value/c.d": 9,
    }  # fmt: skip
    found = answer_summary(question, counters)
    assert (found.answered, found.free_text, list(found.values.items())) == (6, 1, [("c.d", 3), ("a/b", 2)])
