"""ProjectScreening's derivation: what changes add up to is what the naive count says of their result."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.review.catalogue import REVIEW
from statlib.review.documents import AgreementThreshold, Project, Study
from statlib.review.evidence import ReviewContext, ReviewDomain
from statlib.review.families.project_screening import PROJECT_SCOPE, ProjectScreening
from statlib.review.screening import Decision, decide
from statlib.statistics.catalogue import Effect
from statlib.statistics.counters import plus, without_zeros
from statlib.statistics.documents import TrackingMode
from tests.oracles.project_screening import project_screening

AT = datetime(2024, 1, 1, tzinfo=UTC)
PROJECT = UUID(int=99)
PEOPLE = [UUID(int=number) for number in range(1, 6)]
STUDIES = [UUID(int=number) for number in range(10, 14)]
FAMILY, DOMAIN = ProjectScreening(), ReviewDomain()

events = st.lists(st.tuples(st.sampled_from(STUDIES), st.sampled_from(PEOPLE), st.sampled_from(Decision)), max_size=40)
thresholds = st.builds(
    AgreementThreshold, min_screenings=st.integers(1, 5), agreement_ratio=st.floats(0.5, 1.0, exclude_min=True)
)


def context(threshold: AgreementThreshold) -> ReviewContext:
    return ReviewContext(PROJECT, threshold, ())


def after(study: Study, who: UUID, decision: Decision) -> Study:
    return study.model_copy(update={"screenings": decide(study.screenings, who, decision, AT)})


def moves(effect: Effect) -> dict[str, int]:
    assert not effect.stale_family
    assert not effect.stale_scopes
    return dict(effect.moves.get(PROJECT_SCOPE, {}))


def naive(studies: list[Study], threshold: AgreementThreshold) -> dict[str, int]:
    return project_screening([study.to_bson() for study in studies], threshold.to_bson())


@given(events, thresholds)
def test_accumulated_changes_equal_the_naive_count_at_every_step(
    history: list[tuple[UUID, UUID, Decision]], threshold: AgreementThreshold
) -> None:
    studies = {id_: Study(id=id_, project_id=PROJECT) for id_ in STUDIES}
    counters: Any = naive(list(studies.values()), threshold)
    for id_, who, decision in history:
        before, studies[id_] = studies[id_], after(studies[id_], who, decision)
        effect = FAMILY.derive(
            DOMAIN.evidence(before.to_bson()), DOMAIN.evidence(studies[id_].to_bson()), context(threshold)
        )
        counters = plus(counters, moves(effect))
        assert without_zeros(counters) == naive(list(studies.values()), threshold)


@given(events, thresholds)
def test_a_change_is_the_difference_of_two_calculations_however_many_decisions_it_holds(
    history: list[tuple[UUID, UUID, Decision]], threshold: AgreementThreshold
) -> None:
    versions = [Study(id=STUDIES[0], project_id=PROJECT)]
    for _, who, decision in history:
        versions.append(after(versions[-1], who, decision))
    evidence = [DOMAIN.evidence(version.to_bson()) for version in versions]
    at_once = moves(FAMILY.derive(evidence[0], evidence[-1], context(threshold)))
    in_steps: Any = {}
    for one, next_ in pairwise(evidence):
        in_steps = plus(in_steps, moves(FAMILY.derive(one, next_, context(threshold))))
    assert without_zeros(in_steps) == at_once


@given(events, thresholds)
def test_equal_evidence_has_no_effect(
    history: list[tuple[UUID, UUID, Decision]], threshold: AgreementThreshold
) -> None:
    study = Study(id=STUDIES[0], project_id=PROJECT)
    for _, who, decision in history:
        study = after(study, who, decision)
    evidence = DOMAIN.evidence(study.to_bson())
    assert not FAMILY.derive(evidence, evidence, context(threshold)).touches


def test_two_investigators_who_swap_their_decisions_move_nothing_but_are_evidence() -> None:
    one, other = (
        after(after(Study(id=STUDIES[0], project_id=PROJECT), PEOPLE[0], first), PEOPLE[1], second)
        for first, second in ((Decision.INCLUDE, Decision.EXCLUDE), (Decision.EXCLUDE, Decision.INCLUDE))
    )
    before, now = DOMAIN.evidence(one.to_bson()), DOMAIN.evidence(other.to_bson())
    assert before != now
    assert not FAMILY.derive(before, now, context(AgreementThreshold())).touches


def test_a_study_without_screenings_is_evidence_of_none() -> None:
    document = {"_id": STUDIES[0], "ProjectId": PROJECT, "Audit": {"Version": 3}}
    assert DOMAIN.evidence(document).n == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({}, {"name": "another"}, True),
        ({}, {"agreement_threshold": AgreementThreshold(min_screenings=3)}, False),
        ({}, {"agreement_threshold": AgreementThreshold(agreement_ratio=0.75)}, False),
    ],
)
def test_the_configuration_digest_is_of_what_changes_a_counter(
    one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    contexts = (
        DOMAIN.context(Project(**{"id": PROJECT, "name": "a"} | changed).to_bson(), TrackingMode.TRACKED)
        for changed in (one, other)
    )
    digests = {REVIEW.configuration(found).digest(FAMILY.name, PROJECT_SCOPE) for found in contexts}
    assert (len(digests) == 1) is same


def test_the_family_is_registered_under_its_name_with_one_scope() -> None:
    assert isinstance(REVIEW.family("ProjectScreening"), ProjectScreening)
    assert FAMILY.declared_scopes(context(AgreementThreshold())) == (PROJECT_SCOPE,)
