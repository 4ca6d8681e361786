"""Stages' tallies and the people at work on stages: how the server groups studies by them, and what a change moves.

What the stage families share. A stage that the project no longer has counts nowhere: its target is gone, and its rows
were outdated when it was removed. Studies keep what they hold of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from statlib.review.documents import InclusionClass, SessionStatus
from statlib.review.evidence import ReviewContext, StudyEvidence, TallyEvidence
from statlib.review.screening import inclusion_class, screening_class
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters, minus

Expression = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TalliedStudies:
    """``studies`` of one inclusion class with one tally on ``stage``; where ``stage`` is None, all of that class."""

    inclusion: InclusionClass
    stage: UUID | None
    tally: TallyEvidence
    studies: int


def tallies_by_profile(project: UUID) -> Pipeline:
    """One group per screening profile and distinct tally, and one per screening profile for the studies themselves."""
    tally = {name: f"$$t.{name}" for name in ("StageId", "NCS", "NCCS", "RS", "RC", "Reservations")}
    tallies = {"$map": {"input": stored_array("Tallies"), "as": "t", "in": tally}}
    return [{"$match": {"ProjectId": project}}, *group_by_marks({"$concatArrays": [[None], tallies]})]


def read_tallies(groups: Iterable[Document], context: ReviewContext) -> Iterator[TalliedStudies]:
    """The groups that count: those of all studies, and of the tallies on current stages."""
    for group in groups:
        of = group["_id"]["mark"] or {}
        stage = of.get("StageId")
        if stage is None or stage in context.targets:
            yield TalliedStudies(
                inclusion=inclusion_of(group, context),
                stage=stage,
                tally=TallyEvidence(
                    ncs=of.get("NCS", 0),
                    nccs=of.get("NCCS", 0),
                    rs=of.get("RS", False),
                    rc=of.get("RC", False),
                    reservations=of.get("Reservations", 0),
                ),
                studies=group["Studies"],
            )


def current_tallies(study: StudyEvidence, context: ReviewContext) -> Iterator[tuple[UUID, TallyEvidence]]:
    return ((stage, tally) for stage, tally in study.tallies if stage in context.targets)


def group_by_marks(marks: Expression) -> Pipeline:
    """Studies per screening profile and element of ``marks``; a mark that a study has twice counts twice.

    The class is not asked of the server: whoever reads the groups decides it from ``n`` and ``i``.
    """
    screenings = stored_array("Screenings")
    included = {"$filter": {"input": screenings, "as": "s", "cond": "$$s.Included"}}
    profile = {"n": {"$size": screenings}, "i": {"$size": included}}
    return [
        {"$project": {"_id": 0, **profile, "mark": marks}},
        {"$unwind": "$mark"},
        {"$group": {"_id": {"n": "$n", "i": "$i", "mark": "$mark"}, "Studies": {"$sum": 1}}},
    ]


def inclusion_of(group: Document, context: ReviewContext) -> InclusionClass:
    return inclusion_class(screening_class(group["_id"]["n"], group["_id"]["i"], context.threshold))


def people_marks(sessions: Expression, **more: Expression) -> Expression:
    """One mark per stage, person and kind of session, however many such sessions a study holds.

    ``completed`` is whether any of them is. ``more`` are further fields, of a session ``$$s``.
    """
    of = {"stage": "$$s.StageId", "who": "$$s.InvestigatorId", "reconciliation": is_true("$$s.Reconciliation")}
    completed = {"$eq": ["$$s.Status", SessionStatus.COMPLETED.value]}
    finished = {"$map": {"input": {"$filter": {"input": sessions, "as": "s", "cond": completed}}, "as": "s", "in": of}}
    mark = {**of, "completed": {"$or": [completed, {"$in": [of, "$$finished"]}]}, **more}
    return {
        "$let": {
            "vars": {"finished": finished},
            "in": {"$setUnion": [{"$map": {"input": sessions, "as": "s", "in": mark}}]},
        }
    }


def stored_array(name: str) -> Expression:
    """The array of that name, empty where a study was stored without."""
    return {"$ifNull": [f"${name}", []]}


def is_true(field: str) -> Expression:
    """False where the field is absent."""
    return {"$eq": [field, True]}


def add(counted: dict[str, dict[str, int]], scope: str, counters: Counters, studies: int = 1) -> None:
    """Add what as many studies count in a scope, of which each adds ``counters``."""
    into = counted.setdefault(scope, {})
    for key, value in counters.items():
        into[key] = into.get(key, 0) + value * studies


def moved(before: Mapping[str, Counters], after: Mapping[str, Counters]) -> Effect:
    """The moves from what a study added to each scope to what it adds now."""
    moves = {scope: minus(after.get(scope, {}), before.get(scope, {})) for scope in {*before, *after}}
    return Effect(moves={scope: change for scope, change in moves.items() if change})
