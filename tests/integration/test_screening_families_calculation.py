"""The screening families' aggregations on a real server equal the naive counts, whoever decided, and how."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import snapshot
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES, AgreementThreshold, Membership, Project, Search, Study
from statlib.review.screening import Decision, decide
from statlib.statistics.authoritative import PinnedReads
from statlib.statistics.counters import without_zeros
from statlib.statistics.documents import TrackingMode
from tests.oracles.families_screening import ORACLES

AT = datetime(2024, 1, 1, tzinfo=UTC)
NO_MEMBERS = [uuid4() for _ in range(3)]  # left, or never joined


def a_project(members: int, *, min_screenings: int = 2, agreement_ratio: float = 0.66, searches: int = 2) -> Project:
    return Project(
        id=uuid4(),
        name="a",
        agreement_threshold=AgreementThreshold(min_screenings=min_screenings, agreement_ratio=agreement_ratio),
        memberships=tuple(Membership(investigator_id=uuid4(), joined_at_utc=AT) for _ in range(members)),
        searches=tuple(Search(id=uuid4(), name="a search") for _ in range(searches)),
    )


def a_study(of: Project, chance: random.Random) -> dict[str, Any]:
    people = [*NO_MEMBERS, *(membership.investigator_id for membership in of.memberships)]
    searches: list[UUID | None] = [None, uuid4(), *(search.id for search in of.searches)]
    study = Study(id=uuid4(), project_id=of.id, search_id=chance.choice(searches))
    screenings = study.screenings
    for _ in range(chance.randrange(7)):
        screenings = decide(screenings, chance.choice(people), chance.choice(list(Decision)), AT)
    return study.model_copy(update={"screenings": screenings}).to_bson()


def counted(mongo: Mongo, of: Project, family: str) -> dict[str, dict[str, int]]:
    """By the family's own aggregation, without zeros."""
    context, counts = REVIEW.domain.context(of.to_bson(), TrackingMode.TRACKED), REVIEW.family(family)
    with snapshot(mongo) as session:
        groups = PinnedReads(mongo, session).aggregate(STUDIES, counts.aggregation(of.id, context))
    values = counts.collect(groups, context)
    return {scope: without_zeros(values.get(scope, {})) for scope in counts.declared_scopes(context)}


def store(mongo: Mongo, studies: list[dict[str, Any]]) -> None:
    mongo.collection(STUDIES).insert_many(studies)


PROJECTS = [
    pytest.param({"members": 4}, 120, id="a few members"),
    pytest.param({"members": 3, "min_screenings": 1, "searches": 0}, 60, id="one screening settles"),
    pytest.param({"members": 6, "min_screenings": 3, "agreement_ratio": 2 / 3}, 120, id="three screenings"),
    pytest.param({"members": 4, "agreement_ratio": 1.0}, 60, id="all must agree"),
    pytest.param({"members": 0}, 40, id="nobody joined"),
    pytest.param({"members": 100}, 150, id="a hundred members"),
    pytest.param({"members": 101}, 150, id="a hundred and one members"),
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("project", "studies"), PROJECTS)
def test_the_server_counts_what_the_oracle_counts(
    mongo: Mongo, project: dict[str, Any], studies: int, seed: int
) -> None:
    chance, of, other = random.Random(seed), a_project(**project), a_project(2)
    stored = [a_study(of, chance) for _ in range(studies)]
    store(mongo, stored + [a_study(other, chance) for _ in range(5)])
    for family, oracle in ORACLES.items():
        assert counted(mongo, of, family) == oracle(stored, of.to_bson())


def test_a_project_without_studies_counts_zero_in_every_scope(mongo: Mongo) -> None:
    mongo.database.create_collection(STUDIES)
    of = a_project(2)
    for family, oracle in ORACLES.items():
        assert counted(mongo, of, family) == oracle([], of.to_bson())
        assert not any(counted(mongo, of, family).values())


def test_a_study_without_the_array_is_available_to_everybody(mongo: Mongo) -> None:
    of = a_project(2)
    documents: list[dict[str, Any]] = [{"_id": uuid4(), "ProjectId": of.id, "Audit": {"Version": 0}} for _ in range(3)]
    documents[1]["Screenings"] = None
    store(mongo, documents)
    assert list(counted(mongo, of, "MembershipScreening").values()) == [{"Available": 3}, {"Available": 3}]
    assert list(counted(mongo, of, "ReviewerScreening").values()) == [{}, {}]
