"""What each writer's change makes of a study, told from documents alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.kernel.refusals import Refusal
from statlib.review.annotation_writer import SessionAct, SessionChange, new_session_id
from statlib.review.answers import ANSWER_BYTES_MAX, submitted
from statlib.review.documents import Project, Screening, Stage, StageKind, Study
from statlib.review.namespaces import ANNOTATION_FAMILIES, ANNOTATION_NAMESPACE, SCREENING_NAMESPACE
from statlib.review.reasons import ReviewReason
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningChange
from statlib.statistics.effects import Operation, Operations
from statlib.statistics.envelopes import Envelope, Opening
from statlib.statistics.outcomes import FurtherOperation

AT = datetime(2024, 5, 1, tzinfo=UTC)
ANNA, BEN = UUID(int=0xA), UUID(int=0xB)
EXTRACTION = Stage(id=uuid4(), name="data extraction", kind=StageKind.ANNOTATION)
PROJECT = Project(id=uuid4(), name="test", stages=(EXTRACTION,))
STUDY = Study(id=uuid4(), project_id=PROJECT.id)


def envelope(**changed: Any) -> Envelope:
    plain = Envelope(
        namespace=SCREENING_NAMESPACE,
        stream=f"screening:{STUDY.id}:{ANNA}",
        project=PROJECT.id,
        aggregate=STUDY.id,
        actor=ANNA,
        stage=None,
        expected=4,
        opening=Opening(0, 0),
        created_at=AT,
    )
    return replace(plain, **changed)


@pytest.mark.parametrize(
    ("stages", "others", "crosses"),
    [((EXTRACTION,), 1, True), ((EXTRACTION,), 0, False), ((EXTRACTION,), 2, False), ((), 1, False)],
    ids=["crosses", "not yet", "no more", "no stages"],
)
def test_a_decision_that_changes_the_inclusion_class_is_an_operation_on_annotation_too(
    stages: tuple[Stage, ...], others: int, crosses: bool
) -> None:
    screened = tuple(Screening(investigator_id=UUID(int=n), included=True, at_utc=AT) for n in range(others))
    study = STUDY.model_copy(update={"screenings": screened})
    project = PROJECT.model_copy(update={"stages": stages})
    write = ScreeningChange(Decision.INCLUDE).apply(study.to_bson(), project.to_bson(), envelope())
    inclusion = FurtherOperation(ANNOTATION_NAMESPACE, f"inclusion:{STUDY.id}:-:{ANNA}:4", ANNOTATION_FAMILIES)
    assert write.further == ((inclusion,) if crosses else ())
    assert set(write.fields) == {"Screenings", "InclusionInfo"}


def test_a_family_belongs_to_the_operation_that_takes_it() -> None:
    further = FurtherOperation("annotation", "inclusion:x", frozenset({"StageAnnotation"}))
    operations = Operations(Operation("screening", "screening:x"), (further,))
    assert [one.namespace for one in operations.all] == ["screening", "annotation"]
    assert operations.of("StageAnnotation").operation_id == "inclusion:x"
    assert operations.of("ProjectScreening").operation_id == "screening:x"


def test_the_session_that_an_envelope_may_start_is_told_by_everything_that_makes_it_another() -> None:
    of: tuple[Any, ...] = (STUDY.id, EXTRACTION.id, ANNA, 4, False)
    others = [
        (uuid4(), *of[1:]),
        (of[0], uuid4(), *of[2:]),
        (*of[:2], BEN, *of[3:]),
        (*of[:3], 5, False),
        (*of[:4], True),
    ]
    assert new_session_id(*of) == new_session_id(*of)
    assert len({new_session_id(*parts) for parts in [of, *others]}) == 6


def test_an_envelope_starts_only_the_session_that_it_was_minted_for() -> None:
    at = envelope(stage=EXTRACTION.id)
    wanted = new_session_id(STUDY.id, EXTRACTION.id, ANNA, at.expected, reconciliation=True)
    write = SessionChange(SessionAct.SAVE, wanted).apply(STUDY.to_bson(), PROJECT.to_bson(), at)
    [session] = write.fields["Sessions"]
    assert (session["Id"], session["Reconciliation"]) == (wanted, True)
    with pytest.raises(Refusal) as refused:
        SessionChange(SessionAct.SAVE, uuid4()).apply(STUDY.to_bson(), PROJECT.to_bson(), at)
    assert refused.value.reason is ReviewReason.SessionUnknown


VALUES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(alphabet=st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(st.uuids(), VALUES, max_size=5))
def test_the_digest_of_answers_knows_every_value_and_no_order(answers: dict[UUID, bool | int | str]) -> None:
    change = SessionChange(SessionAct.SAVE, ANNA, answers)
    again = SessionChange(SessionAct.SAVE, ANNA, dict(reversed(answers.items())))
    assert envelope().digest(change.intent) == envelope().digest(again.intent)
    for question, value in answers.items():
        for other in (str(value) + "!", not value, 7):
            if (type(other), other) != (type(value), value):
                changed = SessionChange(SessionAct.SAVE, ANNA, {**answers, question: other})
                assert envelope().digest(change.intent) != envelope().digest(changed.intent)


@pytest.mark.parametrize("value", [None, 1.0, 2**63, "\ud800", [], b"x"], ids=repr)
def test_what_can_be_no_answer_is_refused_before_anything_is_asked(value: Any) -> None:
    with pytest.raises(Refusal) as refused:
        submitted({ANNA: value})
    assert refused.value.reason is ReviewReason.AnswerInvalid


@pytest.mark.parametrize("letter", ["x", "é", "王"])
def test_a_text_is_as_long_as_its_bytes_and_may_reach_the_bound(letter: str) -> None:
    most = ANSWER_BYTES_MAX // len(letter.encode())
    submitted({ANNA: letter * most})
    with pytest.raises(Refusal, match="at most 100,000") as refused:
        submitted({ANNA: letter * (most + 1)})
    assert refused.value.reason is ReviewReason.AnswersTooLong
    assert str(ANNA) in refused.value.detail
