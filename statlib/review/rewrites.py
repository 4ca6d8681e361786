"""What the review's source-visibility operations make of a study, as expressions that the server evaluates.

Both say the same applied twice as once, and both leave alone what a save under the new project writes: each of its
fields already is what the expression yields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from statlib.review.documents import InclusionClass, Project
from statlib.statistics.catalogue import Document, Rewrite
from statlib.statistics.documents import FenceKind


class InclusionRecalculation:
    """``InclusionInfo`` as ``Screenings`` and the project's threshold say (``screening.py`` in Python)."""

    def fields(self, context: Document, intent: Mapping[str, Any]) -> Mapping[str, Any]:
        threshold = Project.from_bson(context).agreement_threshold
        screenings: Any = {"$ifNull": ["$Screenings", []]}
        n: Any = {"$size": screenings}
        i: Any = {"$size": {"$filter": {"input": screenings, "as": "s", "cond": "$$s.Included"}}}
        ratio = {"$literal": threshold.agreement_ratio}
        class_ = {
            "$switch": {
                "branches": [
                    {"case": {"$lt": ["$$n", threshold.min_screenings]}, "then": InclusionClass.UNDECIDED.value},
                    {
                        "case": {"$gte": [{"$divide": ["$$i", "$$n"]}, ratio]},
                        "then": InclusionClass.INCLUDED.value,
                    },
                    {
                        "case": {"$gte": [{"$divide": [{"$subtract": ["$$n", "$$i"]}, "$$n"]}, ratio]},
                        "then": InclusionClass.EXCLUDED.value,
                    },
                ],
                "default": InclusionClass.UNDECIDED.value,
            }
        }
        counted = {"Class": class_, "Screened": "$$n", "Included": "$$i"}
        info = {"$mergeObjects": [{"$ifNull": ["$InclusionInfo", {}]}, counted]}
        return {"InclusionInfo": {"$let": {"vars": {"n": n, "i": i}, "in": info}}}


class DefinitionRewrite:
    """Answers to one question with its options' new names, in sessions of any status.

    The intent: ``question``, and ``renamed`` pairs of an ``old`` name and a ``new`` one, which is none of the old ones.
    """

    def fields(self, context: Document, intent: Mapping[str, Any]) -> Mapping[str, Any]:
        renamed = {one["old"]: one["new"] for one in intent["renamed"]}
        if not renamed:
            return {"Sessions": "$Sessions"}
        is_question = {"$eq": ["$$answer.QuestionId", {"$literal": UUID(intent["question"])}]}
        is_renamed = {"$in": ["$$answer.Key", {"$literal": list(renamed)}]}
        branches = [
            {"case": {"$eq": ["$$answer.Key", {"$literal": old}]}, "then": {"$literal": new}}
            for old, new in renamed.items()
        ]
        named = {"$switch": {"branches": branches, "default": "$$answer.Key"}}
        answer = {
            "$cond": [
                {"$and": [is_question, is_renamed]},
                {"$mergeObjects": ["$$answer", {"Key": named, "Value": named}]},
                "$$answer",
            ]
        }
        answers = {"$map": {"input": "$$session.Answers", "as": "answer", "in": answer}}
        session = {
            "$mergeObjects": [
                "$$session",
                {"$cond": [{"$isArray": ["$$session.Answers"]}, {"Answers": answers}, {}]},
            ]
        }
        sessions = {"$map": {"input": "$Sessions", "as": "session", "in": session}}
        return {"Sessions": {"$cond": [{"$isArray": ["$Sessions"]}, sessions, "$Sessions"]}}


REWRITES: Mapping[FenceKind, Rewrite] = {
    FenceKind.INCLUSION_RECALCULATION: InclusionRecalculation(),
    FenceKind.DEFINITION_REWRITE: DefinitionRewrite(),
}
