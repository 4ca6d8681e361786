"""StageAnnotation: how far the annotation of each stage has come.

Counters, by inclusion class c: ``Population/{c}`` over every study; over studies with a tally on the stage
``Tally/{c}/{NCS}:{NCCS}``, ``Sessioned/{c}/Started`` with a candidate session, ``…/Completed`` with a completed one,
``…/ReconciliationStarted`` and ``…/ReconciliationCompleted`` likewise, ``Reserved/{c}`` with a reservation, and
``Reservations/{c}`` in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from statlib.review.documents import InclusionClass
from statlib.review.evidence import ReviewContext, StudyEvidence, TallyEvidence, threshold_parameters
from statlib.review.families.stage_profiles import add, current_tallies, moved, read_tallies, tallies_by_profile
from statlib.review.scopes import stage_scope
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters, without_zeros

NAME = "StageAnnotation"


class StageAnnotation:
    """A scope per stage, moved by what changes a tally. A study that changes its class moves all of them."""

    name = NAME

    def declared_scopes(self, context: ReviewContext) -> tuple[str, ...]:
        return tuple(stage_scope(stage) for stage in context.stages)

    def parameters(self, context: ReviewContext, scope: str) -> Any:
        return threshold_parameters(context)

    def aggregation(self, project: UUID, context: ReviewContext) -> Pipeline:
        return tallies_by_profile(project)

    def collect(self, groups: Iterable[Document], context: ReviewContext) -> Mapping[str, Counters]:
        counted: dict[str, dict[str, int]] = {}
        for found in read_tallies(groups, context):
            if found.stage is None:
                for stage in context.stages:
                    add(counted, stage_scope(stage), _population(found.inclusion), found.studies)
            else:
                add(counted, stage_scope(found.stage), _of_tally(found.inclusion, found.tally), found.studies)
        return counted

    def derive(self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext) -> Effect:
        return moved(_counters_of(before, context), _counters_of(after, context))


def _counters_of(study: StudyEvidence, context: ReviewContext) -> dict[str, dict[str, int]]:
    inclusion = context.inclusion_class(study)
    counted = {stage_scope(stage): _population(inclusion) for stage in context.stages}
    for stage, tally in current_tallies(study, context):
        add(counted, stage_scope(stage), _of_tally(inclusion, tally))
    return counted


def _population(c: InclusionClass) -> dict[str, int]:
    return {f"Population/{c}": 1}


def _of_tally(c: InclusionClass, tally: TallyEvidence) -> dict[str, int]:
    return without_zeros(
        {
            f"Tally/{c}/{tally.ncs}:{tally.nccs}": 1,
            f"Sessioned/{c}/Started": int(tally.ncs > 0),
            f"Sessioned/{c}/Completed": int(tally.nccs > 0),
            f"Sessioned/{c}/ReconciliationStarted": int(tally.rs),
            f"Sessioned/{c}/ReconciliationCompleted": int(tally.rc),
            f"Reserved/{c}": int(tally.reservations > 0),
            f"Reservations/{c}": tally.reservations,
        }
    )
