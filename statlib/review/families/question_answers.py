"""QuestionAnswers: what was answered to each question.

Counters over the answers of completed sessions, reconciliations included: ``{question}/Answered`` all of them,
``{question}/Value/{key}`` those of one value, ``{question}/Text`` those in free text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from statlib.review.documents import SessionStatus
from statlib.review.evidence import ReviewContext, StudyEvidence
from statlib.review.families.stage_profiles import add, stored_array
from statlib.review.scopes import PROJECT_SCOPE
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters

NAME = "QuestionAnswers"


class QuestionAnswers:
    """One scope, never moved: staled whenever the answers of completed sessions change."""

    name = NAME

    def declared_scopes(self, context: ReviewContext) -> tuple[str, ...]:
        return (PROJECT_SCOPE,)

    def parameters(self, context: ReviewContext, scope: str) -> Any:
        """None: answers carry the key that they are counted by."""
        return ()

    def aggregation(self, project: UUID, context: ReviewContext) -> Pipeline:
        """One group per question and distinct answer."""
        completed = SessionStatus.COMPLETED.value
        sessions = {
            "$filter": {"input": stored_array("Sessions"), "as": "s", "cond": {"$eq": ["$$s.Status", completed]}}
        }
        return [
            {"$match": {"ProjectId": project, "Sessions.Status": completed}},
            {"$project": {"_id": 0, "Session": sessions}},
            {"$unwind": "$Session"},
            {"$unwind": "$Session.Answers"},
            {
                "$group": {
                    "_id": {"question": "$Session.Answers.QuestionId", "key": "$Session.Answers.Key"},
                    "Answers": {"$sum": 1},
                }
            },
        ]

    def collect(self, groups: Iterable[Document], context: ReviewContext) -> Mapping[str, Counters]:
        counted: dict[str, dict[str, int]] = {}
        for group in groups:
            question, key = group["_id"]["question"], group["_id"].get("key")
            value = f"{question}/Text" if key is None else f"{question}/Value/{key}"
            add(counted, PROJECT_SCOPE, {f"{question}/Answered": 1, value: 1}, group["Answers"])
        return counted

    def derive(self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext) -> Effect:
        if _answers(before) == _answers(after):
            return Effect()
        return Effect(stale_scopes=frozenset({PROJECT_SCOPE}))


def _answers(study: StudyEvidence) -> frozenset[tuple[UUID, tuple[tuple[UUID, str | None], ...]]]:
    """Those of each completed session, by its id; a session without answers says nothing."""
    return frozenset((id_, session.answers) for id_, session in study.sessions if session.answers)
