"""Screening classes at their boundaries, and what one decision does to the screenings of a study."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.review.documents import AgreementThreshold, InclusionClass, Screening
from statlib.review.screening import (
    Decision,
    ScreeningClass,
    decide,
    inclusion_class,
    inclusion_info,
    screening_class,
    tally,
)
from tests.oracles.project_screening import class_of

START = datetime(2024, 1, 1, tzinfo=UTC)
PEOPLE = [UUID(int=number) for number in range(1, 5)]

decisions = st.lists(st.tuples(st.sampled_from(PEOPLE), st.sampled_from(Decision)), max_size=30)


@pytest.mark.parametrize(
    ("n", "i", "min_screenings", "ratio", "expected"),
    [
        (0, 0, 2, 0.66, ScreeningClass.UNSCREENED),
        (0, 0, 1, 1.0, ScreeningClass.UNSCREENED),
        (1, 1, 2, 0.66, ScreeningClass.IN_PROGRESS),
        (1, 0, 2, 0.66, ScreeningClass.IN_PROGRESS),
        (1, 1, 1, 0.66, ScreeningClass.INCLUDED),
        (1, 0, 1, 0.66, ScreeningClass.EXCLUDED),
        (2, 2, 2, 0.66, ScreeningClass.INCLUDED),
        (2, 1, 2, 0.66, ScreeningClass.CONFLICT),
        (2, 0, 2, 0.66, ScreeningClass.EXCLUDED),
        (3, 2, 2, 0.66, ScreeningClass.INCLUDED),
        (3, 1, 2, 0.66, ScreeningClass.EXCLUDED),
        (3, 2, 2, 2 / 3, ScreeningClass.INCLUDED),
        (3, 1, 2, 2 / 3, ScreeningClass.EXCLUDED),
        (3, 2, 2, 0.67, ScreeningClass.CONFLICT),
        (4, 3, 2, 0.75, ScreeningClass.INCLUDED),
        (4, 3, 2, 0.76, ScreeningClass.CONFLICT),
        (4, 2, 2, 0.51, ScreeningClass.CONFLICT),
        (3, 3, 4, 0.66, ScreeningClass.IN_PROGRESS),
        (3, 2, 3, 1.0, ScreeningClass.CONFLICT),
        (3, 3, 3, 1.0, ScreeningClass.INCLUDED),
    ],
)
def test_the_class_at_its_boundaries(
    n: int, i: int, min_screenings: int, ratio: float, expected: ScreeningClass
) -> None:
    assert screening_class(n, i, AgreementThreshold(min_screenings=min_screenings, agreement_ratio=ratio)) is expected


@given(
    counts=st.integers(0, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    min_screenings=st.integers(1, 6),
    ratio=st.floats(0.5, 1.0, exclude_min=True),
)
def test_the_class_agrees_with_its_naive_definition(counts: tuple[int, int], min_screenings: int, ratio: float) -> None:
    n, i = counts
    threshold = AgreementThreshold(min_screenings=min_screenings, agreement_ratio=ratio)
    assert screening_class(n, i, threshold).value == class_of(n, i, min_screenings, ratio)


@pytest.mark.parametrize("of", list(ScreeningClass))
def test_only_sufficient_classes_decide_the_inclusion_class(of: ScreeningClass) -> None:
    sufficient = {
        ScreeningClass.INCLUDED: InclusionClass.INCLUDED,
        ScreeningClass.EXCLUDED: InclusionClass.EXCLUDED,
    }
    assert inclusion_class(of) is sufficient.get(of, InclusionClass.UNDECIDED)


@given(decisions)
def test_what_stands_is_each_investigators_last_decision(history: list[tuple[UUID, Decision]]) -> None:
    screenings: tuple[Screening, ...] = ()
    last: dict[UUID, bool] = {}
    for second, (person, decision) in enumerate(history):
        screenings = decide(screenings, person, decision, START + timedelta(seconds=second))
        last.pop(person, None)
        if decision is not Decision.RETRACT:
            last[person] = decision is Decision.INCLUDE
    assert {s.investigator_id: s.included for s in screenings} == last
    assert tally(screenings) == (len(last), sum(last.values()))
    assert len({s.investigator_id for s in screenings}) == len(screenings)


@given(decisions, st.sampled_from(PEOPLE), st.sampled_from(Decision))
def test_a_decision_leaves_everybody_elses_in_place(
    history: list[tuple[UUID, Decision]], person: UUID, decision: Decision
) -> None:
    before: tuple[Screening, ...] = ()
    for second, (who, what) in enumerate(history):
        before = decide(before, who, what, START + timedelta(seconds=second))
    after = decide(before, person, decision, START + timedelta(days=1))
    assert [s for s in after if s.investigator_id != person] == [s for s in before if s.investigator_id != person]


@given(decisions, st.sampled_from(PEOPLE), st.sampled_from(Decision))
def test_submitting_a_decision_again_changes_nothing_not_even_its_time(
    history: list[tuple[UUID, Decision]], person: UUID, decision: Decision
) -> None:
    screenings: tuple[Screening, ...] = ()
    for second, (who, what) in enumerate(history):
        screenings = decide(screenings, who, what, START + timedelta(seconds=second))
    once = decide(screenings, person, decision, START + timedelta(days=1))
    assert decide(once, person, decision, START + timedelta(days=2)) == once


def test_a_correction_keeps_its_place_and_takes_the_new_time() -> None:
    first = decide((), PEOPLE[0], Decision.INCLUDE, START)
    both = decide(first, PEOPLE[1], Decision.INCLUDE, START)
    later = START + timedelta(hours=1)
    corrected = decide(both, PEOPLE[0], Decision.EXCLUDE, later)
    assert corrected == (Screening(investigator_id=PEOPLE[0], included=False, at_utc=later), both[1])


@pytest.mark.parametrize("second", [Decision.INCLUDE, Decision.EXCLUDE])
def test_times_keep_what_the_database_keeps_also_in_a_correction(second: Decision) -> None:
    at = START + timedelta(microseconds=1_999)
    before = decide((), PEOPLE[0], Decision.EXCLUDE if second is Decision.INCLUDE else Decision.INCLUDE, START)
    [screening] = decide(before, PEOPLE[0], second, at)
    assert screening.at_utc == START + timedelta(milliseconds=1)


def test_a_correction_keeps_fields_that_this_release_does_not_know() -> None:
    known = Screening.from_bson(
        {"InvestigatorId": PEOPLE[0], "Included": True, "AtUtc": START, "Note": "seen at a conference"}
    )
    [corrected] = decide((known,), PEOPLE[0], Decision.EXCLUDE, START)
    assert corrected.to_bson()["Note"] == "seen at a conference"


def test_inclusion_info_counts_and_classifies() -> None:
    screenings = decide(decide((), PEOPLE[0], Decision.INCLUDE, START), PEOPLE[1], Decision.EXCLUDE, START)
    info = inclusion_info(screenings, AgreementThreshold())
    assert (info.screened, info.included, info.class_) == (2, 1, InclusionClass.UNDECIDED)
