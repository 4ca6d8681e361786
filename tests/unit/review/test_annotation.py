"""Tallies, allocation and answer keys: what sessions and reservations mean."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.review.annotation import allocation, answer_key, tallies_after, tally_of
from statlib.review.documents import AnswerKind, Question, Session, SessionStatus, SlotReservation, Study, Tally
from statlib.statistics.documents import TrackingMode
from tests import annotated
from tests.annotated import AT, MEMBERS, STAGES
from tests.oracles import families_annotation as oracle

HERE, THERE = STAGES
PROJECT, STUDY = UUID(int=99), UUID(int=10)

people = st.sampled_from(annotated.PEOPLE)
stages = st.sampled_from(STAGES)
sessions = st.lists(
    st.builds(
        Session,
        id=st.uuids(),
        stage_id=stages,
        investigator_id=people,
        status=st.sampled_from(SessionStatus),
        reconciliation=st.booleans(),
        at_utc=st.just(AT),
    ),
    max_size=8,
).map(tuple)
reservations = st.lists(
    st.builds(SlotReservation, stage_id=stages, investigator_id=people, at_utc=st.just(AT)), max_size=5
).map(tuple)


def study(**fields: Any) -> Study:
    return Study(id=STUDY, project_id=PROJECT, **fields)


def with_work(of: Study, sessions: tuple[Session, ...], reservations: tuple[SlotReservation, ...]) -> Study:
    tallies = tallies_after(of, sessions, reservations)
    return of.model_copy(update={"sessions": sessions, "slot_reservations": reservations, "tallies": tallies})


def session(number: int, *, completed: bool = False, reconciliation: bool = False, stage: UUID = HERE) -> Session:
    return Session(
        id=UUID(int=number),
        stage_id=stage,
        investigator_id=MEMBERS[0],
        status=SessionStatus.COMPLETED if completed else SessionStatus.STARTED,
        reconciliation=reconciliation,
        at_utc=AT,
    )


def reservation(stage: UUID = HERE) -> SlotReservation:
    return SlotReservation(stage_id=stage, investigator_id=MEMBERS[0], at_utc=AT)


@given(sessions, reservations)
def test_a_tally_is_the_naive_count_of_its_stage(
    sessions: tuple[Session, ...], reservations: tuple[SlotReservation, ...]
) -> None:
    stored = study(sessions=sessions, slot_reservations=reservations).to_bson()
    for stage in STAGES:
        assert tally_of(stage, sessions, reservations).to_bson() == oracle.tally_of(stage, stored)


@pytest.mark.parametrize(
    ("sessions", "reservations", "expected"),
    [
        ((), (), {}),
        ((session(1, stage=THERE),), (reservation(THERE),), {}),
        ((), (reservation(), reservation()), {"reservations": 2, "total_allocated": 2, "total_engaged": 2}),
        ((session(1),), (), {"ncs": 1, "total_allocated": 1, "total_engaged": 1}),
        (
            (session(1), session(2, completed=True)), (reservation(),),
            {"ncs": 2, "nccs": 1, "reservations": 1, "total_allocated": 3, "total_engaged": 3},
        ),
        ((session(1, reconciliation=True),), (), {"rs": True, "total_engaged": 1}),
        (
            (session(1, reconciliation=True), session(2, reconciliation=True, completed=True)), (),
            {"rs": True, "rc": True, "total_engaged": 1},
        ),
        (
            (session(1, completed=True), session(2, reconciliation=True, completed=True)), (reservation(),),
            {
                "ncs": 1, "nccs": 1, "rs": True, "rc": True,
                "reservations": 1, "total_allocated": 2, "total_engaged": 3,
            },
        ),
    ],
    ids=[
        "nothing", "another stage's", "reservations", "a started session", "one of two completed",
        "a reconciliation", "two reconciliations engage one more place", "everything",
    ],
)  # fmt: skip
def test_a_tally_counts_places_taken_and_keeps_reconciliations_apart(
    sessions: tuple[Session, ...], reservations: tuple[SlotReservation, ...], expected: dict[str, Any]
) -> None:
    assert tally_of(HERE, sessions, reservations) == Tally(stage_id=HERE, **expected)


@given(st.lists(st.tuples(sessions, reservations), max_size=6))
def test_tallies_follow_every_write_and_stay_at_zero(
    writes: list[tuple[tuple[Session, ...], tuple[SlotReservation, ...]]],
) -> None:
    of, touched = study(), set[UUID]()
    for sessions, reservations in writes:
        of = with_work(of, sessions, reservations)
        touched |= {s.stage_id for s in sessions} | {r.stage_id for r in reservations}
        assert {tally.stage_id for tally in of.tallies} == touched
        assert len(of.tallies) == len(touched)
        for tally in of.tallies:
            assert tally.to_bson() == oracle.tally_of(tally.stage_id, of.to_bson())


@given(sessions, reservations)
def test_recounting_what_was_counted_changes_nothing(
    sessions: tuple[Session, ...], reservations: tuple[SlotReservation, ...]
) -> None:
    of = with_work(study(), sessions, reservations)
    assert tallies_after(of, of.sessions, of.slot_reservations) == of.tallies


def test_a_new_tally_comes_after_those_that_are() -> None:
    of = study(tallies=(Tally(stage_id=THERE),))
    assert [tally.stage_id for tally in tallies_after(of, (session(1),), ())] == [THERE, HERE]


def test_a_tally_keeps_what_only_another_release_knows() -> None:
    stored = {"StageId": HERE, "NCS": 7, "Colour": "green"}
    of = Study.from_bson({"_id": STUDY, "ProjectId": PROJECT, "Tallies": [stored]})
    (tally,) = tallies_after(of, (session(1),), (reservation(),))
    assert tally.to_bson() == tally_of(HERE, (session(1),), (reservation(),)).to_bson() | {"Colour": "green"}


@pytest.mark.parametrize(
    ("tally", "tracked", "untracked"),
    [
        (None, 0, 0),
        (Tally(stage_id=HERE), 0, 0),
        (tally_of(HERE, (session(1),), (reservation(), reservation())), 3, 1),
        (tally_of(HERE, (session(1), session(2, reconciliation=True)), ()), 1, 1),
    ],
    ids=["no tally", "at zero", "reservations", "a reconciliation takes no place"],
)
def test_reservations_take_places_where_reviewers_are_tracked(
    tally: Tally | None, tracked: int, untracked: int
) -> None:
    assert allocation(tally, TrackingMode.TRACKED) == tracked
    assert allocation(tally, TrackingMode.UNTRACKED) == untracked


def question(answer: AnswerKind, *options: str) -> Question:
    return Question(id=UUID(int=40), stage_id=HERE, text="Which?", answer=answer, options=options)


BOOLEAN, INTEGER, TEXT = map(question, (AnswerKind.BOOLEAN, AnswerKind.INTEGER, AnswerKind.TEXT))
CAFE = "caf\u00e9", "cafe\u0301"  # one word, composed and decomposed
CHOICE = question(AnswerKind.CHOICE, CAFE[1], "n/a", "3.5 mg?", "")


@pytest.mark.parametrize(
    ("asked", "value", "key"),
    [
        (BOOLEAN, True, "true"),
        (BOOLEAN, False, "false"),
        (INTEGER, 0, "0"),
        (INTEGER, -12, "-12"),
        (INTEGER, 2**63, "9223372036854775808"),
        (TEXT, "true", None),
        (TEXT, "", None),
        (CHOICE, CAFE[0], CAFE[0]),
        (CHOICE, CAFE[1], CAFE[0]),
        (CHOICE, "n/a", "n/a"),
        (CHOICE, "3.5 mg?", "3.5 mg?"),
        (CHOICE, "", ""),
    ],
)
def test_an_answer_has_one_canonical_key_and_free_text_none(asked: Question, value: Any, key: str | None) -> None:
    assert answer_key(asked, value) == key


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        (BOOLEAN, "true"),
        (BOOLEAN, 1),
        (BOOLEAN, None),
        (INTEGER, True),
        (INTEGER, 3.0),
        (INTEGER, "3"),
        (TEXT, 3),
        (TEXT, None),
        (CHOICE, "N/A"),
        (CHOICE, "n/a "),
        (CHOICE, True),
        (CHOICE, ["n/a"]),
        (question(AnswerKind.CHOICE), "n/a"),
    ],
)
def test_a_value_that_the_question_does_not_ask_for_is_named(asked: Question, value: Any) -> None:
    with pytest.raises(ValueError, match=r"'Which\?' asks for") as refused:
        answer_key(asked, value)
    assert str(refused.value).endswith(f"{asked.answer.value}, not {value!r}")
