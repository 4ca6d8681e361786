"""ProjectScreening counted one study at a time over plain dictionaries: naive on purpose, sharing no code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def project_screening(studies: Iterable[Mapping[str, Any]], threshold: Mapping[str, Any]) -> dict[str, int]:
    """The counters of stored studies under a stored threshold. Zero counters are absent."""
    counters: dict[str, int] = {}

    def add(key: str, weight: int) -> None:
        if weight != 0:
            counters[key] = counters.get(key, 0) + weight

    for study in studies:
        n = 0
        i = 0
        for screening in study["Screenings"]:
            n = n + 1
            if screening["Included"]:
                i = i + 1
        add("Studies", 1)
        add("Profile/" + str(n) + ":" + str(i), 1)
        add("Class/" + class_of(n, i, threshold["MinScreenings"], threshold["AgreementRatio"]), 1)
        add("Decisions", n)
        add("Inclusions", i)
        add("Exclusions", n - i)
    return counters


def class_of(n: int, i: int, min_screenings: int, agreement_ratio: float) -> str:
    """The screening class, straight from its definition."""
    if n == 0:
        return "Unscreened"
    if 0 < n < min_screenings:
        return "InProgress"
    if n >= min_screenings and i / n >= agreement_ratio:
        return "Included"
    if n >= min_screenings and (n - i) / n >= agreement_ratio:
        return "Excluded"
    return "Conflict"
