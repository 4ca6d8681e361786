"""What a soak generates beside the record: drawn from a seed, and taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

import pytest

from statlib.review.edits import Join, Leave, SetThreshold
from statlib.review.loading.review import AnnotationEvent, DecisionEvent, LoadedReview, annotated, replayed
from statlib.review.loading.simulated import SimulatedReview
from statlib.runbook.soak.mutations import NOTHING, MutationMix, planned
from statlib.runbook.soak.work import PlaceAct, Writer

MIX = MutationMix(corrections=0.1, retractions=0.1, claims=0.1, memberships=0.01, thresholds=0.005)


@pytest.fixture(scope="module")
def review() -> LoadedReview:
    return SimulatedReview(studies=60, reviewers=4, seed=7, events=200, sessions=120).load()


def decisions(events: Iterable[DecisionEvent]) -> dict[tuple[UUID, UUID], bool]:
    """What stands on each study, by whom."""
    return {(study, s.investigator_id): s.included for study, own in replayed(events).items() for s in own}


def test_equal_seeds_draw_equal_plans_and_others_do_not(review: LoadedReview) -> None:
    assert planned(review, MIX, seed=1) == planned(review, MIX, seed=1)
    assert planned(review, MIX, seed=1) != planned(review, MIX, seed=2)


def test_the_recorded_events_keep_their_order_and_are_numbered_first(review: LoadedReview) -> None:
    plan = planned(review, MIX, seed=1)
    recorded = [work for work in plan.work if work.number < plan.recorded]
    assert tuple(work.act for work in recorded) == review.in_order
    assert sorted(work.number for work in plan.work) == list(range(len(plan.work)))
    assert [work.seq for work in plan.work] == list(range(len(plan.work)))


def test_what_is_generated_leaves_the_source_as_the_record_does(review: LoadedReview) -> None:
    plan = planned(review, MIX, seed=1)
    acts = [work.act for work in plan.work]
    assert decisions(act for act in acts if isinstance(act, DecisionEvent)) == decisions(review.events)
    assert annotated([act for act in acts if isinstance(act, AnnotationEvent)]) == annotated(review.annotations)
    generated = Counter(work.writer for work in plan.work if work.number >= plan.recorded)
    assert generated.keys() == {Writer.DECISION, Writer.CLAIM, Writer.RELEASE}
    assert plan.generated <= MIX.submissions(plan.recorded)


def test_every_place_that_is_claimed_is_let_go_or_used_by_its_holder(review: LoadedReview) -> None:
    held: set[tuple[object, ...]] = set()
    claims = 0
    for work in planned(review, MIX, seed=1).work:
        act = work.act
        if isinstance(act, DecisionEvent):
            continue
        place = (act.study_id, act.investigator_id, act.stage_id)
        if isinstance(act, PlaceAct) and act.taken:
            assert place not in held
            held.add(place)
            claims += 1
        elif isinstance(act, PlaceAct):
            held.remove(place)
        else:
            held.discard(place)
    assert claims > 10
    assert held == set()


def test_every_edit_is_taken_back_before_the_next_is_made(review: LoadedReview) -> None:
    edits = planned(review, MIX, seed=1).edits
    pairs = list(zip(edits[::2], edits[1::2], strict=True))
    assert [edit.after for edit in edits] == sorted(edit.after for edit in edits)
    assert Counter(edit.name for edit in edits) == {"Leave": 3, "Join": 3, "SetThreshold": 4}
    members = {member.investigator_id: member for member in review.project.memberships}
    for done, undone in pairs:
        if isinstance(done.change, Leave):
            member = members[done.change.investigator]
            assert undone.change == Join(investigator=member.investigator_id, name=member.name, at=member.joined_at_utc)
        else:
            assert isinstance(undone.change, SetThreshold)
            assert undone.change.min_screenings == review.project.agreement_threshold.min_screenings
            assert done.change != undone.change


def test_nothing_is_generated_where_nothing_is_asked_for(review: LoadedReview) -> None:
    plan = planned(review, NOTHING, seed=1)
    assert (plan.generated, plan.edits) == (0, ())


def test_a_review_without_stages_has_no_places_to_claim() -> None:
    review = SimulatedReview(studies=20, events=60).load()
    plan = planned(review, MutationMix(claims=1), seed=1)
    assert {work.writer for work in plan.work} == {Writer.DECISION}
