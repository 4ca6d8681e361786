"""MembershipStageAnnotation: what each person has done on each stage.

Counters, by inclusion class c, of studies on which the person has, on that stage: ``{c}/Started`` a candidate session
of any status, ``{c}/Completed`` a completed one, ``{c}/ReconciliationStarted`` and ``{c}/ReconciliationCompleted``
likewise, ``{c}/Reserved`` a reservation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from statlib.review.evidence import ReviewContext, StudyEvidence, threshold_parameters
from statlib.review.families.stage_profiles import (
    Expression,
    add,
    group_by_marks,
    inclusion_of,
    moved,
    people_marks,
    stored_array,
)
from statlib.review.scopes import stage_member_scope
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters

NAME = "MembershipStageAnnotation"


class MembershipStageAnnotation:
    """A scope per stage and person, moved by their own sessions and reservations and by every change of class.

    Scopes of people who left or never joined move as well. They are not declared.
    """

    name = NAME

    def declared_scopes(self, context: ReviewContext) -> tuple[str, ...]:
        return tuple(stage_member_scope(stage, member) for stage in context.stages for member in context.members)

    def parameters(self, context: ReviewContext, scope: str) -> Any:
        return threshold_parameters(context)

    def aggregation(self, project: UUID, context: ReviewContext) -> Pipeline:
        """At most people × stages × 5 groups per screening profile."""
        somebody = [{"Sessions.0": {"$exists": True}}, {"SlotReservations.0": {"$exists": True}}]
        marks = {"$concatArrays": [people_marks(stored_array("Sessions")), _reserved()]}
        return [{"$match": {"ProjectId": project, "$or": somebody}}, *group_by_marks(marks)]

    def collect(self, groups: Iterable[Document], context: ReviewContext) -> Mapping[str, Counters]:
        counted: dict[str, dict[str, int]] = {}
        for group in groups:
            mark = group["_id"]["mark"]
            if mark["stage"] in context.targets:
                inclusion = inclusion_of(group, context)
                kinds = ("Reserved",) if "reserved" in mark else _kinds(mark["reconciliation"], mark["completed"])
                counters = {f"{inclusion}/{kind}": 1 for kind in kinds}
                add(counted, stage_member_scope(mark["stage"], mark["who"]), counters, group["Studies"])
        return counted

    def derive(self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext) -> Effect:
        return moved(_counters_of(before, context), _counters_of(after, context))


def _reserved() -> Expression:
    mark = {"stage": "$$r.StageId", "who": "$$r.InvestigatorId", "reserved": {"$literal": True}}
    return {"$setUnion": [{"$map": {"input": stored_array("SlotReservations"), "as": "r", "in": mark}}]}


def _counters_of(study: StudyEvidence, context: ReviewContext) -> dict[str, dict[str, int]]:
    """A kind counts once, however many such sessions of one person the study holds."""
    inclusion = context.inclusion_class(study)
    held = {(stage, who, "Reserved") for stage, who in study.reservations}
    for _, session in study.sessions:
        kinds = _kinds(session.reconciliation, session.completed)
        held |= {(session.stage, session.investigator, kind) for kind in kinds}
    counted: dict[str, dict[str, int]] = {}
    for stage, who, kind in held:
        if stage in context.targets:
            counted.setdefault(stage_member_scope(stage, who), {})[f"{inclusion}/{kind}"] = 1
    return counted


def _kinds(reconciliation: bool, completed: bool) -> tuple[str, ...]:
    prefix = "Reconciliation" if reconciliation else ""
    return (f"{prefix}Started", f"{prefix}Completed") if completed else (f"{prefix}Started",)
