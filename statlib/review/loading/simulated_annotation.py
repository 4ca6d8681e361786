"""How the annotation of a simulated review unfolds beside its screening. Pure but for the random numbers given.

A study that comes to be included is annotated on every stage: two reviewers start a session each, save once more and
complete it; some edit what they completed, some delete their session and begin anew. Where two are complete, a third
reviewer mostly reconciles them. Only whole numbers are drawn and compared, so that no machine rounds differently.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from statlib.review.annotation_writer import SessionAct
from statlib.review.documents import AgreementThreshold, AnswerKind
from statlib.review.loading.simulation import SHARE_WHOLE, Act
from statlib.review.screening import Decision, ScreeningClass, screening_class

PAUSE_ACTS = (3, 40)
"""After how many decisions of the whole review an annotator goes on."""

PAUSE = timedelta(seconds=10)
EDITED_SHARE, DELETED_SHARE, RECONCILED_SHARE = 120, 60, 700
CANDIDATES = 2
OPEN_ENDED = "As described in the methods."


@dataclass(frozen=True, slots=True)
class SimulatedQuestion:
    """One question of a stage; ``key`` is unique in the review."""

    key: str
    stage: str
    text: str
    kind: AnswerKind
    options: tuple[str, ...] = ()

    def answer(self, chance: random.Random) -> bool | int | str:
        match self.kind:
            case AnswerKind.BOOLEAN:
                return bool(chance.randrange(2))
            case AnswerKind.INTEGER:
                return chance.randrange(6, 40)
            case AnswerKind.CHOICE:
                return self.options[chance.randrange(len(self.options))]
            case AnswerKind.TEXT:
                return OPEN_ENDED


STAGES = ("Data extraction", "Risk of bias")
QUESTIONS = (
    SimulatedQuestion("blinded", STAGES[0], "Was the outcome assessed blind?", AnswerKind.BOOLEAN),
    SimulatedQuestion("animals", STAGES[0], "How many animals were in a group?", AnswerKind.INTEGER),
    SimulatedQuestion("species", STAGES[0], "Which species?", AnswerKind.CHOICE, ("Mouse", "Rat", "Rabbit", "Other")),
    SimulatedQuestion("model", STAGES[0], "How was the disease induced?", AnswerKind.TEXT),
    SimulatedQuestion("random", STAGES[1], "Was allocation random?", AnswerKind.CHOICE, ("Yes", "No", "Unclear")),
    SimulatedQuestion("excluded", STAGES[1], "Were exclusions reported?", AnswerKind.BOOLEAN),
)


@dataclass(frozen=True, slots=True)
class SimulatedSession:
    """One act on a session; ``study`` and ``reviewer`` are positions, ``after`` the decision that it comes after."""

    after: int
    study: int
    reviewer: int
    stage: str
    act: SessionAct
    at: datetime
    answers: Mapping[str, bool | int | str] | None
    reconciliation: bool


@dataclass(slots=True)
class AnnotationCourse:
    """The sessions of one review with ``reviewers`` people, who must be three or more. Iterate ``acts`` once."""

    chance: random.Random
    reviewers: int
    threshold: AgreementThreshold
    _decisions: dict[int, dict[int, bool]] = field(default_factory=dict)
    _begun: set[int] = field(default_factory=set)
    _due: list[tuple[int, int, SimulatedSession]] = field(default_factory=list)

    def acts(self, decisions: Sequence[Act], limit: int) -> Iterator[SimulatedSession]:
        """At most ``limit`` acts, in order, beside the decisions."""
        for decision in decisions:
            self._take(decision)
        heapq.heapify(self._due)
        for _ in range(min(limit, len(self._due))):
            yield heapq.heappop(self._due)[2]

    def _take(self, decision: Act) -> None:
        of_study = self._decisions.setdefault(decision.study, {})
        if decision.decision is Decision.RETRACT:
            of_study.pop(decision.reviewer, None)
        else:
            of_study[decision.reviewer] = decision.decision is Decision.INCLUDE
        reached = screening_class(len(of_study), sum(of_study.values()), self.threshold)
        if reached is ScreeningClass.INCLUDED and decision.study not in self._begun:
            self._begun.add(decision.study)
            for stage in STAGES:
                self._annotate(decision, stage)

    def _annotate(self, included: Act, stage: str) -> None:
        people = self.chance.sample(range(self.reviewers), CANDIDATES + 1)
        ended = max(self._candidate(included, stage, who) for who in people[:CANDIDATES])
        if self.chance.randrange(SHARE_WHOLE) < RECONCILED_SHARE:
            began = self._plan(included, stage, people[-1], SessionAct.SAVE, ended, self._answers(stage), True)
            self._plan(included, stage, people[-1], SessionAct.COMPLETE, began, None, True)

    def _candidate(self, included: Act, stage: str, who: int) -> int:
        """Plans one candidate session; the number of decisions after which it is complete."""
        at = self._plan(included, stage, who, SessionAct.SAVE, included.seq, {})
        if self.chance.randrange(SHARE_WHOLE) < DELETED_SHARE:
            at = self._plan(included, stage, who, SessionAct.DELETE, at, None)
        answers = self._answers(stage)
        at = self._plan(included, stage, who, SessionAct.SAVE, at, dict(list(answers.items())[:1]))
        at = self._plan(included, stage, who, SessionAct.COMPLETE, at, answers)
        if self.chance.randrange(SHARE_WHOLE) < EDITED_SHARE:
            at = self._plan(included, stage, who, SessionAct.SAVE, at, self._answers(stage))
        return at

    def _plan(  # noqa: PLR0917 - the parts of one act
        self,
        included: Act,
        stage: str,
        who: int,
        act: SessionAct,
        before: int,
        answers: Mapping[str, bool | int | str] | None,
        reconciliation: bool = False,
    ) -> int:
        after = before + self.chance.randrange(*PAUSE_ACTS)
        at = included.at + PAUSE * (after - included.seq)
        planned = SimulatedSession(after, included.study, who, stage, act, at, answers, reconciliation)
        self._due.append((after, len(self._due), planned))
        return after

    def _answers(self, stage: str) -> dict[str, bool | int | str]:
        return {question.key: question.answer(self.chance) for question in QUESTIONS if question.stage == stage}
