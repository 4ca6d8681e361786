"""Generated projects for benchmarks: the shape of a real review at any size, the same one for the same seed.

Most studies have two screenings, some a third that settles a conflict, some none yet. An eighth or so is included, and
most of those are annotated on both annotation stages: by two reviewers each, completed by half of them, reconciled
where both are done. Claims of screening places have left a tally on nearly every screened study.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from statlib.mongo.connection import Mongo
from statlib.review.annotation import answer_key, tallies_after
from statlib.review.documents import (
    PROJECTS,
    STUDIES,
    Answer,
    AnswerKind,
    InclusionClass,
    Membership,
    Project,
    Question,
    Search,
    Session,
    SessionStatus,
    SlotReservation,
    Stage,
    StageKind,
    Study,
    Tally,
)
from statlib.review.screening import inclusion_class, screening_class

SCREENED = 0.8
INCLUDES = 0.15  # of a reviewer's decisions
LOOKED_AT_TWICE = 0.9
AGREES = 0.93  # a second reviewer with the first
SETTLED = 0.7  # conflicts that a third reviewer has decided
ANNOTATED = 0.8  # included studies per annotation stage
COMPLETED = 0.7  # sessions
RECONCILED = 0.6  # studies whose candidate sessions are all completed
RESERVED = 0.02  # unscreened studies that somebody has claimed
BATCH_DOCS = 500

_STARTED = datetime(2024, 3, 1, 9, tzinfo=UTC)
_WORDS = (
    *("effect", "of", "early", "treatment", "on", "outcome", "in", "adult", "mice", "after", "stroke", "systematic"),
    *("comparison", "with", "placebo", "measured", "by", "blinded", "assessors", "at", "four", "weeks", "reported"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a project is. ``questions`` are per annotation stage, ``abstract_words`` per study."""

    studies: int
    members: int = 20
    searches: int = 4
    questions: int = 8
    abstract_words: int = 150


def generated_project(shape: Shape, *, seed: int = 1) -> Project:
    """The project alone, without a study: one screening stage, two annotation stages."""
    chance = random.Random(seed)  # noqa: S311 - invents documents, keeps no secret
    stages = (
        Stage(id=_uuid(chance), name="Title and abstract", kind=StageKind.SCREENING),
        Stage(id=_uuid(chance), name="Outcomes", kind=StageKind.ANNOTATION),
        Stage(id=_uuid(chance), name="Risk of bias", kind=StageKind.ANNOTATION),
    )
    return Project(
        id=_uuid(chance),
        name=f"Generated, {shape.studies:,} studies",
        stages=stages,
        memberships=tuple(
            Membership(investigator_id=_uuid(chance), joined_at_utc=_STARTED, name=f"Reviewer {number + 1}")
            for number in range(shape.members)
        ),
        questions=tuple(
            _question(chance, stage.id, number) for stage in stages[1:] for number in range(shape.questions)
        ),
        searches=tuple(
            Search(id=_uuid(chance), name=f"Search {number + 1}", imported_at_utc=_STARTED)
            for number in range(shape.searches)
        ),
    )


def generated_studies(project: Project, shape: Shape, *, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Its studies as they are stored, one at a time. Reviewers are busy to different degrees, as they are."""
    chance = random.Random(seed + 1)  # noqa: S311 - invents documents, keeps no secret
    reviewers = [member.investigator_id for member in project.memberships]
    weights = [1 / (rank + 2) for rank in range(len(reviewers))]
    prose = chance.choices(_WORDS, k=2_000 + shape.abstract_words)
    for number in range(shape.studies):
        at = _STARTED + timedelta(minutes=number)
        own = _several(chance, reviewers, weights)
        start = chance.randrange(2_000)
        yield {
            **_progress(chance, project, own, at),
            "SearchId": project.searches[number % len(project.searches)].id if project.searches else None,
            "Title": " ".join(prose[start : start + 12]),
            "Abstract": " ".join(prose[start : start + shape.abstract_words]),
        }


def insert_studies(mongo: Mongo, project: Project, shape: Shape, *, seed: int = 1) -> None:
    """Past every writer, a bounded number at a time: only while nothing is counted yet."""
    studies = generated_studies(project, shape, seed=seed)
    while batch := list(islice(studies, BATCH_DOCS)):
        mongo.collection(STUDIES).insert_many(batch)


def insert_project(mongo: Mongo, project: Project) -> None:
    mongo.collection(PROJECTS).insert_one(project.to_bson())


def _progress(chance: random.Random, project: Project, reviewers: list[UUID], at: datetime) -> dict[str, Any]:
    """A study as far as it has come; bibliography apart."""
    stages = [stage.id for stage in project.stages]
    decisions = _decisions(chance)
    n, i = len(decisions), sum(decisions)
    class_ = inclusion_class(screening_class(n, i, project.agreement_threshold))
    sessions: tuple[Session, ...] = ()
    reservations: tuple[SlotReservation, ...] = ()
    if class_ is InclusionClass.INCLUDED:
        sessions = tuple(
            session
            for stage in stages[1:]
            if chance.random() < ANNOTATED
            for session in _sessions(chance, project, stage, reviewers, at)
        )
    elif not decisions and chance.random() < RESERVED:
        reservations = (SlotReservation(stage_id=stages[0], investigator_id=reviewers[0], at_utc=at),)
    study = Study(id=_uuid(chance), project_id=project.id, sessions=sessions, slot_reservations=reservations)
    claimed = study.model_copy(update={"tallies": (Tally(stage_id=stages[0]),) if decisions else ()})
    return study.to_bson() | {
        "Screenings": [
            {"InvestigatorId": reviewer, "Included": included, "AtUtc": at}
            for reviewer, included in zip(reviewers, decisions, strict=False)
        ],
        "InclusionInfo": {"Class": class_.value, "Screened": n, "Included": i},
        "Tallies": [tally.to_bson() for tally in tallies_after(claimed, sessions, reservations)],
    }


def _decisions(chance: random.Random) -> list[bool]:
    if chance.random() >= SCREENED:
        return []
    first = chance.random() < INCLUDES
    decisions = [first]
    if chance.random() < LOOKED_AT_TWICE:
        decisions.append(first if chance.random() < AGREES else not first)
    if len(set(decisions)) > 1 and chance.random() < SETTLED:
        decisions.append(chance.random() < 0.5)
    return decisions


def _sessions(
    chance: random.Random, project: Project, stage: UUID, reviewers: list[UUID], at: datetime
) -> Iterator[Session]:
    annotators = chance.sample(reviewers, k=min(len(reviewers), chance.choice((1, 2, 2, 2))))
    done = [chance.random() < COMPLETED for _ in annotators]
    for annotator, completed in zip(annotators, done, strict=True):
        yield _session(chance, project, stage, annotator, at, completed=completed, reconciliation=False)
    if len(done) > 1 and all(done) and chance.random() < RECONCILED:
        completed = chance.random() < COMPLETED
        yield _session(chance, project, stage, reviewers[-1], at, completed=completed, reconciliation=True)


def _session(
    chance: random.Random,
    project: Project,
    stage: UUID,
    investigator: UUID,
    at: datetime,
    *,
    completed: bool,
    reconciliation: bool,
) -> Session:
    return Session(
        id=_uuid(chance),
        stage_id=stage,
        investigator_id=investigator,
        status=SessionStatus.COMPLETED if completed else SessionStatus.STARTED,
        reconciliation=reconciliation,
        answers=tuple(_answer(chance, question) for question in project.questions if question.stage_id == stage),
        at_utc=at,
    )


def _answer(chance: random.Random, question: Question) -> Answer:
    value: bool | int | str
    match question.answer:
        case AnswerKind.BOOLEAN:
            value = chance.random() < 0.4
        case AnswerKind.INTEGER:
            value = chance.randrange(40)
        case AnswerKind.CHOICE:
            value = chance.choice(question.options)
        case AnswerKind.TEXT:
            value = " ".join(chance.choices(_WORDS, k=8))
    return Answer(question_id=question.id, value=value, key=answer_key(question, value))


def _question(chance: random.Random, stage: UUID, number: int) -> Question:
    kind = list(AnswerKind)[number % len(AnswerKind)]
    options = ("Low", "High", "Unclear") if kind is AnswerKind.CHOICE else ()
    return Question(id=_uuid(chance), stage_id=stage, text=f"Question {number + 1}", answer=kind, options=options)


def _several(chance: random.Random, reviewers: list[UUID], weights: list[float]) -> list[UUID]:
    """Four different reviewers (or all), the busy ones more often."""
    chosen: dict[UUID, None] = {}
    while len(chosen) < min(4, len(reviewers)):
        chosen.update(dict.fromkeys(chance.choices(reviewers, weights, k=4)))
    return list(chosen)[:4]


def _uuid(chance: random.Random) -> UUID:
    return UUID(int=chance.getrandbits(128), version=4)
