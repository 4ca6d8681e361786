"""Decisions of two simulated reviewers and an arbiter over records whose final label is known. Pure, seeded.

Each reviewer misses a share of the relevant records and takes in a share of the others; both shares are drawn from the
seed. Where the two differ, the arbiter decides as the label says. Where both err alike nobody notices, so that some
records end otherwise than labelled: that is counted, never mended.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from statlib.review.loading.simulation import SHARE_WHOLE, Reviewer, panel

ARBITER = "Simulated arbiter"
LAG_MAX = 400
"""By how many steps at most the second reviewer, and then the arbiter, come after the one before."""


@dataclass(frozen=True, slots=True)
class SimulatedDecision:
    """``record`` is a position among the labels."""

    record: int
    reviewer: str
    included: bool


@dataclass(frozen=True, slots=True)
class ErrorModel:
    """What the seed made of the labels: decisions in order, and what provenance must say of them."""

    seed: int
    reviewers: tuple[Reviewer, Reviewer]
    decisions: tuple[SimulatedDecision, ...]
    disagreements: int
    ended_otherwise: int

    @property
    def described(self) -> str:
        first, second = self.reviewers
        return (
            f"Two reviewers decide each labelled record, made up from seed {self.seed}: per thousand, the first misses "
            f"{first.misses} of the relevant records and includes {first.false_alarms} of the others, the second "
            f"{second.misses} and {second.false_alarms}. Where they differ ({self.disagreements:,} records) an arbiter "
            f"decides as labelled; where both err ({self.ended_otherwise:,}) the record ends otherwise than labelled."
        )


def simulated(labels: Sequence[bool | None], seed: int, stream: str) -> ErrorModel:
    """Decide every record that has a label. ``stream`` keeps reviews that share a seed apart."""
    chance = random.Random(f"{seed}/{stream}")  # noqa: S311 - reproducible, not secret
    first, second = panel(chance, 2)
    due: list[tuple[int, int, SimulatedDecision]] = []
    disagreements = ended_otherwise = 0
    for record, label in enumerate(labels):
        if label is None:
            continue
        votes = [_vote(chance, reviewer, label) for reviewer in (first, second)]
        steps = [2 * record]
        for _ in range(2):
            steps.append(steps[-1] + 1 + chance.randrange(LAG_MAX))
        decided = [(first.name, votes[0]), (second.name, votes[1])]
        if votes[0] != votes[1]:
            disagreements += 1
            decided.append((ARBITER, label))
        elif votes[0] != label:
            ended_otherwise += 1
        due += [
            (step, len(due) + place, SimulatedDecision(record, reviewer, included))
            for place, (step, (reviewer, included)) in enumerate(zip(steps, decided, strict=False))
        ]
    ordered = tuple(decision for _, _, decision in sorted(due, key=lambda entry: entry[:2]))
    return ErrorModel(seed, (first, second), ordered, disagreements, ended_otherwise)


def _vote(chance: random.Random, reviewer: Reviewer, relevant: bool) -> bool:
    drawn = chance.randrange(SHARE_WHOLE)
    return drawn >= reviewer.misses if relevant else drawn < reviewer.false_alarms
