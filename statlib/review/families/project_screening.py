"""ProjectScreening: how far screening has come, for the project as a whole.

Counters: ``Studies``; ``Profile/{n}:{i}`` studies with n screenings of which i include; ``Class/{screening class}``;
``Decisions``, ``Inclusions`` and ``Exclusions`` in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from statlib.review.documents import STUDIES
from statlib.review.evidence import ReviewContext, StudyEvidence
from statlib.review.screening import screening_class
from statlib.statistics.catalogue import Effect, SnapshotReads
from statlib.statistics.counters import Counters, minus, plus

NAME = "ProjectScreening"
PROJECT_SCOPE = "project"


class ProjectScreening:
    """One scope, moved by every decision that changes a study's profile."""

    name = NAME

    def declared_scopes(self, context: ReviewContext) -> tuple[str, ...]:
        return (PROJECT_SCOPE,)

    def calculate(self, reads: SnapshotReads, project: UUID, context: ReviewContext) -> Mapping[str, Counters]:
        """Grouped by profile on the server: at most a few dozen rows come back, whatever the project's size."""
        counters: dict[str, int] = {"Studies": 0}
        for group in reads.aggregate(STUDIES, _profiles(project)):
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


def _profiles(project: UUID) -> list[dict[str, object]]:
    screenings = {"$ifNull": ["$Screenings", []]}
    included = {"$filter": {"input": screenings, "as": "s", "cond": "$$s.Included"}}
    return [
        {"$match": {"ProjectId": project}},
        {"$group": {"_id": {"n": {"$size": screenings}, "i": {"$size": included}}, "Studies": {"$sum": 1}}},
    ]
