"""A review in which everything that is counted occurs, and what must hold of it after whatever was done to it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from uuid import uuid4

from statlib.kernel.settings import Settings
from statlib.review.annotation import tallies_after
from statlib.review.catalogue import REVIEW
from statlib.review.documents import (
    STUDIES,
    Answer,
    AnswerKind,
    Question,
    Screening,
    Session,
    SessionStatus,
    SlotReservation,
    Study,
)
from statlib.review.edits import Renaming, SetThreshold, set_threshold
from statlib.statistics.backfill import backfill_together
from statlib.statistics.parity import compare
from statlib.statistics.reader import Bundle
from tests.reviews import ALL_FAMILIES, ORACLES, Review, review, stage

AT = datetime(2024, 3, 1, tzinfo=UTC)
COLOUR = Question(id=uuid4(), stage_id=uuid4(), text="Colour?", answer=AnswerKind.CHOICE, options=("red", "blue"))


def populated(base: Settings) -> AbstractContextManager[Review]:
    """Two stages, three members, two searches; one question, of the first stage."""
    stages = (stage("first"), stage("second"))
    question = COLOUR.model_copy(update={"stage_id": stages[0].id})
    return review(base, studies=8, families=ALL_FAMILIES, members=3, stages=stages, questions=[question], searches=2)


def populate(of: Review) -> None:
    """Decisions of members and of a stranger in every class, sessions of every kind, a reservation."""
    stranger = uuid4()
    people = (*of.members, stranger)
    for number, study in enumerate(of.studies):
        screenings = tuple(
            Screening(investigator_id=person, included=(number + place) % 3 > 0, at_utc=AT)
            for place, person in enumerate(people[: number % 5])
        )
        sessions = tuple(
            Session(
                id=uuid4(),
                stage_id=of.stages[place % 2],
                investigator_id=person,
                status=SessionStatus.COMPLETED if (number + place) % 2 else SessionStatus.STARTED,
                reconciliation=place == 2,
                answers=(Answer(question_id=COLOUR.id, value=colour, key=colour),) if place % 2 == 0 else (),
                at_utc=AT,
            )
            for place, person in enumerate(people[: number % 4])
            for colour in (COLOUR.options[number % 2],)
        )
        held = (
            (SlotReservation(stage_id=of.stages[1], investigator_id=of.members[2], at_utc=AT),) if number == 3 else ()
        )
        stored = Study.from_bson(of.study(study))
        changed = {
            "screenings": screenings,
            "sessions": sessions,
            "slot_reservations": held,
            "tallies": tallies_after(stored, sessions, held),
        }
        of.mongo.collection(STUDIES).replace_one({"_id": study}, stored.model_copy(update=changed).to_bson())
    set_threshold(of.host, of.project, SetThreshold(min_screenings=2, agreement_ratio=0.66))


def assert_counted_right(of: Review) -> Bundle:
    """What a reader is given is what a naive count of the source says."""
    bundle, studies, project = of.read_all(), of.stored_studies(), of.stored_project()
    for family in ALL_FAMILIES:
        assert bundle.values[family] == ORACLES[family](studies, project), family
    return bundle


def assert_right(of: Review, *, served: bool | None = None) -> None:
    """The same, and parity finds nothing; where ``served`` is given, the answer did or did not come from storage."""
    bundle = assert_counted_right(of)
    for compared in compare(of.host, REVIEW, of.project, ALL_FAMILIES):
        assert not compared.differences, compared
    if served is not None:
        assert (bundle.reason is None) == served, bundle.reason


def backfilled(of: Review) -> None:
    backfill_together(of.host, REVIEW, of.project, ALL_FAMILIES)
    assert_right(of, served=True)


def renaming(**renamed: str) -> tuple[Renaming, ...]:
    return tuple(Renaming(old=old, new=new) for old, new in renamed.items())


def new_studies(count: int) -> list[Study]:
    return [Study(id=uuid4(), project_id=uuid4(), title=f"new {n}") for n in range(count)]
