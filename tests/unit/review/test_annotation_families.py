"""The annotation families' derivations: changes add up to the naive counts, and what is not moved is staled.

Sessions, reservations and decisions come from members, from somebody who left and from somebody who never joined, on
stages of the project and on one that it no longer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.review.catalogue import REVIEW
from statlib.review.evidence import ReviewContext, ReviewDomain, StudyEvidence
from statlib.review.families.domain_reconciliation import DomainReconciliation
from statlib.review.families.membership_stage_annotation import MembershipStageAnnotation
from statlib.review.families.question_answers import QuestionAnswers
from statlib.review.families.reviewer_annotation import ReviewerAnnotation
from statlib.review.families.stage_annotation import StageAnnotation
from statlib.review.scopes import stage_member_scope, stage_scope
from statlib.statistics.catalogue import Effect
from statlib.statistics.counters import Counters, plus, without_zeros
from statlib.statistics.documents import TrackingMode
from tests.annotated import (
    GONE,
    KEYS,
    LEFT,
    MEMBERS,
    PEOPLE,
    QUESTIONS,
    STAGES,
    STRANGER,
    TARGETS,
    Act,
    Step,
    a_project,
    a_study,
    after,
)
from tests.oracles.families_annotation import ORACLES, annotation_of_people

PROJECT = UUID(int=99)
STUDIES = [UUID(int=number) for number in (10, 11)]
DOMAIN = ReviewDomain()
MOVED: list[Any] = [StageAnnotation(), MembershipStageAnnotation(), DomainReconciliation()]
STALED: list[Any] = [ReviewerAnnotation(), QuestionAnswers()]

steps = st.builds(
    Step,
    act=st.sampled_from(Act),
    who=st.sampled_from(PEOPLE),
    stage=st.sampled_from([*STAGES, GONE]),
    reconciliation=st.booleans(),
    second=st.booleans(),
    answers=st.lists(st.tuples(st.sampled_from(QUESTIONS), st.sampled_from(KEYS)), max_size=3).map(tuple),
)
histories = st.lists(st.tuples(st.sampled_from(STUDIES), steps), max_size=30)
thresholds = st.fixed_dictionaries(
    {"MinScreenings": st.integers(1, 3), "AgreementRatio": st.floats(0.5, 1.0, exclude_min=True)}
)
trackings = st.sampled_from(TrackingMode)


def context(of: Mapping[str, Any], tracking: TrackingMode = TrackingMode.TRACKED) -> ReviewContext:
    return DOMAIN.context(of, tracking)


def evidence(study: Mapping[str, Any]) -> StudyEvidence:
    return DOMAIN.evidence(study)


def study(*steps: Step) -> dict[str, Any]:
    return after(a_study(STUDIES[0], PROJECT), *steps)


def naive(family: Any, studies: Mapping[UUID, Any], of: Mapping[str, Any], tracking: TrackingMode) -> Any:
    """The oracle's counters, of people who are no members too where the family moves them."""
    counted = ORACLES[family.name](studies.values(), of, tracking is TrackingMode.TRACKED)
    if isinstance(family, MembershipStageAnnotation):
        counted |= annotation_of_people(studies.values(), of, PEOPLE)
    return counted


def moves(effect: Effect) -> Mapping[str, Counters]:
    assert not effect.stale_family
    assert not effect.stale_scopes
    assert all(effect.moves.values())
    return effect.moves


def added(counters: Mapping[str, Counters], effect: Effect) -> dict[str, Counters]:
    return {scope: plus(own, moves(effect).get(scope, {})) for scope, own in counters.items()}


def dense(counters: Mapping[str, Counters]) -> dict[str, dict[str, int]]:
    return {scope: without_zeros(own) for scope, own in counters.items()}


@pytest.mark.parametrize("family", MOVED, ids=lambda family: family.name)
@given(histories, thresholds)
def test_accumulated_changes_equal_the_naive_count_at_every_step(
    family: Any, history: list[tuple[UUID, Step]], threshold: dict[str, Any]
) -> None:
    of = a_project(PROJECT, AgreementThreshold=threshold)
    studies = {id_: a_study(id_, PROJECT) for id_ in STUDIES}
    counters: dict[str, Counters] = naive(family, studies, of, TrackingMode.TRACKED)
    for id_, step in history:
        before, studies[id_] = studies[id_], after(studies[id_], step)
        effect = family.derive(evidence(before), evidence(studies[id_]), context(of))
        assert set(effect.moves) <= set(counters)
        counters = added(counters, effect)
        assert dense(counters) == naive(family, studies, of, TrackingMode.TRACKED)


@pytest.mark.parametrize("family", MOVED, ids=lambda family: family.name)
@given(st.lists(steps, max_size=20))
def test_a_change_is_the_difference_of_two_calculations_however_much_it_holds(family: Any, history: list[Step]) -> None:
    of = context(a_project(PROJECT))
    versions = [study()]
    for step in history:
        versions.append(after(versions[-1], step))
    seen = [evidence(version) for version in versions]
    nothing: dict[str, Counters] = naive(family, {}, a_project(PROJECT), TrackingMode.TRACKED)
    in_steps = nothing
    for one, next_ in pairwise(seen):
        in_steps = added(in_steps, family.derive(one, next_, of))
    assert dense(in_steps) == dense(added(nothing, family.derive(seen[0], seen[-1], of)))


@pytest.mark.parametrize("family", STALED, ids=lambda family: family.name)
@given(histories, thresholds, trackings)
def test_whatever_changes_a_declared_scope_stales_it_or_the_family(
    family: Any, history: list[tuple[UUID, Step]], threshold: dict[str, Any], tracking: TrackingMode
) -> None:
    of = a_project(PROJECT, AgreementThreshold=threshold)
    studies = {id_: a_study(id_, PROJECT) for id_ in STUDIES}
    counters = naive(family, studies, of, tracking)
    for id_, step in history:
        before, studies[id_] = studies[id_], after(studies[id_], step)
        now = naive(family, studies, of, tracking)
        effect = family.derive(evidence(before), evidence(studies[id_]), context(of, tracking))
        assert not effect.moves
        changed = {scope for scope in counters if now[scope] != counters[scope]}
        assert effect.stale_family or changed <= effect.stale_scopes
        counters = now


@pytest.mark.parametrize("family", [*MOVED, *STALED], ids=lambda family: family.name)
@given(st.lists(steps, max_size=20))
def test_equal_evidence_has_no_effect(family: Any, history: list[Step]) -> None:
    of = evidence(study(*history))
    assert not family.derive(of, of, context(a_project(PROJECT))).touches


ONE, OTHER = MEMBERS[:2]
SETTLED = (Step(Act.INCLUDE, ONE), Step(Act.INCLUDE, OTHER))


@pytest.mark.parametrize(
    ("crossing", "c"),
    [
        (Step(Act.INCLUDE, OTHER), "Included"),
        (Step(Act.EXCLUDE, ONE), "Undecided"),
    ],
    ids=["a decision settles the study", "a correction does not"],
)
def test_a_study_that_crosses_the_threshold_moves_all_its_tallies_and_every_stage_s_population(
    crossing: Step, c: str
) -> None:
    before = study(
        Step(Act.INCLUDE, ONE),
        Step(Act.START, ONE, STAGES[0]),
        Step(Act.COMPLETE, ONE, STAGES[0]),
        Step(Act.RESERVE, STRANGER, STAGES[0]),
        Step(Act.RELEASE, STRANGER, STAGES[0]),
        Step(Act.START, LEFT, GONE),
    )
    of, found = context(a_project(PROJECT)), [evidence(before), evidence(after(before, crossing))]
    stages, people, backlog = (moves(family.derive(*found, of)) for family in MOVED)
    if c == "Undecided":
        assert (stages, people, backlog) == ({}, {}, {})
        return
    turned = {f"{c}": 1, "Undecided": -1}
    assert stages == {
        stage_scope(STAGES[0]): {
            key: weight
            for inclusion, weight in turned.items()
            for key in (
                f"Population/{inclusion}",
                f"Tally/{inclusion}/1:1",
                f"Sessioned/{inclusion}/Started",
                f"Sessioned/{inclusion}/Completed",
            )
        },
        stage_scope(STAGES[1]): {f"Population/{inclusion}": weight for inclusion, weight in turned.items()},
    }
    assert people == {
        stage_member_scope(STAGES[0], ONE): {
            f"{inclusion}/{kind}": weight for inclusion, weight in turned.items() for kind in ("Started", "Completed")
        }
    }
    assert backlog == {stage_scope(STAGES[0]): {"Included/NotReady": 1, "Undecided/NotReady": -1}}


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        ((Step(Act.RESERVE, ONE),), "NotReady"),
        ((Step(Act.COMPLETE, ONE), Step(Act.START, OTHER)), "NotReady"),
        ((Step(Act.COMPLETE, ONE), Step(Act.COMPLETE, OTHER)), "Awaiting"),
        ((Step(Act.COMPLETE, ONE), Step(Act.COMPLETE, OTHER), Step(Act.COMPLETE, STRANGER)), "Awaiting"),
        (
            (Step(Act.COMPLETE, ONE), Step(Act.COMPLETE, OTHER), Step(Act.START, LEFT, reconciliation=True)),
            "InProgress",
        ),
        ((Step(Act.START, ONE, reconciliation=True),), "InProgress"),
        ((Step(Act.COMPLETE, ONE, reconciliation=True), Step(Act.START, ONE)), "Reconciled"),
    ],
    ids=["a place taken", "one of two", "two of two", "three of two", "begun", "begun early", "done"],
)
def test_the_backlog_follows_completed_candidates_and_reconciliations(steps: tuple[Step, ...], state: str) -> None:
    effect = DomainReconciliation().derive(evidence(study()), evidence(study(*steps)), context(a_project(PROJECT)))
    assert moves(effect) == {stage_scope(STAGES[0]): {f"Undecided/{state}": 1}}


def own(*people: UUID, stage: UUID = STAGES[0]) -> Effect:
    return Effect(stale_scopes=frozenset(stage_member_scope(stage, who) for who in people))


FAMILY, NOTHING = Effect(stale_family=True), Effect()
INTENTS = [
    pytest.param((), Step(Act.INCLUDE, ONE), NOTHING, NOTHING, id="a decision that settles nothing"),
    pytest.param(SETTLED[:1], SETTLED[1], FAMILY, FAMILY, id="a decision that includes"),
    pytest.param(
        (Step(Act.EXCLUDE, ONE),), Step(Act.EXCLUDE, OTHER), FAMILY, FAMILY, id="a decision that excludes"
    ),
    pytest.param(SETTLED, Step(Act.RETRACT, ONE), FAMILY, FAMILY, id="a retraction"),
    pytest.param(SETTLED, Step(Act.RESERVE, ONE), own(ONE), own(ONE), id="a reservation below the target"),
    pytest.param(
        (*SETTLED, Step(Act.RESERVE, ONE)), Step(Act.RESERVE, OTHER), FAMILY, own(OTHER),
        id="the reservation that reaches it",
    ),
    pytest.param(
        (*SETTLED, Step(Act.RESERVE, ONE), Step(Act.START, OTHER)), Step(Act.RELEASE, ONE), FAMILY, own(ONE),
        id="the release that undoes it",
    ),
    pytest.param(
        (*SETTLED, Step(Act.START, ONE)), Step(Act.START, STRANGER), FAMILY, FAMILY,
        id="a stranger's session that reaches it",
    ),
    pytest.param(
        (*SETTLED, Step(Act.START, ONE)), Step(Act.COMPLETE, ONE), own(ONE), own(ONE), id="a session completed"
    ),
    pytest.param(
        (*SETTLED, Step(Act.START, ONE)), Step(Act.START, OTHER, reconciliation=True), own(OTHER), own(OTHER),
        id="a reconciliation",
    ),
    pytest.param(SETTLED, Step(Act.START, ONE, GONE), NOTHING, NOTHING, id="a stage that is gone"),
]  # fmt: skip


@pytest.mark.req("SCOPEMVP-07")
@pytest.mark.parametrize(("before", "step", "tracked", "untracked"), INTENTS)
def test_what_a_reviewer_can_annotate_is_outdated_by_class_and_allocation_for_all_else_for_those_who_acted(
    before: tuple[Step, ...], step: Step, tracked: Effect, untracked: Effect
) -> None:
    one, of = study(*before), a_project(PROJECT)
    for tracking, expected in ((TrackingMode.TRACKED, tracked), (TrackingMode.UNTRACKED, untracked)):
        found = ReviewerAnnotation().derive(evidence(one), evidence(after(one, step)), context(of, tracking))
        assert found == expected


ANSWERED = (Step(Act.START, ONE), Step(Act.ANSWER, ONE, answers=((QUESTIONS[0], "yes"),)))
COMPLETED = (*ANSWERED, Step(Act.COMPLETE, ONE))


@pytest.mark.req("SCOPEMVP-07")
@pytest.mark.parametrize(
    ("before", "step", "staled"),
    [
        ((), ANSWERED[0], False),
        (ANSWERED[:1], ANSWERED[1], False),
        (ANSWERED[:1], COMPLETED[-1], False),
        (ANSWERED, COMPLETED[-1], True),
        (COMPLETED, Step(Act.ANSWER, ONE, answers=((QUESTIONS[0], "no"),)), True),
        (COMPLETED, Step(Act.ANSWER, ONE, answers=((QUESTIONS[0], None),)), True),
        (COMPLETED, ANSWERED[1], False),
        (COMPLETED, Step(Act.DELETE, ONE), True),
        (ANSWERED, Step(Act.DELETE, ONE), False),
        (COMPLETED, Step(Act.RESERVE, OTHER), False),
        ((*COMPLETED, SETTLED[0]), SETTLED[1], False),
    ],
    ids=[
        "started", "answered while started", "completed without answers", "completed", "edited after completion",
        "text instead of a value", "saved again as it was", "a completed one deleted", "a started one deleted",
        "a reservation", "a crossing",
    ],
)  # fmt: skip
def test_answers_are_outdated_by_what_changes_those_of_completed_sessions(
    before: tuple[Step, ...], step: Step, staled: bool
) -> None:
    one = study(*before)
    effect = QuestionAnswers().derive(evidence(one), evidence(after(one, step)), context(a_project(PROJECT)))
    assert effect == (Effect(stale_scopes=frozenset({"project"})) if staled else Effect())


def edited(stage: int, **changed: Any) -> dict[str, Any]:
    of = a_project(PROJECT)
    of["Stages"][stage] |= changed
    return of


THRESHOLD = a_project(PROJECT, AgreementThreshold={"MinScreenings": 2, "AgreementRatio": 0.75})
TARGET = edited(0, SessionCountTarget=TARGETS[0] + 1)
ELSEWHERE = edited(1, SessionCountTarget=TARGETS[1] + 1)
PERSON = a_project(PROJECT, Memberships=[])
NAME = edited(0, Name="another name")
OUTDATED = {
    "StageAnnotation": [THRESHOLD],
    "MembershipStageAnnotation": [THRESHOLD],
    "DomainReconciliation": [THRESHOLD, TARGET],
    "ReviewerAnnotation": [THRESHOLD, TARGET],
    "QuestionAnswers": [],
}


@pytest.mark.parametrize("family", [*MOVED, *STALED], ids=lambda family: family.name)
@pytest.mark.parametrize(
    "changed",
    [THRESHOLD, TARGET, ELSEWHERE, PERSON, NAME],
    ids=["threshold", "target", "another stage's target", "members", "a stage's name"],
)
def test_a_scope_is_calculated_under_what_changes_its_counters_alone(family: Any, changed: dict[str, Any]) -> None:
    """A target of one stage outdates the scopes of that stage, and of the families that look at targets."""
    first = next(iter(family.declared_scopes(context(a_project(PROJECT)))))
    digests = {REVIEW.configuration(context(of)).digest(family.name, first) for of in (a_project(PROJECT), changed)}
    assert (len(digests) > 1) is (changed in OUTDATED[family.name])


@pytest.mark.parametrize("family", [*MOVED, *STALED], ids=lambda family: family.name)
def test_the_families_declare_what_the_oracle_counts(family: Any) -> None:
    of = a_project(PROJECT)
    declared = REVIEW.family(family.name).declared_scopes(context(of))
    assert list(declared) == list(dict.fromkeys(declared))
    assert set(declared) == set(ORACLES[family.name]([], of, True))


def test_a_scope_of_somebody_who_left_is_calculated_under_something_too() -> None:
    """Its placeholder carries a digest like any other row."""
    of = REVIEW.configuration(context(a_project(PROJECT)))
    for family in ("MembershipStageAnnotation", "ReviewerAnnotation"):
        assert of.digest(family, stage_member_scope(STAGES[0], LEFT))
        assert of.digest(family, stage_member_scope(GONE, LEFT))
