"""The annotation families' aggregations on a real server equal the naive counts, whoever annotated what."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import snapshot
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.review.families.membership_stage_annotation import MembershipStageAnnotation
from statlib.review.scopes import stage_member_scope
from statlib.statistics.authoritative import PinnedReads, calculate
from statlib.statistics.counters import without_zeros
from statlib.statistics.documents import TrackingMode
from tests.annotated import AT, GONE, PEOPLE, QUESTIONS, STAGES, Act, Step, a_project, a_study, after, any_step
from tests.oracles.families_annotation import ORACLES, annotation_of_people


def studies_of(project: UUID, chance: random.Random, people: list[UUID], studies: int) -> list[dict[str, Any]]:
    def steps() -> list[Step]:
        return [any_step(chance, people, [*STAGES, GONE]) for _ in range(chance.randrange(40))]

    return [after(a_study(uuid4(), project), *steps()) for _ in range(studies)]


def counted(
    mongo: Mongo, of: dict[str, Any], family: str, tracking: TrackingMode = TrackingMode.TRACKED
) -> dict[str, dict[str, int]]:
    with snapshot(mongo) as session:
        context = REVIEW.domain.context(of, tracking)
        values = calculate(PinnedReads(mongo, session), REVIEW, [family], of["_id"], context)[family]
    return {scope: dict(counters) for scope, counters in values.items()}


PROJECTS = [
    pytest.param({}, PEOPLE, id="members, one who left and a stranger"),
    pytest.param({"Memberships": []}, PEOPLE, id="nobody joined"),
    pytest.param({"Stages": []}, PEOPLE, id="no stages"),
    pytest.param({"AgreementThreshold": {"MinScreenings": 1, "AgreementRatio": 0.51}}, PEOPLE, id="one settles"),
    pytest.param({"AgreementThreshold": {"MinScreenings": 3, "AgreementRatio": 2 / 3}}, PEOPLE, id="three settle"),
    pytest.param(
        {"Memberships": [{"InvestigatorId": UUID(int=1000 + n), "JoinedAtUtc": AT} for n in range(101)]},
        [UUID(int=1000 + n) for n in range(101)],
        id="a hundred and one members",
    ),
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("project", "people"), PROJECTS)
def test_the_server_counts_what_the_oracle_counts(
    mongo: Mongo, project: dict[str, Any], people: list[UUID], seed: int
) -> None:
    chance, of = random.Random(seed), a_project(uuid4(), **project)
    stored = studies_of(of["_id"], chance, people, 80)
    mongo.collection(STUDIES).insert_many(stored + studies_of(uuid4(), chance, people, 5))
    for family, oracle in ORACLES.items():
        for tracking in TrackingMode:
            assert counted(mongo, of, family, tracking) == oracle(stored, of, tracking is TrackingMode.TRACKED)


def test_people_who_are_no_members_are_counted_though_not_declared(mongo: Mongo) -> None:
    """Their rows move, so a check of what is stored may ask for them."""
    of, family = a_project(uuid4()), MembershipStageAnnotation()
    stored = studies_of(of["_id"], random.Random(5), PEOPLE, 60)
    mongo.collection(STUDIES).insert_many(stored)
    context = REVIEW.domain.context(of, TrackingMode.TRACKED)
    groups = mongo.collection(STUDIES).aggregate(family.aggregation(of["_id"], context))
    found = {scope: without_zeros(counters) for scope, counters in family.collect(groups, context).items()}
    assert found == {scope: own for scope, own in annotation_of_people(stored, of, PEOPLE).items() if own}


def test_a_project_without_studies_counts_zero_in_every_scope(mongo: Mongo) -> None:
    mongo.database.create_collection(STUDIES)
    of = a_project(uuid4())
    for family, oracle in ORACLES.items():
        assert counted(mongo, of, family) == oracle([], of, True)
        assert not any(counted(mongo, of, family).values())


@pytest.mark.parametrize("absent", ["left out", None], ids=["left out", "null"])
def test_studies_stored_without_the_arrays_count_as_not_annotated(mongo: Mongo, absent: str | None) -> None:
    of = a_project(uuid4())
    study = {**a_study(uuid4(), of["_id"]), "Screenings": [{"InvestigatorId": p, "Included": True} for p in PEOPLE]}
    for name in ("Sessions", "Tallies", "SlotReservations"):
        study[name] = absent
        if absent:
            del study[name]
    mongo.collection(STUDIES).insert_one(study)
    for family, oracle in ORACLES.items():
        assert counted(mongo, of, family) == oracle([study], of, True)


@pytest.mark.parametrize("first", [True, False], ids=["the first completed", "the second completed"])
def test_a_study_counts_once_for_somebody_with_two_sessions_of_one_sort(mongo: Mongo, first: bool) -> None:
    of, who = a_project(uuid4(), AgreementThreshold={"MinScreenings": 1, "AgreementRatio": 1.0}), PEOPLE[0]
    steps = [
        Step(Act.INCLUDE, who),
        Step(Act.COMPLETE if first else Act.START, who),
        Step(Act.START if first else Act.COMPLETE, who, second=True),
    ]
    mongo.collection(STUDIES).insert_one(after(a_study(uuid4(), of["_id"]), *steps))
    scope = stage_member_scope(STAGES[0], who)
    assert counted(mongo, of, "MembershipStageAnnotation")[scope] == {"Included/Started": 1, "Included/Completed": 1}
    assert counted(mongo, of, "ReviewerAnnotation")[scope] == {"Completed": 1}


def test_keys_of_answers_are_counted_as_they_are(mongo: Mongo) -> None:
    of, question = a_project(uuid4()), QUESTIONS[0]
    keys = ["3.5", "yes/no?", "$who", "", "true", None]
    steps = [
        Step(Act.START, PEOPLE[0]),
        Step(Act.ANSWER, PEOPLE[0], answers=tuple((question, key) for key in keys)),
        Step(Act.COMPLETE, PEOPLE[0]),
    ]
    stored = [after(a_study(uuid4(), of["_id"]), *steps) for _ in range(2)]
    del stored[0]["Sessions"][0]["Answers"][-1]["Key"]
    mongo.collection(STUDIES).insert_many(stored)
    expected = {f"{question}/Answered": 12, f"{question}/Text": 2}
    expected |= {f"{question}/Value/{key}": 2 for key in keys if key is not None}
    assert counted(mongo, of, "QuestionAnswers") == {"project": expected}
