"""What waits in a study does to every family what the change itself does, once it is read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.review.catalogue import REVIEW
from statlib.review.evidence import ReviewContext, StudyEvidence
from statlib.review.families import question_answers, reviewer_annotation
from statlib.review.transitions import KINDS, Group, Kind, ReviewTransitions
from statlib.statistics.bounds import PENDING_ENTRY_BYTES_MAX
from statlib.statistics.catalogue import Effect
from statlib.statistics.derivation import Consumer, derive
from statlib.statistics.documents import TrackingMode
from statlib.statistics.pending import FOLD_PROTOCOL, Entry, Poison, Transition, Underivable, parse_entry
from tests.annotated import AT, GONE, KEYS, PEOPLE, QUESTIONS, STAGES, Act, Step, a_project, a_study, after

PROJECT, STUDY = UUID(int=99), UUID(int=10)
CODEC: Any = bson.codec_options.CodecOptions(uuid_representation=bson.binary.UuidRepresentation.STANDARD, tz_aware=True)
TRANSITIONS = ReviewTransitions()

steps = st.builds(
    Step,
    act=st.sampled_from(Act),
    who=st.sampled_from(PEOPLE),
    stage=st.sampled_from([*STAGES, GONE]),
    reconciliation=st.booleans(),
    second=st.booleans(),
    answers=st.lists(st.tuples(st.sampled_from(QUESTIONS), st.sampled_from(KEYS)), max_size=3).map(tuple),
)
histories = st.lists(steps, max_size=15)
changes = st.lists(steps, min_size=1, max_size=2)
contexts = st.builds(
    lambda threshold, tracking, staged: REVIEW.domain.context(
        a_project(PROJECT, AgreementThreshold=threshold, **({} if staged else {"Stages": []})), tracking
    ),
    st.fixed_dictionaries({"MinScreenings": st.integers(1, 3), "AgreementRatio": st.sampled_from([0.51, 0.66, 1.0])}),
    st.sampled_from(TrackingMode),
    st.booleans(),
)


def study(*taken: Step) -> dict[str, Any]:
    return after(a_study(STUDY, PROJECT), *taken)


def evidence(of: Mapping[str, Any]) -> StudyEvidence:
    return REVIEW.domain.evidence(of)


def entry(before: StudyEvidence, after_: StudyEvidence, under: ReviewContext, **changed: Any) -> Entry:
    """As it is stored and read again."""
    encoded = TRANSITIONS.encode(before, after_, under, REVIEW.folding)
    made = Entry(
        protocol_version=FOLD_PROTOCOL,
        operation_namespace="n",
        operation_id="o:0",
        expected_source_revision=0,
        source_revision_before=0,
        source_revision_after=1,
        submission_digest="d",
        created_at_utc=AT,
        context=dict(TRANSITIONS.context_digests(under)),
        catalogue_version=REVIEW.version,
        assumed_tracking_epoch=7,
        transitions=list(encoded.transitions),
        invalidations=list(encoded.intents),
    ).model_copy(update=changed)
    return parse_entry(bson.decode(bson.encode(made.to_bson(), codec_options=CODEC), codec_options=CODEC))


def unanswered(of: StudyEvidence) -> StudyEvidence:
    return replace(of, sessions=frozenset((id_, replace(session, answers=())) for id_, session in of.sessions))


def declared(context: ReviewContext) -> frozenset[str]:
    return REVIEW.folding if context.targets else REVIEW.folding - {reviewer_annotation.NAME}


def effects(before: StudyEvidence, after_: StudyEvidence, context: ReviewContext) -> dict[str, Effect]:
    """Of the change itself. Answers alone concern what is counted of them, and nothing else; and without a stage there
    is nothing of a reviewer's part that could be outdated."""
    found: dict[str, Effect] = {}
    for family in declared(context):
        images = (before, after_) if family == question_answers.NAME else (unanswered(before), unanswered(after_))
        found[family] = REVIEW.families[family].derive(*images, context)
    return {family: effect for family, effect in found.items() if effect.touches}


@pytest.mark.req("ENTRY-35", "ENTRY-37", "ENTRY-38", "ENTRY-39", "ENTRY-40", "ENTRY-43")
@given(histories, changes, contexts)
def test_what_an_entry_does_is_what_the_change_does(
    history: list[Step], change: list[Step], context: ReviewContext
) -> None:
    was = study(*history)
    before, now = evidence(was), evidence(after(was, *change))
    derived = derive(entry(before, now, context), Consumer.of(REVIEW, context, 7), REVIEW.folding)
    assert {f: effect for f, effect in derived.effects.items() if f in declared(context)} == effects(
        before, now, context
    )
    assert not derived.mismatched


@given(histories, changes, contexts, st.sets(st.sampled_from(sorted(REVIEW.folding))))
def test_families_that_were_not_asked_for_are_not_looked_at(
    history: list[Step], change: list[Step], context: ReviewContext, asked: set[str]
) -> None:
    was = study(*history)
    before, now = evidence(was), evidence(after(was, *change))
    derived = derive(entry(before, now, context), Consumer.of(REVIEW, context, 7), asked)
    assert derived.effects.keys() <= asked
    assert {f: effect for f, effect in derived.effects.items() if f in declared(context)} == {
        f: effect for f, effect in effects(before, now, context).items() if f in asked
    }


@given(histories, changes, contexts)
def test_no_entry_is_made_of_a_change_that_does_nothing(
    history: list[Step], change: list[Step], context: ReviewContext
) -> None:
    was = study(*history)
    before, now = evidence(was), evidence(after(was, *change))
    encoded = TRANSITIONS.encode(before, now, context, REVIEW.folding)
    if effects(before, now, context):
        assert encoded
    assert not TRANSITIONS.encode(now, now, context, REVIEW.folding)


@pytest.mark.req("ENTRY-44", "ENTRY-26", "SAVE-39")
@pytest.mark.parametrize(
    ("changed", "groups"),
    [
        ({"assumed_tracking_epoch": 8}, set(Group)),
        ({"catalogue_version": REVIEW.version + 1}, set(Group)),
        ({"source_version": 99}, set(Group)),
        ({"context": {}}, set(Group)),
        *(({"context": group}, {group}) for group in Group),
    ],
    ids=str,
)
def test_an_entry_of_another_context_is_certain_of_no_family_of_that_group(changed: Any, groups: set[Group]) -> None:
    context = REVIEW.domain.context(a_project(PROJECT), TrackingMode.TRACKED)
    if isinstance(other := changed.get("context"), Group):
        changed = {"context": {**TRANSITIONS.context_digests(context), other: "another"}}
    made = entry(evidence(study()), evidence(study(Step(Act.INCLUDE, PEOPLE[0]))), context, **changed)
    derived = derive(made, Consumer.of(REVIEW, context, 7), REVIEW.folding)
    assert derived.mismatched == {family for family, group in TRANSITIONS.groups.items() if group in groups}
    assert not derived.mismatched.intersection(derived.effects)


@pytest.mark.req("ENTRY-26")
def test_who_joins_changes_the_context_of_what_is_counted_per_member_alone() -> None:
    one = REVIEW.domain.context(a_project(PROJECT), TrackingMode.TRACKED)
    more = replace(one, members=(*one.members, UUID(int=77)))
    changed = {g for g, d in TRANSITIONS.context_digests(one).items() if TRANSITIONS.context_digests(more)[g] != d}
    assert changed == {Group.MEMBERSHIP}


@pytest.mark.req("ENTRY-31")
@pytest.mark.parametrize("members", [100, 101])
def test_beyond_a_hundred_members_what_is_counted_per_member_is_staled(members: int) -> None:
    context = replace(
        REVIEW.domain.context(a_project(PROJECT), TrackingMode.TRACKED),
        members=tuple(UUID(int=1_000 + n) for n in range(members)),
    )
    before, now = evidence(study()), evidence(study(Step(Act.INCLUDE, UUID(int=1_000))))
    derived = derive(entry(before, now, context), Consumer.of(REVIEW, context, 7), REVIEW.folding)
    assert derived.effects == effects(before, now, context)
    staled = {family for family, effect in derived.effects.items() if effect.stale_family}
    assert staled == (set() if members == 100 else KINDS[Kind.REVIEWER_SCREENING_POINT])


@pytest.mark.req("ENTRY-41", "ENTRY-42")
def test_a_crossing_that_takes_too_many_bytes_stales_its_families_instead() -> None:
    context = REVIEW.domain.context(a_project(PROJECT), TrackingMode.TRACKED)
    stages = KINDS[Kind.ANNOTATION_MULTI_STAGE]
    for people, fits in ((4, True), (60, False)):
        crowd = [Step(Act.COMPLETE, UUID(int=1_000 + n)) for n in range(people)]
        was = study(*crowd, Step(Act.INCLUDE, PEOPLE[0]))
        made = entry(evidence(was), evidence(after(was, Step(Act.INCLUDE, PEOPLE[1]))), context)
        kinds = {transition.kind for transition in made.transitions}
        assert (Kind.ANNOTATION_MULTI_STAGE in kinds) is fits
        assert {intent.family for intent in made.invalidations} == (set() if fits else stages)
        assert len(bson.encode(made.to_bson(), codec_options=CODEC)) < PENDING_ENTRY_BYTES_MAX


@pytest.mark.req("ENTRY-46")
def test_entries_of_everyday_changes_stay_small() -> None:
    context = REVIEW.domain.context(a_project(PROJECT), TrackingMode.TRACKED)
    for before, now in (
        (study(), study(Step(Act.INCLUDE, PEOPLE[0]))),
        (study(), study(Step(Act.COMPLETE, PEOPLE[0]))),
    ):
        made = entry(evidence(before), evidence(now), context)
        assert len(bson.encode(made.to_bson(), codec_options=CODEC)) <= 1_500


@pytest.mark.req("ENTRY-29")
@pytest.mark.parametrize(
    ("transition", "poison"),
    [
        (Transition(kind="Unheard", payload={}), Poison.UNKNOWN_KIND),
        *((Transition(kind=kind, payload={}), Poison.UNDESERIALIZABLE) for kind in Kind),
        (
            Transition(
                kind=Kind.PROJECT_SCREENING_PROFILE, payload={"Before": {"N": 1, "I": 2}, "After": {"N": 0, "I": 0}}
            ),
            Poison.UNDESERIALIZABLE,
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, Transition) else str(value),
)
def test_what_this_release_cannot_read_is_no_change_of_nothing(transition: Transition, poison: Poison) -> None:
    context = REVIEW.domain.context(a_project(PROJECT), TrackingMode.TRACKED)
    made = entry(evidence(study()), evidence(study()), context, transitions=[transition])
    with pytest.raises(Underivable) as underivable:
        derive(made, Consumer.of(REVIEW, context, 7), REVIEW.folding)
    assert underivable.value.reason is poison


def test_a_reviewers_part_of_a_study_comes_out_as_what_is_to_be_staled() -> None:
    context = REVIEW.domain.context(a_project(PROJECT), TrackingMode.TRACKED)
    made = entry(evidence(study()), evidence(study(Step(Act.START, PEOPLE[0]))), context)
    assert made.invalidations == []
    effect = derive(made, Consumer.of(REVIEW, context, 7), {reviewer_annotation.NAME}).effects[reviewer_annotation.NAME]
    assert effect.stale_scopes or effect.stale_family
