"""ProjectScreening's aggregation on a real server equals the naive count, whatever the history and the threshold."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import snapshot
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES, AgreementThreshold, Study
from statlib.review.evidence import ReviewContext
from statlib.review.families.project_screening import NAME, PROJECT_SCOPE
from statlib.review.screening import Decision, decide
from statlib.statistics.authoritative import PinnedReads, calculate
from tests.oracles.project_screening import project_screening

AT = datetime(2024, 1, 1, tzinfo=UTC)
PEOPLE = [UUID(int=number) for number in range(1, 6)]
THRESHOLDS = [
    AgreementThreshold(),
    AgreementThreshold(min_screenings=1),
    AgreementThreshold(min_screenings=3, agreement_ratio=2 / 3),
    AgreementThreshold(min_screenings=2, agreement_ratio=1.0),
    AgreementThreshold(min_screenings=5, agreement_ratio=0.51),
]


def a_study(project: UUID, chance: random.Random) -> dict[str, Any]:
    study = Study(id=uuid4(), project_id=project)
    screenings = study.screenings
    for _ in range(chance.randrange(9)):
        screenings = decide(screenings, chance.choice(PEOPLE), chance.choice(list(Decision)), AT)
    return study.model_copy(update={"screenings": screenings}).to_bson()


def counted(mongo: Mongo, project: UUID, threshold: AgreementThreshold) -> dict[str, int]:
    with snapshot(mongo) as session:
        context = ReviewContext(project, threshold, ())
        values = calculate(PinnedReads(mongo, session), REVIEW, [NAME], project, context)
    return dict(values[NAME][PROJECT_SCOPE])


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=lambda t: f"{t.min_screenings}-{t.agreement_ratio:.2f}")
@pytest.mark.parametrize("seed", range(4))
def test_the_server_counts_what_the_oracle_counts(mongo: Mongo, threshold: AgreementThreshold, seed: int) -> None:
    chance, project, other = random.Random(seed), uuid4(), uuid4()
    studies = [a_study(project, chance) for _ in range(chance.randrange(1, 120))]
    mongo.collection(STUDIES).insert_many(studies + [a_study(other, chance) for _ in range(5)])
    assert counted(mongo, project, threshold) == project_screening(studies, threshold.to_bson())


def test_a_study_without_the_array_counts_as_unscreened(mongo: Mongo) -> None:
    project = uuid4()
    documents = [{"_id": uuid4(), "ProjectId": project, "Audit": {"Version": 0}} for _ in range(3)]
    documents[1]["Screenings"] = None
    mongo.collection(STUDIES).insert_many(documents)
    assert counted(mongo, project, AgreementThreshold()) == {"Studies": 3, "Profile/0:0": 3, "Class/Unscreened": 3}


def test_a_project_without_studies_counts_nothing(mongo: Mongo) -> None:
    mongo.database.create_collection(STUDIES)
    assert counted(mongo, uuid4(), AgreementThreshold()) == {}
