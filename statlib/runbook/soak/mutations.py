"""The mutation mix: what is generated beside the record, drawn from a seed. Pure.

Shares are of the recorded events. A correction, a retraction, a claim and an edit are each taken back: the decision is
made again, the place is let go (or used up by its holder's session), the member rejoins, the threshold is restored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from statlib.review.annotation_writer import SessionAct
from statlib.review.documents import Project
from statlib.review.edits import Join, Leave, SetThreshold
from statlib.review.loading.review import AnnotationEvent, DecisionEvent, LoadedReview
from statlib.review.screening import Decision, ScreeningClass, screening_class
from statlib.runbook.soak.work import Act, PlaceAct, Plan, PlannedEdit, Work

Share = Annotated[float, Field(ge=0, le=1)]
EDIT_LASTS_MIN = 10
EDIT_LASTS_SHARE = 0.03
"""An edit is taken back after so many submissions, or so much of the replay if that is more."""


class MutationMix(BaseModel):
    """How much is generated, per recorded event."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corrections: Share = 0.02
    retractions: Share = 0.01
    claims: Share = 0.03
    memberships: Share = 0.0005
    thresholds: Share = 0.0003

    def submissions(self, recorded: int) -> int:
        """At most so many are generated beside so many recorded events."""
        return 2 * sum(times(share, recorded) for share in (self.corrections, self.retractions, self.claims))


NOTHING = MutationMix(corrections=0, retractions=0, claims=0, memberships=0, thresholds=0)


def planned(review: LoadedReview, mix: MutationMix, seed: int) -> Plan:
    """The replay of ``review`` with what ``mix`` adds to it. Equal arguments give equal plans."""
    chance = random.Random(f"{seed} mutations")  # noqa: S311 - reproducible, not secret
    events = review.in_order
    openings = _Openings.of(review.project, events)
    standing = [at for at, event in enumerate(events) if _stands(event)]
    beside: dict[int, _Beside] = {}
    for share, places, made in (
        (mix.corrections, standing, lambda at: _corrected(events[at])),
        (mix.retractions, standing, lambda at: _retracted(events[at])),
        (mix.claims, sorted(openings.found), openings.claimed),
    ):
        for at in _drawn(chance, places, times(share, len(events))):
            beside.setdefault(at, made(at))
    work = tuple(_numbered(events, beside))
    return Plan(review.project, work, len(events), _edits(review.project, mix, len(events), len(work), chance))


def times(share: float, recorded: int) -> int:
    """How often: at least once, where there is to be any and anything."""
    return max(1, round(share * recorded)) if share and recorded else 0


@dataclass(frozen=True, slots=True)
class _Beside:
    """What goes just before a recorded event, and just after it."""

    before: tuple[Act, ...] = ()
    after: tuple[Act, ...] = ()


@dataclass(slots=True)
class _Openings:
    """Where in the replay a place could be claimed: by whom, on which stage, and whether one was left."""

    project: Project
    found: dict[int, _Beside] = field(default_factory=dict)
    _decisions: dict[UUID, dict[UUID, bool]] = field(default_factory=dict)
    _sessions: dict[tuple[UUID, UUID], set[UUID]] = field(default_factory=dict)  # candidates by (study, stage)
    _own: set[tuple[UUID, UUID, UUID]] = field(default_factory=set)  # (study, stage, investigator), of either sort

    @classmethod
    def of(cls, project: Project, events: Sequence[DecisionEvent | AnnotationEvent]) -> _Openings:
        openings = cls(project)
        for at, event in enumerate(events):
            openings._look(at, event)
            openings._take(event)
        return openings

    def claimed(self, at: int) -> _Beside:
        return self.found[at]

    def _look(self, at: int, event: DecisionEvent | AnnotationEvent) -> None:
        """Before a session is started, by whoever starts it; after another act, by a member who is free."""
        if not isinstance(event, AnnotationEvent) or not self._included(event.study_id):
            return
        here = (event.study_id, event.stage_id)
        taken = self._sessions.get(here, set())
        target = next(stage.session_count_target for stage in self.project.stages if stage.id == event.stage_id)
        starts = (*here, event.investigator_id) not in self._own and event.act is not SessionAct.DELETE
        if starts:
            claim = PlaceAct(*event_place(event, event.investigator_id), True, len(taken) < target)
            self.found[at] = _Beside(before=(claim,))
            return
        free = next((m for m in self.project.memberships if (*here, m.investigator_id) not in self._own), None)
        if free is not None and event.act is not SessionAct.DELETE:
            claim = PlaceAct(*event_place(event, free.investigator_id), True, len(taken) < target)
            self.found[at] = _Beside(after=(claim, replace(claim, taken=False)))

    def _take(self, event: DecisionEvent | AnnotationEvent) -> None:
        if isinstance(event, DecisionEvent):
            of_study = self._decisions.setdefault(event.study_id, {})
            if event.decision is Decision.RETRACT:
                of_study.pop(event.investigator_id, None)
            else:
                of_study[event.investigator_id] = event.decision is Decision.INCLUDE
            return
        here, own = (event.study_id, event.stage_id), (event.study_id, event.stage_id, event.investigator_id)
        if event.act is SessionAct.DELETE:
            self._own.discard(own)
            self._sessions.get(here, set()).discard(event.investigator_id)
            return
        self._own.add(own)
        if not event.reconciliation:
            self._sessions.setdefault(here, set()).add(event.investigator_id)

    def _included(self, study: UUID) -> bool:
        of_study = self._decisions.get(study, {})
        reached = screening_class(len(of_study), sum(of_study.values()), self.project.agreement_threshold)
        return reached is ScreeningClass.INCLUDED


def event_place(event: AnnotationEvent, investigator: UUID) -> tuple[UUID, UUID, UUID]:
    return event.study_id, investigator, event.stage_id


def _stands(event: DecisionEvent | AnnotationEvent) -> bool:
    return isinstance(event, DecisionEvent) and event.decision is not Decision.RETRACT


def _corrected(event: Act) -> _Beside:
    assert isinstance(event, DecisionEvent)
    other = Decision.EXCLUDE if event.decision is Decision.INCLUDE else Decision.INCLUDE
    return _Beside(after=(replace(event, decision=other), event))


def _retracted(event: Act) -> _Beside:
    assert isinstance(event, DecisionEvent)
    return _Beside(after=(replace(event, decision=Decision.RETRACT), event))


def _drawn(chance: random.Random, places: Sequence[int], wanted: int) -> list[int]:
    return chance.sample(places, min(wanted, len(places)))


def _numbered(events: Sequence[DecisionEvent | AnnotationEvent], beside: dict[int, _Beside]) -> Iterator[Work]:
    generated = len(events)
    seq = 0
    for at, event in enumerate(events):
        around = beside.get(at, _Beside())
        for act, recorded in (
            *((act, False) for act in around.before),
            (event, True),
            *((act, False) for act in around.after),
        ):
            yield Work(seq, at if recorded else generated, act)
            generated += not recorded
            seq += 1


def _edits(
    project: Project, mix: MutationMix, recorded: int, submissions: int, chance: random.Random
) -> tuple[PlannedEdit, ...]:
    """Edits and what takes them back, each pair done before the next begins."""
    makes: list[Callable[[], tuple[Leave, Join] | tuple[SetThreshold, SetThreshold]]] = []
    if project.memberships:
        makes += [lambda: _left(project, chance)] * times(mix.memberships, recorded)
    makes += [lambda: _moved(project)] * times(mix.thresholds, recorded)
    chance.shuffle(makes)
    pitch = submissions / (len(makes) + 1)
    lasts = int(min(max(EDIT_LASTS_MIN, EDIT_LASTS_SHARE * submissions), pitch / 2))
    edits: list[PlannedEdit] = []
    for place, make in enumerate(makes, start=1):
        change, undo = make()
        begins = int(place * pitch)
        edits += [PlannedEdit(begins, change), PlannedEdit(begins + lasts, undo)]
    return tuple(edits)


def _left(project: Project, chance: random.Random) -> tuple[Leave, Join]:
    member = project.memberships[chance.randrange(len(project.memberships))]
    who = member.investigator_id
    return Leave(investigator=who), Join(investigator=who, name=member.name, at=member.joined_at_utc)


def _moved(project: Project) -> tuple[SetThreshold, SetThreshold]:
    stands = project.agreement_threshold
    return (
        SetThreshold(min_screenings=stands.min_screenings + 1, agreement_ratio=stands.agreement_ratio),
        SetThreshold(min_screenings=stands.min_screenings, agreement_ratio=stands.agreement_ratio),
    )


__all__ = ["NOTHING", "MutationMix", "planned"]
