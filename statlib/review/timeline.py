"""How screening came to be where it is: classes over time, from the times that decisions carry.

Read from the studies themselves, since counters know the present alone. A correction replaces the decision that it
corrects, its time included: the line shows when the decisions that stand were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.review.documents import PROJECTS, STUDIES, AgreementThreshold, Project
from statlib.review.screening import ScreeningClass, screening_class
from statlib.statistics.reasons import OperateReason

MOMENTS_MAX = 80

Decisions = Iterable[tuple[datetime, bool]]
"""(when, included) of one study, in any order."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Studies per screening class at ``at`` (UTC)."""

    at: datetime
    classes: Mapping[ScreeningClass, int]


def screening_timeline(mongo: Mongo, project: UUID, *, moments: int = MOMENTS_MAX) -> tuple[Moment, ...]:
    """Classes at equally distant moments from the first decision to the last; empty where nothing was decided.

    One command that brings the times of all decisions and nothing else of the studies. Refuses ProjectNotFound.
    """
    found = mongo.collection(PROJECTS).find_one({"_id": project})
    if found is None:
        raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
    threshold = Project.from_bson(found).agreement_threshold
    studies = mongo.collection(STUDIES).find(
        {"ProjectId": project}, {"_id": 0, "Screenings.AtUtc": 1, "Screenings.Included": 1}
    )
    decided = ([(s["AtUtc"], s["Included"]) for s in study.get("Screenings", ())] for study in studies)
    return timeline_of(decided, threshold, moments=moments)


def timeline_of(
    studies: Iterable[Decisions], threshold: AgreementThreshold, *, moments: int = MOMENTS_MAX
) -> tuple[Moment, ...]:
    """``screening_timeline`` of decisions that are at hand. Pure."""
    changes: dict[datetime, Counter[ScreeningClass]] = {}
    untouched = 0
    for study in studies:
        untouched += 1
        n = i = 0
        was = ScreeningClass.UNSCREENED
        for at, included in sorted(study):
            n, i = n + 1, i + included
            now = screening_class(n, i, threshold)
            if now is not was:
                change = changes.setdefault(at, Counter())
                change[was] -= 1
                change[now] += 1
            was = now
    if not changes:
        return ()
    ordered = sorted(changes)
    running = Counter({ScreeningClass.UNSCREENED: untouched})
    taken, passed = [], 0
    for at in _moments(ordered[0], ordered[-1], moments):
        while passed < len(ordered) and ordered[passed] <= at:
            running.update(changes[ordered[passed]])
            passed += 1
        taken.append(Moment(at, {class_: running[class_] for class_ in ScreeningClass}))
    return tuple(taken)


def _moments(first: datetime, last: datetime, count: int) -> list[datetime]:
    if first == last or count < 2:
        return [last]
    step = (last - first) / (count - 1)
    between = [first + step * n for n in range(count - 1)]
    return [*between, last]
