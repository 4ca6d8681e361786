"""ReviewerAnnotation: what each member can still annotate on each stage.

Counters over Included studies, the first that holds: ``Completed`` and ``InProgress`` by the member's own candidate
session there, ``Unavailable`` (sufficiently allocated), ``Available``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from statlib.review.documents import InclusionClass
from statlib.review.evidence import ReviewContext, StudyEvidence, threshold_parameters
from statlib.review.families.stage_profiles import (
    Expression,
    current_tallies,
    group_by_marks,
    inclusion_of,
    is_true,
    people_marks,
    stored_array,
)
from statlib.review.scopes import stage_member_scope, stage_of
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters, without_zeros
from statlib.statistics.documents import TrackingMode

NAME = "ReviewerAnnotation"


class ReviewerAnnotation:
    """A scope per stage and member, never moved: one reservation may change what a study is to everybody else.

    The family is staled where a study changes its inclusion class or becomes, or ceases to be, sufficiently allocated
    on a stage; by any other change of sessions and reservations, the scopes of the people whose they are.
    """

    name = NAME

    def declared_scopes(self, context: ReviewContext) -> tuple[str, ...]:
        return tuple(stage_member_scope(stage, member) for stage in context.stages for member in context.members)

    def parameters(self, context: ReviewContext, scope: str) -> Any:
        """Without the tracking mode: its epoch is a gate of its own."""
        return *threshold_parameters(context), context.targets.get(stage_of(scope))

    def aggregation(self, project: UUID, context: ReviewContext) -> Pipeline:
        """Groups of all studies, of the sufficiently allocated ones per stage, and of people's own per stage.

        What is available to somebody is what remains. Studies with too few screenings are left out, since no threshold
        makes them Included.
        """
        candidates = {
            "$filter": {
                "input": stored_array("Sessions"),
                "as": "s",
                "cond": {"$not": [is_true("$$s.Reconciliation")]},
            }
        }
        own = people_marks(candidates, sufficient={"$in": ["$$s.StageId", "$$sufficient"]})
        allocated = {"$map": {"input": "$$sufficient", "as": "stage", "in": {"stage": "$$stage"}}}
        marks = {
            "$let": {
                "vars": {"sufficient": sufficiently_allocated(context)},
                "in": {"$concatArrays": [[None], allocated, own]},
            }
        }
        enough = {f"Screenings.{context.threshold.min_screenings - 1}": {"$exists": True}}
        return [{"$match": {"ProjectId": project, **enough}}, *group_by_marks(marks)]

    def collect(self, groups: Iterable[Document], context: ReviewContext) -> Mapping[str, Counters]:
        included, sufficient = 0, Counter[UUID]()
        own: dict[tuple[UUID, UUID], Counter[tuple[bool, bool]]] = {}
        for group in groups:
            if inclusion_of(group, context) is not InclusionClass.INCLUDED:
                continue
            mark, studies = group["_id"]["mark"], group["Studies"]
            if mark is None:
                included += studies
            elif "who" not in mark:
                sufficient[mark["stage"]] += studies
            else:
                of = own.setdefault((mark["stage"], mark["who"]), Counter())
                of[mark["completed"], mark["sufficient"]] += studies
        return {
            stage_member_scope(stage, member): _by_complement(
                included, sufficient[stage], own.get((stage, member), Counter())
            )
            for stage in context.stages
            for member in context.members
        }

    def derive(self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext) -> Effect:
        if context.inclusion_class(before) is not context.inclusion_class(after):
            return Effect(stale_family=True)
        if _sufficient_stages(before, context) != _sufficient_stages(after, context):
            return Effect(stale_family=True)
        changed = {(session.stage, session.investigator) for _, session in before.sessions ^ after.sessions}
        changed |= before.reservations ^ after.reservations
        return Effect(
            stale_scopes=frozenset(stage_member_scope(stage, who) for stage, who in changed if stage in context.targets)
        )


def sufficiently_allocated(context: ReviewContext) -> Expression:
    """The stages on which a study is sufficiently allocated, each once."""
    allocation: Any = {"$ifNull": ["$$t.NCS", 0]}
    if context.tracking is TrackingMode.TRACKED:
        allocation = {"$add": [allocation, {"$ifNull": ["$$t.Reservations", 0]}]}
    reached = [
        {"$and": [{"$eq": ["$$t.StageId", stage]}, {"$gte": [allocation, target]}]}
        for stage, target in context.targets.items()
    ]
    tallies = {"$filter": {"input": stored_array("Tallies"), "as": "t", "cond": {"$or": reached}}}
    return {"$setUnion": [{"$map": {"input": tallies, "as": "t", "in": "$$t.StageId"}}]}


def _sufficient_stages(study: StudyEvidence, context: ReviewContext) -> frozenset[UUID]:
    return frozenset(
        stage
        for stage, tally in current_tallies(study, context)
        if tally.allocation(context.tracking) >= context.targets[stage]
    )


def _by_complement(included: int, sufficient: int, own: Counter[tuple[bool, bool]]) -> dict[str, int]:
    """``own`` are the member's studies by (completed, sufficient)."""
    completed, in_progress = own[True, False] + own[True, True], own[False, False] + own[False, True]
    unavailable = sufficient - own[True, True] - own[False, True]
    return without_zeros(
        {
            "Completed": completed,
            "InProgress": in_progress,
            "Unavailable": unavailable,
            "Available": included - completed - in_progress - unavailable,
        }
    )
