"""Answers as they are submitted, checked against a stage's questions and made canonical. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.review.annotation import answer_key
from statlib.review.documents import Answer, Question
from statlib.review.reasons import ReviewReason

Answers = Mapping[UUID, bool | int | str]
"""Values by question: one answer each."""

_INTEGERS = range(-(2**63), 2**63)  # what a stored integer holds


def submitted(answers: Answers) -> list[list[str]]:
    """The answers as JSON for a digest: sorted by question, and no value mistaken for another of its spelling.

    Refuses AnswerInvalid for what no question can ask for, before anything is read.
    """
    return sorted([str(question), type(value).__name__, _text(question, value)] for question, value in answers.items())


def _text(question: UUID, value: Any) -> str:
    if (isinstance(value, str) and _encodes(value)) or (isinstance(value, int) and value in _INTEGERS):
        return str(value)
    raise Refusal(ReviewReason.AnswerInvalid, f"question {question}: {value!r} can be no answer")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def answered(questions: Iterable[Question], given: Answers, standing: Iterable[Answer]) -> tuple[Answer, ...]:
    """What a session answers once ``given`` replaces ``standing``, in the order of the stage's ``questions``.

    Fields that only another release knows stay with the question. Refuses AnswerInvalid, naming question and value.
    """
    asked = {question.id: question for question in questions}
    for question, value in given.items():
        if question not in asked:
            raise Refusal(ReviewReason.AnswerInvalid, f"question {question} is not asked on this stage ({value!r})")
    before = {answer.question_id: answer for answer in standing}
    return tuple(
        _answer(question, given[question.id], before.get(question.id))
        for question in asked.values()
        if question.id in given
    )


def _answer(question: Question, value: Any, standing: Answer | None) -> Answer:
    try:
        key = answer_key(question, value)
    except ValueError as error:
        raise Refusal(ReviewReason.AnswerInvalid, f"question {question.id}: {error}") from error
    answer = Answer(question_id=question.id, value=value, key=key)
    return answer if standing is None else standing.model_copy(update=dict(answer))
