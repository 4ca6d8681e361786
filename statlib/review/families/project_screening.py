"""ProjectScreening: how far screening has come, for the project as a whole.

Counters: ``Studies``; ``Profile/{n}:{i}`` studies with n screenings of which i include; ``Class/{screening class}``;
``Decisions``, ``Inclusions`` and ``Exclusions`` in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from statlib.review.evidence import ReviewContext, StudyEvidence, threshold_parameters
from statlib.review.screening import screening_class
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters, minus, plus

NAME = "ProjectScreening"
PROJECT_SCOPE = "project"


class ProjectScreening:
    """One scope, moved by every decision that changes a study's profile."""

    name = NAME

    def declared_scopes(self, context: ReviewContext) -> tuple[str, ...]:
        return (PROJECT_SCOPE,)

    def parameters(self, context: ReviewContext, scope: str) -> Any:
        return threshold_parameters(context)

    def aggregation(self, project: UUID, context: ReviewContext) -> Pipeline:
        """Grouped by profile on the server: at most a few dozen groups come back, whatever the project's size."""
        screenings = {"$ifNull": ["$Screenings", []]}
        included = {"$filter": {"input": screenings, "as": "s", "cond": "$$s.Included"}}
        return [
            {"$match": {"ProjectId": project}},
            {"$group": {"_id": {"n": {"$size": screenings}, "i": {"$size": included}}, "Studies": {"$sum": 1}}},
        ]

    def collect(self, groups: Iterable[Document], context: ReviewContext) -> Mapping[str, Counters]:
        counters: dict[str, int] = {}
        for group in groups:
            one = counters_of(group["_id"]["n"], group["_id"]["i"], context)
            counters = plus(counters, {key: value * group["Studies"] for key, value in one.items()})
        return {PROJECT_SCOPE: counters}

    def derive(self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext) -> Effect:
        moves = minus(counters_of(after.n, after.i, context), counters_of(before.n, before.i, context))
        return Effect(moves={PROJECT_SCOPE: moves}) if moves else Effect()


def counters_of(n: int, i: int, context: ReviewContext) -> dict[str, int]:
    """What one study with ``n`` screenings, ``i`` of them including, adds to the project's counters."""
    return {
        "Studies": 1,
        f"Profile/{n}:{i}": 1,
        f"Class/{screening_class(n, i, context.threshold)}": 1,
        "Decisions": n,
        "Inclusions": i,
        "Exclusions": n - i,
    }
