"""The screening families' derivations: what changes add up to is what the naive counts say of their result.

Decisions come from members, from somebody who left and from somebody who never joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.review.catalogue import REVIEW
from statlib.review.documents import (
    AgreementThreshold,
    Membership,
    Project,
    Screening,
    Search,
    Session,
    SlotReservation,
    Study,
)
from statlib.review.evidence import ReviewContext, ReviewDomain, StudyEvidence
from statlib.review.families.membership_screening import MembershipScreening
from statlib.review.families.reviewer_screening import ReviewerScreening
from statlib.review.families.search_population import SearchPopulation
from statlib.review.scopes import member_scope, search_scope
from statlib.review.screening import Decision, decide
from statlib.statistics.catalogue import Effect
from statlib.statistics.counters import Counters, plus, without_zeros
from statlib.statistics.documents import TrackingMode
from tests.oracles.families_screening import ORACLES

AT = datetime(2024, 1, 1, tzinfo=UTC)
PROJECT = UUID(int=99)
MEMBERS = [UUID(int=number) for number in (1, 2, 3)]
LEFT, STRANGER = UUID(int=4), UUID(int=5)
STUDIES = [UUID(int=number) for number in range(10, 14)]
SEARCHES = [UUID(int=number) for number in (20, 21)]
DOMAIN = ReviewDomain()
PERSONAL: list[Any] = [MembershipScreening(), ReviewerScreening()]

events = st.lists(
    st.tuples(st.sampled_from(STUDIES), st.sampled_from([*MEMBERS, LEFT, STRANGER]), st.sampled_from(Decision)),
    max_size=40,
)
thresholds = st.builds(
    AgreementThreshold, min_screenings=st.integers(1, 5), agreement_ratio=st.floats(0.5, 1.0, exclude_min=True)
)
personal = pytest.mark.parametrize("family", PERSONAL, ids=lambda family: family.name)


def project(threshold: AgreementThreshold | None = None, members: list[UUID] = MEMBERS) -> Project:
    return Project(
        id=PROJECT,
        name="a",
        agreement_threshold=threshold or AgreementThreshold(),
        memberships=tuple(Membership(investigator_id=member, joined_at_utc=AT) for member in members),
        searches=tuple(Search(id=search, name="a search") for search in SEARCHES),
    )


def context(of: Project) -> ReviewContext:
    return DOMAIN.context(of.to_bson(), TrackingMode.TRACKED)


def evidence(study: Study) -> StudyEvidence:
    return DOMAIN.evidence(study.to_bson())


def after(study: Study, who: UUID, decision: Decision) -> Study:
    return study.model_copy(update={"screenings": decide(study.screenings, who, decision, AT)})


def decided(**decisions: bool) -> Study:
    """A study on which members m0, m1 … , ``left`` or ``stranger`` decided so."""
    people = {f"m{number}": member for number, member in enumerate(MEMBERS)} | {"left": LEFT, "stranger": STRANGER}
    screenings = tuple(
        Screening(investigator_id=people[name], included=included, at_utc=AT) for name, included in decisions.items()
    )
    return Study(id=STUDIES[0], project_id=PROJECT, screenings=screenings)


def moves(effect: Effect) -> Mapping[str, Counters]:
    assert not effect.stale_family
    assert not effect.stale_scopes
    assert all(effect.moves.values())
    return effect.moves


def added(counters: Mapping[str, Counters], effect: Effect) -> dict[str, Counters]:
    return {scope: plus(own, moves(effect).get(scope, {})) for scope, own in counters.items()}


def dense(counters: Mapping[str, Counters]) -> dict[str, dict[str, int]]:
    return {scope: without_zeros(own) for scope, own in counters.items()}


@personal
@given(events, thresholds)
def test_accumulated_changes_equal_the_naive_count_at_every_step(
    family: Any, history: list[tuple[UUID, UUID, Decision]], threshold: AgreementThreshold
) -> None:
    of = project(threshold)
    studies = {id_: Study(id=id_, project_id=PROJECT) for id_ in STUDIES}

    def naive() -> dict[str, dict[str, int]]:
        return ORACLES[family.name]([study.to_bson() for study in studies.values()], of.to_bson())

    counters: dict[str, Counters] = dict(naive())
    for id_, who, decision in history:
        before, studies[id_] = studies[id_], after(studies[id_], who, decision)
        effect = family.derive(evidence(before), evidence(studies[id_]), context(of))
        assert set(effect.moves) <= set(family.declared_scopes(context(of)))
        counters = added(counters, effect)
        assert dense(counters) == naive()


@personal
@given(events, thresholds)
def test_a_change_is_the_difference_of_two_calculations_however_many_decisions_it_holds(
    family: Any, history: list[tuple[UUID, UUID, Decision]], threshold: AgreementThreshold
) -> None:
    of = context(project(threshold))
    versions = [Study(id=STUDIES[0], project_id=PROJECT)]
    for _, who, decision in history:
        versions.append(after(versions[-1], who, decision))
    seen = [evidence(version) for version in versions]
    nothing: dict[str, Counters] = {scope: {} for scope in family.declared_scopes(of)}
    in_steps = nothing
    for one, next_ in pairwise(seen):
        in_steps = added(in_steps, family.derive(one, next_, of))
    assert dense(in_steps) == dense(added(nothing, family.derive(seen[0], seen[-1], of)))


CROSSINGS = [
    pytest.param(
        decided(m0=True), decided(m0=True, m1=True),
        {
            "m0": {},
            "m1": {"Available": -1, "Screened": 1, "Included": 1},
            "m2": {"Available": -1, "Unavailable": 1},
        },
        {"m0": {"Open": -1, "Agreed": 1}, "m1": {"Decisions": 1, "Included": 1, "Agreed": 1}},
        id="a second decision settles the study",
    ),
    pytest.param(
        decided(m0=True, m1=True), decided(m0=True),
        {
            "m0": {},
            "m1": {"Available": 1, "Screened": -1, "Included": -1},
            "m2": {"Available": 1, "Unavailable": -1},
        },
        {"m0": {"Open": 1, "Agreed": -1}, "m1": {"Decisions": -1, "Included": -1, "Agreed": -1}},
        id="a retraction unsettles it",
    ),
    pytest.param(
        decided(m0=True, m1=False), decided(m0=True, m1=False, stranger=False, left=False),
        {"m2": {"Available": -1, "Unavailable": 1}},
        {"m0": {"Open": -1, "Overruled": 1}, "m1": {"Open": -1, "Agreed": 1}},
        id="people who are no members settle it",
    ),
    pytest.param(
        decided(m0=True, m1=True), decided(m0=False, m1=False),
        {"m0": {"Included": -1, "Excluded": 1}, "m1": {"Included": -1, "Excluded": 1}},
        {"m0": {"Included": -1, "Excluded": 1}, "m1": {"Included": -1, "Excluded": 1}},
        id="it is included no longer, but excluded",
    ),
    pytest.param(
        decided(m0=True, m1=True, m2=True), decided(m0=True, m1=True, m2=False),
        {"m2": {"Included": -1, "Excluded": 1}},
        {"m2": {"Included": -1, "Excluded": 1, "Agreed": -1, "Overruled": 1}},
        id="a correction that leaves the class as it is",
    ),
    pytest.param(decided(stranger=True), decided(left=True), {}, {}, id="nothing of a member's, and no class"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "now", "membership", "reviewer"), CROSSINGS)
def test_a_changed_class_moves_every_member_whom_it_concerns(
    before: Study, now: Study, membership: dict[str, Any], reviewer: dict[str, Any]
) -> None:
    scopes = {f"m{number}": member_scope(member) for number, member in enumerate(MEMBERS)}
    for family, expected in zip(PERSONAL, (membership, reviewer), strict=True):
        effect = family.derive(evidence(before), evidence(now), context(project()))
        assert moves(effect) == {scopes[name]: change for name, change in expected.items() if change}


@personal
@pytest.mark.req("SCOPEMVP-03")
@pytest.mark.parametrize("people", [100, 101])
def test_a_project_of_more_than_a_hundred_members_has_the_family_staled(family: Any, people: int) -> None:
    members = [MEMBERS[0], *(UUID(int=1000 + number) for number in range(people - 1))]
    one, two = decided(m0=True), decided(m0=True, stranger=True)
    effect = family.derive(evidence(one), evidence(two), context(project(members=members)))
    if people == 100:
        concerned = members[1:] if family.name == MembershipScreening.name else members[:1]
        assert set(moves(effect)) == set(map(member_scope, concerned))
    else:
        assert effect == Effect(stale_family=True)


@personal
def test_what_moves_nobody_stales_nothing_however_many_members_there_are(family: Any) -> None:
    members = [UUID(int=1000 + number) for number in range(101)]
    effect = family.derive(evidence(decided()), evidence(decided(stranger=True)), context(project(members=members)))
    assert effect == Effect()


@pytest.mark.parametrize("family", [*PERSONAL, SearchPopulation()], ids=lambda family: family.name)
def test_annotations_are_no_business_of_these_families(family: Any) -> None:
    stage = UUID(int=30)
    before = decided(m0=True, m1=True)
    now = before.model_copy(
        update={
            "sessions": (Session(id=UUID(int=31), stage_id=stage, investigator_id=MEMBERS[2], at_utc=AT),),
            "slot_reservations": (SlotReservation(stage_id=stage, investigator_id=MEMBERS[1], at_utc=AT),),
        }
    )
    assert evidence(before) != evidence(now)
    assert family.derive(evidence(before), evidence(now), context(project())) == Effect()


@pytest.mark.parametrize(
    ("before", "now", "staled"),
    [
        (SEARCHES[0], SEARCHES[1], set(SEARCHES)),
        (None, SEARCHES[1], {SEARCHES[1]}),
        (SEARCHES[0], UUID(int=77), {SEARCHES[0]}),
        (SEARCHES[0], SEARCHES[0], set()),
        (None, None, set()),
    ],
)
def test_a_study_that_changes_its_search_outdates_both(
    before: UUID | None, now: UUID | None, staled: set[UUID]
) -> None:
    one, other = (Study(id=STUDIES[0], project_id=PROJECT, search_id=search) for search in (before, now))
    effect = SearchPopulation().derive(evidence(one), evidence(other), context(project()))
    assert effect == Effect(stale_scopes=frozenset(map(search_scope, staled)))


def test_decisions_leave_the_search_alone() -> None:
    effect = SearchPopulation().derive(evidence(decided()), evidence(decided(m0=True)), context(project()))
    assert not effect.touches


THRESHOLD = {"agreement_threshold": AgreementThreshold(min_screenings=3)}
PEOPLE = {"memberships": (Membership(investigator_id=STRANGER, joined_at_utc=AT),)}


@pytest.mark.parametrize(
    ("family", "changed", "same"),
    [
        (MembershipScreening.name, THRESHOLD, False),
        (ReviewerScreening.name, THRESHOLD, False),
        (SearchPopulation.name, THRESHOLD, True),
        (MembershipScreening.name, PEOPLE, True),
        (ReviewerScreening.name, PEOPLE, True),
    ],
)
def test_a_scope_is_calculated_under_what_changes_its_counters_alone(
    family: str, changed: dict[str, Any], same: bool
) -> None:
    """A member who joins must not outdate the rows of the others."""
    one, other = (context(of) for of in (project(), project().model_copy(update=changed)))
    digests = {REVIEW.configuration(of).digest(family, "a scope") for of in (one, other)}
    assert (len(digests) == 1) is same


def test_the_families_declare_current_members_and_searches() -> None:
    of = context(project())
    for family in PERSONAL:
        assert REVIEW.family(family.name).declared_scopes(of) == tuple(map(member_scope, MEMBERS))
    assert REVIEW.family(SearchPopulation.name).declared_scopes(of) == tuple(map(search_scope, SEARCHES))
