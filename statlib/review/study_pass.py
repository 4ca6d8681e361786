"""One walk over a project's studies that counts for any of the nine families at once.

Each study becomes a handful of marks: one for itself, one per decision, tally, person at work on a stage, reservation
and counted answer. The server takes them apart and groups them, once, by (screening profile, mark). Here they are
dealt out as the groups that each family's own aggregation would have returned, to its own ``collect``: how a counter
is named and decided stays in one place, its family's module.

Why this form: what is grouped is bounded by people × stages × profiles, so no stage comes near the server's 100 MB,
whatever the number of studies. Grouping whole studies first, as one family alone does, has nearly as many groups as
studies as soon as sessions are part of the key (it ran out of the 100 MB at 100,000 studies). Parallel ``$facet``
branches took 1.1 times as long in processor time, since each one unwinds and groups for itself.

Guarantee: the same counters as the nine single calculations at the same moment, for every study whose tallies are one
per stage, which every writer keeps (``annotation.tallies_after``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from statlib.review.documents import SessionStatus
from statlib.review.evidence import ReviewContext, StudyEvidence
from statlib.review.families import (
    domain_reconciliation,
    membership_screening,
    membership_stage_annotation,
    project_screening,
    question_answers,
    reviewer_annotation,
    reviewer_screening,
    search_population,
    stage_annotation,
)
from statlib.review.families.stage_profiles import (
    Expression,
    group_by_marks,
    people_marks,
    read_tallies,
    stored_array,
)
from statlib.statistics.catalogue import Document, Family, Pipeline
from statlib.statistics.counters import Counters


class Mark(StrEnum):
    """What a mark stands for; the value of its field ``of``."""

    STUDY = "study"
    DECISION = "decision"
    TALLY = "tally"
    PERSON = "person"
    RESERVATION = "reservation"
    ANSWER = "answer"


_TALLY = ("StageId", "NCS", "NCCS", "RS", "RC", "Reservations")

NEEDS: Mapping[str, frozenset[Mark]] = {
    project_screening.NAME: frozenset({Mark.STUDY}),
    membership_screening.NAME: frozenset({Mark.STUDY, Mark.DECISION}),
    reviewer_screening.NAME: frozenset({Mark.DECISION}),
    stage_annotation.NAME: frozenset({Mark.STUDY, Mark.TALLY}),
    membership_stage_annotation.NAME: frozenset({Mark.PERSON, Mark.RESERVATION}),
    domain_reconciliation.NAME: frozenset({Mark.TALLY}),
    reviewer_annotation.NAME: frozenset({Mark.STUDY, Mark.TALLY, Mark.PERSON}),
    question_answers.NAME: frozenset({Mark.ANSWER}),
    search_population.NAME: frozenset({Mark.STUDY}),
}


@dataclass(frozen=True, slots=True)
class StudyPass:
    """Feeds the ``registered`` families, as far as it knows what they need."""

    registered: Mapping[str, Family[ReviewContext, StudyEvidence]]

    @property
    def families(self) -> frozenset[str]:
        return frozenset(self.registered).intersection(NEEDS)

    def aggregation(self, project: UUID, context: ReviewContext, families: frozenset[str]) -> Pipeline:
        needed = frozenset[Mark]().union(*(NEEDS[family] for family in families))
        marks = [expression for mark, expression in _marks(context).items() if mark in needed]
        return [{"$match": {"ProjectId": project}}, *group_by_marks({"$concatArrays": marks})]

    def collect(
        self, groups: Iterable[Document], context: ReviewContext, families: frozenset[str]
    ) -> Mapping[str, Mapping[str, Counters]]:
        dealt: dict[Mark, list[Document]] = {mark: [] for mark in Mark}
        for group in groups:
            dealt[Mark(group["_id"]["mark"]["of"])].append(group)
        return {
            family: self.registered[family].collect(_AS_ITS_OWN[family](dealt, context), context) for family in families
        }


def _marks(context: ReviewContext) -> dict[Mark, Any]:
    """Per kind, the array of a study's marks of that kind."""
    sessions = stored_array("Sessions")
    completed = {"$eq": ["$$s.Status", SessionStatus.COMPLETED.value]}
    people = people_marks(
        sessions, of={"$literal": Mark.PERSON.value}, sufficient={"$in": ["$$s.StageId", "$$sufficient"]}
    )
    answers = {"$ifNull": ["$$this.Answers", []]}
    return {
        Mark.STUDY: [{"of": Mark.STUDY.value, "search": "$SearchId"}],
        Mark.DECISION: _each("$Screenings", Mark.DECISION, who="InvestigatorId", included="Included"),
        Mark.TALLY: _each("$Tallies", Mark.TALLY, **{name: name for name in _TALLY}),
        Mark.PERSON: {
            "$cond": [
                {"$eq": [sessions, []]},  # nine in ten studies: they are spared what follows
                [],
                {"$let": {"vars": {"sufficient": reviewer_annotation.sufficiently_allocated(context)}, "in": people}},
            ]
        },
        Mark.RESERVATION: {
            "$setUnion": [_each("$SlotReservations", Mark.RESERVATION, stage="StageId", who="InvestigatorId")]
        },
        Mark.ANSWER: {
            "$reduce": {
                "input": {"$filter": {"input": sessions, "as": "s", "cond": completed}},
                "initialValue": [],
                "in": {"$concatArrays": ["$$value", _each(answers, Mark.ANSWER, question="QuestionId", key="Key")]},
            }
        },
    }


def _each(array: str | Expression, mark: Mark, **fields: str) -> Expression:
    """A mark for each element, with these of its fields under these names."""
    of = {name: f"$$x.{field}" for name, field in fields.items()}
    return {
        "$map": {
            "input": {"$ifNull": [array, []]} if isinstance(array, str) else array,
            "as": "x",
            "in": {"of": mark.value, **of},
        }
    }


_Dealt = Mapping[Mark, list[Document]]
_OwnForm = Callable[[_Dealt, ReviewContext], Iterable[Document]]


def _profiles(dealt: _Dealt, context: ReviewContext) -> Iterator[Document]:
    for group in dealt[Mark.STUDY]:
        yield {"_id": {"n": group["_id"]["n"], "i": group["_id"]["i"], "mark": None}, "Studies": group["Studies"]}


def _deciders(dealt: _Dealt, context: ReviewContext) -> Iterator[Document]:
    for group in dealt[Mark.STUDY]:
        of = {"who": None, "included": False, "n": group["_id"]["n"], "i": group["_id"]["i"]}
        yield {"_id": of, "Studies": group["Studies"]}
    for group in dealt[Mark.DECISION]:
        of = {**group["_id"]["mark"], "n": group["_id"]["n"], "i": group["_id"]["i"]}
        yield {"_id": of, "Studies": group["Studies"]}


def _tallied(dealt: _Dealt, context: ReviewContext) -> Iterator[Document]:
    yield from _profiles(dealt, context)
    yield from dealt[Mark.TALLY]


def _people(dealt: _Dealt, context: ReviewContext) -> Iterator[Document]:
    yield from dealt[Mark.PERSON]
    for group in dealt[Mark.RESERVATION]:
        yield {**group, "_id": {**group["_id"], "mark": {**group["_id"]["mark"], "reserved": True}}}


def _to_annotate(dealt: _Dealt, context: ReviewContext) -> Iterator[Document]:
    """All studies, those that are sufficiently allocated per stage, and people's own candidate sessions."""
    yield from _profiles(dealt, context)
    for group in dealt[Mark.TALLY]:
        for found in read_tallies([group], context):
            if found.stage and found.tally.allocation(context.tracking) >= context.targets[found.stage]:
                yield {**group, "_id": {**group["_id"], "mark": {"stage": found.stage}}}
    yield from (group for group in dealt[Mark.PERSON] if not group["_id"]["mark"]["reconciliation"])


def _answers(dealt: _Dealt, context: ReviewContext) -> Iterator[Document]:
    for group in dealt[Mark.ANSWER]:
        yield {"_id": group["_id"]["mark"], "Answers": group["Studies"]}


def _searches(dealt: _Dealt, context: ReviewContext) -> Iterator[Document]:
    studies: Counter[Any] = Counter()
    for group in dealt[Mark.STUDY]:
        studies[group["_id"]["mark"].get("search")] += group["Studies"]
    for search, found in studies.items():
        yield {"_id": search, "Studies": found}


_AS_ITS_OWN: Mapping[str, _OwnForm] = {
    project_screening.NAME: _profiles,
    membership_screening.NAME: _deciders,
    reviewer_screening.NAME: _deciders,
    stage_annotation.NAME: _tallied,
    membership_stage_annotation.NAME: _people,
    domain_reconciliation.NAME: _tallied,
    reviewer_annotation.NAME: _to_annotate,
    question_answers.NAME: _answers,
    search_population.NAME: _searches,
}
