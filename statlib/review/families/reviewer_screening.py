"""ReviewerScreening: what became of each current member's decisions.

Counters of a member: ``Decisions``, of these ``Included`` and ``Excluded``; and by what the study has come to:
``Agreed`` or ``Overruled`` where its class is sufficient and is, or is not, the decision; ``Open`` where it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from statlib.review.documents import InclusionClass
from statlib.review.evidence import ReviewContext, StudyEvidence, threshold_parameters
from statlib.review.families.decisions import (
    changed_people,
    deciders_by_profile,
    moved_within_bound,
    read_deciders,
    times,
)
from statlib.review.scopes import member_scope
from statlib.review.screening import inclusion_class, screening_class
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters, minus, plus

NAME = "ReviewerScreening"


class ReviewerScreening:
    """One scope per current member. A study whose class changes moves everybody who decided on it."""

    name = NAME

    def declared_scopes(self, context: ReviewContext) -> tuple[str, ...]:
        return tuple(map(member_scope, context.members))

    def parameters(self, context: ReviewContext, scope: str) -> Any:
        return threshold_parameters(context)

    def aggregation(self, project: UUID, context: ReviewContext) -> Pipeline:
        return deciders_by_profile(project)

    def collect(self, groups: Iterable[Document], context: ReviewContext) -> Mapping[str, Counters]:
        counters: dict[UUID, dict[str, int]] = {member: {} for member in context.members}
        for group in read_deciders(groups):
            if group.who is not None and (own := counters.get(group.who)) is not None:
                outcome = inclusion_class(screening_class(group.n, group.i, context.threshold))
                counters[group.who] = plus(own, times(counters_of(group.included, outcome), group.studies))
        return {member_scope(member): own for member, own in counters.items()}

    def derive(self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext) -> Effect:
        changed = changed_people(before, after)
        if not changed:
            return Effect()
        was, now = context.inclusion_class(before), context.inclusion_class(after)
        old, new = dict(before.screenings), dict(after.screenings)
        concerned = changed if was is now else {*old, *new}
        return moved_within_bound(
            {
                member_scope(member): minus(counters_of(new.get(member), now), counters_of(old.get(member), was))
                for member in concerned.intersection(context.members)
            },
            context,
        )


def counters_of(decision: bool | None, outcome: InclusionClass) -> dict[str, int]:
    """What one study of this inclusion class adds for somebody who decided so; None: who has no decision on it."""
    if decision is None:
        return {}
    agreeing = InclusionClass.INCLUDED if decision else InclusionClass.EXCLUDED
    came_to = "Open" if outcome is InclusionClass.UNDECIDED else "Agreed" if outcome is agreeing else "Overruled"
    return {"Decisions": 1, "Included" if decision else "Excluded": 1, came_to: 1}
