"""MembershipScreening: what each current member has screened, and what is left for them.

Counters of a member: ``Screened``, of these ``Included`` and ``Excluded`` by their own decision; of the studies they
have not screened, ``Unavailable`` whose class is sufficient and ``Available`` the others. The five cover every study:
``Available`` + ``Unavailable`` + ``Screened`` is the project's number of studies.
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

NAME = "MembershipScreening"


class MembershipScreening:
    """One scope per current member. A study that becomes or ceases to be sufficient moves all of them."""

    name = NAME

    def declared_scopes(self, context: ReviewContext) -> tuple[str, ...]:
        return tuple(map(member_scope, context.members))

    def parameters(self, context: ReviewContext, scope: str) -> Any:
        return threshold_parameters(context)

    def aggregation(self, project: UUID, context: ReviewContext) -> Pipeline:
        return deciders_by_profile(project)

    def collect(self, groups: Iterable[Document], context: ReviewContext) -> Mapping[str, Counters]:
        """Everybody's counters are those of somebody who screened nothing, corrected by what they did screen."""
        idle: dict[str, int] = {}
        corrections: dict[UUID, dict[str, int]] = {member: {} for member in context.members}
        for group in read_deciders(groups):
            outcome = inclusion_class(screening_class(group.n, group.i, context.threshold))
            unscreened = counters_of(None, outcome)
            if group.who is None:
                idle = plus(idle, times(unscreened, group.studies))
            elif (own := corrections.get(group.who)) is not None:
                correction = minus(counters_of(group.included, outcome), unscreened)
                corrections[group.who] = plus(own, times(correction, group.studies))
        return {member_scope(member): plus(idle, own) for member, own in corrections.items()}

    def derive(self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext) -> Effect:
        changed = changed_people(before, after)
        if not changed:
            return Effect()
        was, now = context.inclusion_class(before), context.inclusion_class(after)
        crossed = (was is InclusionClass.UNDECIDED) != (now is InclusionClass.UNDECIDED)
        old, new = dict(before.screenings), dict(after.screenings)
        unscreened = minus(counters_of(None, now), counters_of(None, was))
        return moved_within_bound(
            {
                member_scope(member): minus(counters_of(new.get(member), now), counters_of(old.get(member), was))
                if member in old or member in new
                else unscreened
                for member in context.members
                if crossed or member in changed
            },
            context,
        )


def counters_of(decision: bool | None, outcome: InclusionClass) -> dict[str, int]:
    """What one study of this inclusion class adds for somebody who decided so; None: who has not screened it."""
    if decision is None:
        return {"Available" if outcome is InclusionClass.UNDECIDED else "Unavailable": 1}
    return {"Screened": 1, "Included" if decision else "Excluded": 1}
