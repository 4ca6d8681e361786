"""Decisions of single people: counted on the server by the profile of the studies they are on, and their changes.

What MembershipScreening and ReviewerScreening share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from statlib.review.evidence import ReviewContext, StudyEvidence
from statlib.review.families.stage_profiles import group_by_marks, stored_array
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters

POINT_MOVED_MEMBERS_MAX = 100  # fold 9, scope: in a project with more members these families are staled instead


@dataclass(frozen=True, slots=True)
class Deciders:
    """``studies`` with ``n`` screenings, ``i`` of them inclusions, that ``who`` decided on in one way.

    Where ``who`` is None they are all studies of the profile, whoever decided on them.
    """

    who: UUID | None
    included: bool
    n: int
    i: int
    studies: int


def deciders_by_profile(project: UUID) -> Pipeline:
    """At most (people × 2 + 1) × profiles groups come back, whatever the project's size.

    An entry of nobody's, put in front of the people's, counts the studies themselves.
    """
    decision = {"who": "$$s.InvestigatorId", "included": "$$s.Included"}
    decisions = {"$map": {"input": stored_array("Screenings"), "as": "s", "in": decision}}
    nobody = {"who": None, "included": False}
    flat = {"who": "$_id.mark.who", "included": "$_id.mark.included", "n": "$_id.n", "i": "$_id.i"}
    return [
        {"$match": {"ProjectId": project}},
        *group_by_marks({"$concatArrays": [[nobody], decisions]}),
        {"$project": {"_id": flat, "Studies": 1}},
    ]


def read_deciders(groups: Iterable[Document]) -> Iterator[Deciders]:
    for group in groups:
        of = group["_id"]
        yield Deciders(of["who"], of["included"], of["n"], of["i"], group["Studies"])


def changed_people(before: StudyEvidence, after: StudyEvidence) -> frozenset[UUID]:
    """Whose decision is another one, is new, or is gone."""
    return frozenset(who for who, _ in before.screenings ^ after.screenings)


def moved_within_bound(moves: Mapping[str, Counters], context: ReviewContext) -> Effect:
    """The moves, if there are any; in a project of too many members the family is staled for them."""
    changing = {scope: change for scope, change in moves.items() if change}
    if changing and len(context.members) > POINT_MOVED_MEMBERS_MAX:
        return Effect(stale_family=True)
    return Effect(moves=changing)


def times(counters: Counters, studies: int) -> dict[str, int]:
    """What as many studies add, of which each adds ``counters``."""
    return {key: value * studies for key, value in counters.items()}
