"""One walk over the studies counts for any of the nine families what each counts alone, and what the oracles count."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.bench.projects import Shape, generated_project, insert_studies
from statlib.mongo.command_counter import counting
from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import snapshot
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.review.study_pass import NEEDS
from statlib.statistics.authoritative import PinnedReads, calculate
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import TrackingMode
from tests.annotated import AT, GONE, PEOPLE, STAGES, Step, a_project, a_study, after, any_step
from tests.oracles import families_annotation, families_screening

ORACLES = families_screening.ORACLES | families_annotation.ORACLES
ALONE: AnyCatalogue = replace(REVIEW, passes=())
SEARCHES = [UUID(int=number) for number in (60, 61)]


def a_review(**changed: Any) -> dict[str, Any]:
    return a_project(uuid4(), Searches=[{"Id": search, "Name": "a search"} for search in SEARCHES], **changed)


def studies_of(project: UUID, chance: random.Random, people: list[UUID], studies: int) -> list[dict[str, Any]]:
    def steps() -> list[Step]:
        return [any_step(chance, people, [*STAGES, GONE]) for _ in range(chance.randrange(40))]

    searches = [None, uuid4(), *SEARCHES]
    return [{**after(a_study(uuid4(), project), *steps()), "SearchId": chance.choice(searches)} for _ in range(studies)]


def counted(
    mongo: Mongo,
    catalogue: AnyCatalogue,
    of: dict[str, Any],
    families: list[str],
    tracking: TrackingMode = TrackingMode.TRACKED,
) -> dict[str, Any]:
    with snapshot(mongo) as session:
        context = catalogue.domain.context(of, tracking)
        return calculate(PinnedReads(mongo, session), catalogue, families, of["_id"], context)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("project", "people"),
    [
        pytest.param({}, PEOPLE, id="members, one who left and a stranger"),
        pytest.param({"Memberships": [], "Stages": []}, PEOPLE, id="nobody joined, no stages"),
        pytest.param({"AgreementThreshold": {"MinScreenings": 1, "AgreementRatio": 0.51}}, PEOPLE, id="one settles"),
        pytest.param(
            {"Memberships": [{"InvestigatorId": UUID(int=1000 + n), "JoinedAtUtc": AT} for n in range(101)]},
            [UUID(int=1000 + n) for n in range(101)],
            id="a hundred and one members",
        ),
    ],
)
def test_one_walk_counts_what_the_nine_count_alone_and_what_the_oracles_count(
    mongo: Mongo, project: dict[str, Any], people: list[UUID], seed: int
) -> None:
    chance, of = random.Random(seed), a_review(**project)
    stored = studies_of(of["_id"], chance, people, 80)
    mongo.collection(STUDIES).insert_many(stored + studies_of(uuid4(), chance, people, 5))
    families = list(REVIEW.families)
    assert set(ORACLES) == set(families)
    for tracking in TrackingMode:
        together = counted(mongo, REVIEW, of, families, tracking)
        assert together == counted(mongo, ALONE, of, families, tracking)
        assert together == {f: ORACLES[f](stored, of, tracking is TrackingMode.TRACKED) for f in families}


@pytest.mark.parametrize("seed", range(12))
def test_any_two_families_or_more_are_fed_by_one_command(mongo: Mongo, seed: int) -> None:
    chance, of = random.Random(seed), a_review()
    stored = studies_of(of["_id"], chance, PEOPLE, 25)
    mongo.collection(STUDIES).insert_many(stored)
    families = chance.sample(list(REVIEW.families), k=chance.randrange(2, len(REVIEW.families)))
    with counting(mongo.client) as sent:
        together = counted(mongo, REVIEW, of, families)
    assert sent.names == ("aggregate",)
    assert together == {family: ORACLES[family](stored, of, True) for family in families}


@pytest.mark.parametrize("absent", ["left out", None], ids=["left out", "null"])
def test_studies_stored_without_the_arrays_are_counted_as_without_entries(mongo: Mongo, absent: str | None) -> None:
    of = a_review()
    study = a_study(uuid4(), of["_id"])
    for name in ("Screenings", "Sessions", "Tallies", "SlotReservations"):
        study[name] = absent
        if absent:
            del study[name]
    mongo.collection(STUDIES).insert_one(study)
    families = list(REVIEW.families)
    together = counted(mongo, REVIEW, of, families)
    assert together == counted(mongo, ALONE, of, families)
    assert together["ProjectScreening"]["project"]["Class/Unscreened"] == 1


def test_one_family_alone_uses_its_own_aggregation(mongo: Mongo) -> None:
    of = a_review()
    mongo.collection(STUDIES).insert_many(studies_of(of["_id"], random.Random(3), PEOPLE, 20))
    for family in REVIEW.families:
        assert counted(mongo, REVIEW, of, [family]) == counted(mongo, ALONE, of, [family])


def test_every_registered_family_is_fed() -> None:
    (shared,) = REVIEW.passes
    assert shared.families == set(REVIEW.families) == set(NEEDS)


def test_a_generated_project_is_counted_alike_in_every_way(mongo: Mongo) -> None:
    """Also what benchmarks are measured on is no easier than real studies: every family has something to count."""
    shape = Shape(300, members=5)
    project = generated_project(shape)
    insert_studies(mongo, project, shape)
    of, families = project.to_bson(), list(REVIEW.families)
    together = counted(mongo, REVIEW, of, families)
    stored = list(mongo.collection(STUDIES).find())
    assert len(stored) == shape.studies
    assert together == {family: ORACLES[family](stored, of, True) for family in families}
    assert all(any(scopes.values()) for scopes in together.values())
