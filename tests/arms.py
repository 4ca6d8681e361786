"""Reviews whose saves take a given arm, and what is left of them once nothing waits any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statlib.review.catalogue import REVIEW
from statlib.statistics.arms import Arm
from statlib.statistics.fold.turn import Stopped, fold_project
from statlib.statistics.pending import FOLD_SEQUENCE
from tests.folding import fold_on, pending
from tests.reviews import Review

UNDER_STATISTICS = frozenset({Arm.TRANSACTIONAL, Arm.FOLD})


def options(arm: Arm) -> dict[str, Any]:
    """Of ``tests.reviews.review``."""
    return {"under_statistics": arm in UNDER_STATISTICS, "fold": arm is Arm.FOLD}


def begin(opened: Review, arm: Arm) -> None:
    """Rows of all families of the host, where any are kept, and from then on saves of that arm."""
    if arm in UNDER_STATISTICS:
        opened.backfill_all()
    if arm is Arm.FOLD:
        fold_on(opened.mongo, opened.project)


def fold(opened: Review) -> None:
    """Until nothing is pending; nothing is quarantined by it. Without fold mode nothing is to be done."""
    while pending(opened.mongo, opened.project):
        folded = fold_project(opened.host, REVIEW, opened.project, min_age_s=0.0)
        assert folded.stopped in {Stopped.DRAINED, Stopped.MORE}, folded
        assert folded.quarantined == 0, folded


def saves_of(study: Mapping[str, Any]) -> int:
    """How often a study was written, but for folds."""
    return int(study["Audit"]["Version"] - study.get(FOLD_SEQUENCE, 0))
