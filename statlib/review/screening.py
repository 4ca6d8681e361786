"""What screenings mean: classes under a threshold, and the effect of one decision. Pure.

Rules: ``docs/glossary.md``, entry *screening class*. Counts are n screenings of which i include.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from statlib.review.documents import AgreementThreshold, InclusionClass, InclusionInfo, Screening


class ScreeningClass(StrEnum):
    UNSCREENED = "Unscreened"
    IN_PROGRESS = "InProgress"
    INCLUDED = "Included"
    EXCLUDED = "Excluded"
    CONFLICT = "Conflict"


class Decision(StrEnum):
    """What an investigator submits. ``RETRACT`` removes their own decision; without one it changes nothing."""

    INCLUDE = "Include"
    EXCLUDE = "Exclude"
    RETRACT = "Retract"


def screening_class(n: int, i: int, threshold: AgreementThreshold) -> ScreeningClass:
    """The class of a study with ``n`` screenings of which ``i`` include (0 ≤ i ≤ n)."""
    if n == 0:
        return ScreeningClass.UNSCREENED
    if n < threshold.min_screenings:
        return ScreeningClass.IN_PROGRESS
    if i / n >= threshold.agreement_ratio:
        return ScreeningClass.INCLUDED
    if (n - i) / n >= threshold.agreement_ratio:
        return ScreeningClass.EXCLUDED
    return ScreeningClass.CONFLICT


def inclusion_class(of: ScreeningClass) -> InclusionClass:
    if of is ScreeningClass.INCLUDED:
        return InclusionClass.INCLUDED
    if of is ScreeningClass.EXCLUDED:
        return InclusionClass.EXCLUDED
    return InclusionClass.UNDECIDED


def tally(screenings: Iterable[Screening]) -> tuple[int, int]:
    """(n, i): how many screenings, and how many of them include."""
    included = [screening.included for screening in screenings]
    return len(included), sum(included)


def inclusion_info(screenings: Iterable[Screening], threshold: AgreementThreshold) -> InclusionInfo:
    n, i = tally(screenings)
    return InclusionInfo(class_=inclusion_class(screening_class(n, i, threshold)), screened=n, included=i)


def decide(
    screenings: tuple[Screening, ...], investigator: UUID, decision: Decision, at: datetime
) -> tuple[Screening, ...]:
    """The screenings after one decision: first ones append, corrections keep their place, retractions drop out.

    A decision equal to the one that stands changes nothing, its time included.
    """
    own = next((s for s in screenings if s.investigator_id == investigator), None)
    if decision is Decision.RETRACT:
        return tuple(s for s in screenings if s is not own)
    included = decision is Decision.INCLUDE
    if own is None:
        return (*screenings, Screening(investigator_id=investigator, included=included, at_utc=at))
    if own.included == included:
        return screenings
    # Validated anew, not copied with an update: a copy would keep more of ``at`` than the database does.
    changed = Screening.from_bson({**own.to_bson(), "Included": included, "AtUtc": at})
    return tuple(changed if s is own else s for s in screenings)
