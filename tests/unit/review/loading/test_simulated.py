"""The simulated review: reproducible, of the asked size, with the trouble that real logs have, and honest about it."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from statlib.kernel.refusals import Refusal
from statlib.review.loading.review import LoadReason, event_counts, replayed
from statlib.review.loading.simulated import EVENTS_MAX, REVIEWERS_MAX, STUDIES_MAX, SimulatedReview
from statlib.review.screening import Decision

DIGEST_PROGRAM = """
import hashlib
from statlib.review.loading.simulated import SimulatedReview
review = SimulatedReview(studies=50, seed=7).load()
print(hashlib.sha256(repr((review.studies, review.events)).encode()).hexdigest())
"""


def test_equal_parameters_give_an_equal_review_in_another_process() -> None:
    review = SimulatedReview(studies=50, seed=7).load()
    own = hashlib.sha256(repr((review.studies, review.events)).encode()).hexdigest()
    other = subprocess.run([sys.executable, "-c", DIGEST_PROGRAM], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == own


def test_another_seed_gives_another_project() -> None:
    one, other = SimulatedReview(studies=20, seed=1).load(), SimulatedReview(studies=20, seed=2).load()
    assert one.project.id != other.project.id
    assert [e.decision for e in one.events] != [e.decision for e in other.events]


@pytest.mark.parametrize("events", [0, 1, 2_000, 10_000])
def test_exactly_as_many_events_as_asked(events: int) -> None:
    review = SimulatedReview(studies=200, events=events).load()
    assert [event.seq for event in review.events] == list(range(1, events + 1))


def test_to_the_end_every_record_has_two_decisions_or_three() -> None:
    review = SimulatedReview(studies=300).load()
    after = replayed(review.events)
    assert len(after) == 300
    assert {len(screenings) for screenings in after.values()} == {2, 3}


def test_every_record_that_ends_in_two_decisions_ends_in_agreement() -> None:
    for screenings in replayed(SimulatedReview(studies=300).load().events).values():
        if len(screenings) == 2:
            assert screenings[0].included == screenings[1].included


def test_it_has_the_trouble_of_real_logs() -> None:
    review = SimulatedReview().load()
    counts = event_counts(review.events)
    retractions = sum(event.decision is Decision.RETRACT for event in review.events)
    corrections = counts.submitted - counts.unchanged - 2 * retractions - counts.standing
    assert counts.unchanged > 50
    assert retractions > 10
    assert corrections > 50


def test_work_is_spread_unevenly() -> None:
    shares = sorted(Counter(event.investigator_id for event in SimulatedReview().load().events).values())
    assert len(shares) == 5
    assert shares[-1] > 2 * shares[0]


def test_times_only_move_forward_and_records_are_interleaved() -> None:
    events = SimulatedReview(studies=100).load().events
    assert all(earlier.at < later.at for earlier, later in itertools.pairwise(events))
    assert sum(a.study_id != b.study_id for a, b in itertools.pairwise(events)) > len(events) * 3 // 4


def test_reviewers_without_an_event_are_members_too() -> None:
    review = SimulatedReview(studies=10, reviewers=6, events=0).load()
    assert len(review.project.memberships) == 6


def test_the_provenance_says_in_plain_words_that_all_is_made_up() -> None:
    provenance = SimulatedReview(studies=10, seed=99).load().project.provenance
    assert provenance.recorded == ""
    assert "made up from seed 99" in provenance.simulated
    assert provenance.seed == 99


def test_parameters_beyond_the_name_change_the_provenance() -> None:
    one = SimulatedReview(studies=10, name="same").load().project
    other = SimulatedReview(studies=10, name="same", corrected_share=41).load().project
    assert one.id == other.id
    assert one.provenance != other.provenance


@settings(max_examples=30, deadline=None)
@given(
    studies=st.integers(1, 30),
    reviewers=st.integers(3, 8),
    seed=st.integers(0, 2**32),
    events=st.none() | st.integers(0, 300),
    shares=st.tuples(*[st.integers(0, 300)] * 3),
    relevant=st.integers(0, 1000),
)
def test_any_parameters_give_a_consistent_review(
    studies: int, reviewers: int, seed: int, events: int | None, shares: tuple[int, int, int], relevant: int
) -> None:
    resubmitted, corrected, retracted = shares
    assume(events is not None or retracted + 100 <= 1_000 - sum(shares))  # else it is refused: it would never end
    review = SimulatedReview(
        studies=studies,
        reviewers=reviewers,
        seed=seed,
        events=events,
        relevant_share=relevant,
        resubmitted_share=resubmitted,
        corrected_share=corrected,
        retracted_share=retracted,
    ).load()
    known = {study.id for study in review.studies}
    members = {member.investigator_id for member in review.project.memberships}
    assert len(known) == studies
    assert len(members) == reviewers
    assert {event.study_id for event in review.events} <= known
    assert {event.investigator_id for event in review.events} <= members
    assert events is None or len(review.events) == events
    assert all(len(screenings) <= 3 for screenings in replayed(review.events).values())


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"studies": 0}, "studies must be"),
        ({"studies": STUDIES_MAX + 1}, "studies must be"),
        ({"reviewers": 2}, "reviewers must be"),
        ({"reviewers": REVIEWERS_MAX + 1}, "reviewers must be"),
        ({"events": -1}, "events must be"),
        ({"events": EVENTS_MAX + 1}, "events must be"),
        ({"relevant_share": 1_001}, "shares must be 0 to 1000"),
        ({"corrected_share": -1}, "shares must be 0 to 1000"),
        ({"resubmitted_share": 400, "corrected_share": 400, "retracted_share": 101}, "must leave 100 or more"),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(wrong: dict[str, Any], rule: str) -> None:
    with pytest.raises(Refusal, match=rule) as raised:
        SimulatedReview(**wrong)
    assert raised.value.reason is LoadReason.SimulationInvalid


def test_a_review_that_retracts_as_fast_as_it_decides_needs_a_number_of_events() -> None:
    with pytest.raises(Refusal, match="never ends") as raised:
        SimulatedReview(studies=10, resubmitted_share=300, corrected_share=250, retracted_share=300)
    assert raised.value.reason is LoadReason.SimulationInvalid
    bounded = SimulatedReview(studies=10, events=500, resubmitted_share=300, corrected_share=250, retracted_share=300)
    assert len(bounded.load().events) == 500
