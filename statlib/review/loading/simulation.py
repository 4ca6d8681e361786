"""How a simulated review unfolds, act by act. Pure apart from the random numbers that it is given.

Two reviewers decide each record against its hidden truth, each with error rates of their own; where they disagree, a
third is called, once. Work is spread unevenly over the reviewers and interleaved over the records. Some decisions are
submitted again unchanged, corrected or retracted; what was retracted is decided again later. Only whole numbers are
drawn and compared, so that no machine rounds differently.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from statlib.review.screening import Decision

SHARE_WHOLE = 1_000
STARTED_AT = datetime(2024, 1, 8, 9, tzinfo=UTC)
PAUSE_MS = (400, 20_000)
CALL_BACK_ACTS = (20, 200)
"""After how many further acts a called third reviewer, or one who retracted, decides."""

_MISSES = (20, 150)
_FALSE_ALARMS = (10, 80)


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Per thousand: ``misses`` relevant records excluded, ``false_alarms`` other records included."""

    name: str
    weight: int
    misses: int
    false_alarms: int


@dataclass(frozen=True, slots=True)
class Habits:
    """Per thousand acts: standing decisions submitted again, changed, withdrawn."""

    resubmitted: int
    corrected: int
    retracted: int


@dataclass(frozen=True, slots=True)
class Act:
    """One submission; ``study`` and ``reviewer`` are positions."""

    seq: int
    study: int
    reviewer: int
    decision: Decision
    at: datetime


Pair = tuple[int, int]  # (study, reviewer)


def panel(chance: random.Random, size: int) -> list[Reviewer]:
    """``size`` reviewers; the n-th takes on about an n-th of the first one's share."""
    return [
        Reviewer(
            f"Simulated reviewer {number}",
            10_000 // number,
            chance.randrange(*_MISSES),
            chance.randrange(*_FALSE_ALARMS),
        )
        for number in range(1, size + 1)
    ]


@dataclass(slots=True)
class _Standing:
    """Decisions that stand, with a uniform draw in constant time."""

    included: dict[Pair, bool] = field(default_factory=dict)
    _order: list[Pair] = field(default_factory=list)
    _place: dict[Pair, int] = field(default_factory=dict)

    def put(self, pair: Pair, included: bool) -> None:
        if pair not in self.included:
            self._place[pair] = len(self._order)
            self._order.append(pair)
        self.included[pair] = included

    def remove(self, pair: Pair) -> None:
        del self.included[pair]
        place, last = self._place.pop(pair), self._order.pop()
        if last != pair:
            self._order[place] = last
            self._place[last] = place

    def draw(self, chance: random.Random) -> Pair:
        return self._order[chance.randrange(len(self._order))]


@dataclass(slots=True)
class Course:
    """The course of one review over ``relevant`` records. Iterate ``acts`` once."""

    chance: random.Random
    reviewers: Sequence[Reviewer]
    relevant: Sequence[bool]
    habits: Habits
    _waiting: list[tuple[int, int, int]] = field(default_factory=list)  # heap of (due act, study, reviewer)
    _assigned: list[list[int]] = field(default_factory=list)  # reviewers of each study, in the order called
    _standing: _Standing = field(default_factory=_Standing)

    def acts(self, limit: int | None) -> Iterator[Act]:
        """``limit`` acts, or until nobody has anything left to decide."""
        self._assign()
        at, seq = STARTED_AT, 0
        while seq < limit if limit is not None else self._waiting:
            seq += 1
            at += timedelta(milliseconds=self.chance.randrange(*PAUSE_MS))
            (study, reviewer), decision = self._next(seq)
            yield Act(seq, study, reviewer, decision, at)

    def _assign(self) -> None:
        spread = 1 + len(self.relevant) // 2
        for study in range(len(self.relevant)):
            self._assigned.append([])
            for _ in range(2):
                self._call(study, 2 * study + self.chance.randrange(spread))

    def _call(self, study: int, due: int) -> None:
        """Ask one more reviewer, by weight, to decide ``study``."""
        taken = self._assigned[study]
        free = [position for position in range(len(self.reviewers)) if position not in taken]
        [chosen] = self.chance.choices(free, weights=[self.reviewers[position].weight for position in free])
        taken.append(chosen)
        heapq.heappush(self._waiting, (due, study, chosen))

    def _next(self, seq: int) -> tuple[Pair, Decision]:
        habits = self.habits
        if not self._standing.included:
            return self._first_decision(seq)
        # Once nobody waits, only habits are left; without any, decisions are repeated.
        whole = SHARE_WHOLE if self._waiting else habits.resubmitted + habits.corrected + habits.retracted
        drawn = self.chance.randrange(whole) if whole else 0
        if self._waiting and drawn >= habits.resubmitted + habits.corrected + habits.retracted:
            return self._first_decision(seq)
        pair = self._standing.draw(self.chance)
        if drawn < habits.resubmitted or not whole:
            return pair, _decision(self._standing.included[pair])
        if drawn < habits.resubmitted + habits.corrected:
            self._settle(seq, pair, not self._standing.included[pair])
            return pair, _decision(self._standing.included[pair])
        self._standing.remove(pair)
        heapq.heappush(self._waiting, (seq + self.chance.randrange(*CALL_BACK_ACTS), *pair))
        return pair, Decision.RETRACT

    def _first_decision(self, seq: int) -> tuple[Pair, Decision]:
        _, study, position = heapq.heappop(self._waiting)
        reviewer = self.reviewers[position]
        drawn = self.chance.randrange(SHARE_WHOLE)
        included = drawn >= reviewer.misses if self.relevant[study] else drawn < reviewer.false_alarms
        self._settle(seq, (study, position), included)
        return (study, position), _decision(included)

    def _settle(self, seq: int, pair: Pair, included: bool) -> None:
        """Let the decision stand, and call a third reviewer if the first two now disagree."""
        self._standing.put(pair, included)
        study = pair[0]
        if len(self._assigned[study]) > 2:
            return
        votes = {self._standing.included.get((study, position)) for position in self._assigned[study]}
        if votes == {True, False}:
            self._call(study, seq + self.chance.randrange(*CALL_BACK_ACTS))


def _decision(included: bool) -> Decision:
    return Decision.INCLUDE if included else Decision.EXCLUDE
