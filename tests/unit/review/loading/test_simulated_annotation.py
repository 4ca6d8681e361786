"""The simulated review with annotation: the same in every process, and only acts that the writers take."""

from __future__ import annotations

from uuid import UUID

import pytest

from statlib.kernel.refusals import Refusal
from statlib.review.annotation_writer import SessionAct
from statlib.review.documents import SessionStatus
from statlib.review.loading.review import LoadedReview, LoadReason, annotated, replayed
from statlib.review.loading.simulated import SimulatedReview
from statlib.review.screening import ScreeningClass, screening_class, tally


@pytest.fixture(scope="module")
def review() -> LoadedReview:
    return SimulatedReview(studies=200, reviewers=5, seed=3, events=500, sessions=300).load()


def test_equal_parameters_give_equal_sessions(review: LoadedReview) -> None:
    assert SimulatedReview(studies=200, reviewers=5, seed=3, events=500, sessions=300).load() == review


def test_the_decisions_are_those_of_the_review_without_sessions(review: LoadedReview) -> None:
    alone = SimulatedReview(studies=200, reviewers=5, seed=3, events=500).load()
    assert alone.annotations == ()
    assert alone.project.stages == ()
    assert [(event.decision, event.at) for event in review.events] == [
        (event.decision, event.at) for event in alone.events
    ]


def test_every_sort_of_act_occurs_and_each_finds_what_it_is_made_on(review: LoadedReview) -> None:
    assert 0 < len(review.annotations) <= 300
    assert {event.act for event in review.annotations} == set(SessionAct)
    standing = annotated(review.annotations)  # a deletion of a session that is not there would fail
    assert {status for status, _ in standing.values()} >= {SessionStatus.COMPLETED}
    assert {reconciliation for *_, reconciliation in standing} == {True, False}


def test_no_study_is_annotated_before_it_was_included(review: LoadedReview) -> None:
    threshold = review.project.agreement_threshold
    first: dict[UUID, int] = {}
    for event in review.annotations:
        first.setdefault(event.study_id, event.seq)
    for study, seq in first.items():
        reached = False
        before = [event for event in review.events if event.seq < seq and event.study_id == study]
        for number in range(1, len(before) + 1):
            screenings = replayed(before[:number])[study]
            reached = reached or screening_class(*tally(screenings), threshold) is ScreeningClass.INCLUDED
        assert reached


def test_the_provenance_names_what_is_simulated(review: LoadedReview) -> None:
    assert "stages, questions, sessions, answers, reconciliations" in review.project.provenance.simulated


def test_a_negative_number_of_sessions_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        SimulatedReview(sessions=-1)
    assert refused.value.reason is LoadReason.SimulationInvalid
