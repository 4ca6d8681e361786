"""DomainReconciliation: the reconciliation backlog of each stage.

Counters, by inclusion class c, over studies with a tally on the stage, the first that holds: ``{c}/Reconciled`` a
reconciliation is completed; ``{c}/InProgress`` one exists; ``{c}/Awaiting`` as many candidate sessions are completed as
the stage wants; ``{c}/NotReady``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from statlib.review.documents import InclusionClass
from statlib.review.evidence import ReviewContext, StudyEvidence, TallyEvidence, threshold_parameters
from statlib.review.families.stage_profiles import add, current_tallies, moved, read_tallies, tallies_by_profile
from statlib.review.scopes import stage_of, stage_scope
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters

NAME = "DomainReconciliation"


class DomainReconciliation:
    """A scope per stage, moved by what changes a tally. A study that changes its class moves all that it has."""

    name = NAME

    def declared_scopes(self, context: ReviewContext) -> tuple[str, ...]:
        return tuple(stage_scope(stage) for stage in context.stages)

    def parameters(self, context: ReviewContext, scope: str) -> Any:
        return *threshold_parameters(context), context.targets.get(stage_of(scope))

    def aggregation(self, project: UUID, context: ReviewContext) -> Pipeline:
        return tallies_by_profile(project)

    def collect(self, groups: Iterable[Document], context: ReviewContext) -> Mapping[str, Counters]:
        counted: dict[str, dict[str, int]] = {}
        for found in read_tallies(groups, context):
            if found.stage is not None:
                counters = _of_tally(found.inclusion, found.tally, context.targets[found.stage])
                add(counted, stage_scope(found.stage), counters, found.studies)
        return counted

    def derive(self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext) -> Effect:
        return moved(_counters_of(before, context), _counters_of(after, context))


def _counters_of(study: StudyEvidence, context: ReviewContext) -> dict[str, dict[str, int]]:
    counted: dict[str, dict[str, int]] = {}
    for stage, tally in current_tallies(study, context):
        add(counted, stage_scope(stage), _of_tally(context.inclusion_class(study), tally, context.targets[stage]))
    return counted


def _of_tally(c: InclusionClass, tally: TallyEvidence, target: int) -> dict[str, int]:
    if tally.rc:
        return {f"{c}/Reconciled": 1}
    if tally.rs:
        return {f"{c}/InProgress": 1}
    return {f"{c}/Awaiting" if tally.nccs >= target else f"{c}/NotReady": 1}
