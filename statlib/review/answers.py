"""Answers as they are submitted, checked against a stage's questions and made canonical. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.review.annotation import answer_key
from statlib.review.documents import Answer, Question, Session
from statlib.review.reasons import ReviewReason

Answers = Mapping[UUID, bool | int | str]
"""Values by question: one answer each."""

ANSWER_BYTES_MAX = 100_000
"""Of one answer's text in UTF-8: some forty pages."""
STUDY_ANSWER_BYTES_MAX = 8_000_000
"""Of all texts that one study holds: half of what a stored document may, so that everything else fits beside them."""

_INTEGERS = range(-(2**63), 2**63)  # what a stored integer holds


def submitted(answers: Answers) -> list[list[str]]:
    """The answers as JSON for a digest: sorted by question, and no value mistaken for another of its spelling.

    Refuses AnswerInvalid for what no question can ask for and AnswersTooLong, before anything is read.
    """
    return sorted([str(question), type(value).__name__, _text(question, value)] for question, value in answers.items())


def _text(question: UUID, value: Any) -> str:
    if isinstance(value, int) and value in _INTEGERS:
        return str(value)
    if not isinstance(value, str) or (size := _bytes_of(value)) is None:
        raise Refusal(ReviewReason.AnswerInvalid, f"question {question}: {value!r} can be no answer")
    if size > ANSWER_BYTES_MAX:
        raise Refusal(
            ReviewReason.AnswersTooLong, f"question {question}: {size:,} bytes of text, at most {ANSWER_BYTES_MAX:,}"
        )
    return value


def _bytes_of(text: str) -> int | None:
    """None for what is no Unicode: half of a surrogate pair."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def require_room(study: UUID, sessions: Iterable[Session]) -> None:
    """Refuses AnswersTooLong where a study could not be stored with all that its sessions answer."""
    texts = (answer.value for session in sessions for answer in session.answers if isinstance(answer.value, str))
    if (size := sum(_bytes_of(text) or 0 for text in texts)) > STUDY_ANSWER_BYTES_MAX:
        detail = f"study {study} would hold {size:,} bytes of answers, at most {STUDY_ANSWER_BYTES_MAX:,}"
        raise Refusal(ReviewReason.AnswersTooLong, detail)


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
