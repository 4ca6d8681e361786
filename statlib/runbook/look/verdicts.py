"""How a verdict is said: its shape, its headline, and what the page's first list is about.

The words come first. A rehearsal is never called a soak, and a run that wrote nothing says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from statlib.evidence.verdicts import Verdict
from statlib.kernel.plurals import plural
from statlib.runbook.look import shapes
from statlib.runbook.look.shapes import Shape


@dataclass(frozen=True)
class Look:
    """``about`` heads the list beside the next steps."""

    shape: Shape
    about: str


LOOKS: Mapping[Verdict, Look] = {
    Verdict.PASSED: Look(shapes.PASSED, "What held"),
    Verdict.SOAK_PASSED: Look(shapes.PASSED, "What held"),
    Verdict.REHEARSAL_PASSED: Look(shapes.REHEARSED, "What held"),
    Verdict.DRY_RUN_ONLY: Look(shapes.DRY, "What a run would do"),
    Verdict.FAILED: Look(shapes.FAILED, "What failed"),
    Verdict.REFUSED: Look(shapes.REFUSED, "Why it was refused"),
    Verdict.INTERRUPTED: Look(shapes.INTERRUPTED, "What interrupted it"),
    Verdict.FAULT: Look(shapes.FAULTED, "What was lost"),
}


STOPPED = frozenset({Verdict.REFUSED, Verdict.INTERRUPTED, Verdict.FAULT})


def look_of(verdict: Verdict) -> Look:
    """Refuses (``KeyError``) a verdict without a shape: a new one needs its own before it may be shown."""
    return LOOKS[verdict]


def headline(verdict: Verdict, *, subject: str, failed: int, gates: int, cause: str) -> str:
    """The verdict as the page's first line.

    ``subject`` is what was tried ("Soak"), ``cause`` what stopped it; either may be empty.
    """
    if verdict is Verdict.FAILED:
        opening = f"{subject} failed" if subject else "Failed"
        return f"{opening}: {failed} of {plural(gates, 'gate')}" if gates else opening
    words = verdict.value[:1].upper() + verdict.value[1:]
    return f"{words}: {cause}" if cause and verdict in STOPPED else words
