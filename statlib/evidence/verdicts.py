"""The verdict of a run, and the exit code that says the same to a scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from statlib.evidence.results import GateResult


class Verdict(StrEnum):
    """What a run ended as. Gates decide the first four; the others say why no gate could.

    ``passed`` is an ordinary operation whose every expectation held; a soak is never called that.
    """

    PASSED = "passed"
    SOAK_PASSED = "soak passed"
    REHEARSAL_PASSED = "rehearsal passed"
    FAILED = "failed"
    DRY_RUN_ONLY = "dry run only"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    FAULT = "fault"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self]

    @property
    def by_gates(self) -> bool:
        """Whether gates decided it: only then may every declared cell be expected to have run."""
        return self.passing or self is Verdict.FAILED

    @property
    def passing(self) -> bool:
        return self in {Verdict.PASSED, Verdict.SOAK_PASSED, Verdict.REHEARSAL_PASSED}


EXIT_CODES: Mapping[Verdict, int] = {
    Verdict.PASSED: 0,
    Verdict.SOAK_PASSED: 0,
    Verdict.REHEARSAL_PASSED: 0,
    Verdict.FAILED: 3,
    Verdict.DRY_RUN_ONLY: 0,
    Verdict.REFUSED: 4,
    Verdict.INTERRUPTED: 5,
    Verdict.FAULT: 6,
}


def verdict(
    gates: Sequence[GateResult],
    *,
    rehearsal: bool,
    applied: bool,
    soak: bool = True,
    refused: bool = False,
    interrupted: bool = False,
    fault: bool = False,
) -> Verdict:
    """Decide. The worse cause wins: fault, interrupted, refused, dry run, a failed gate.

    A run that acted and derived no gate failed: nothing shown is not a pass. A rehearsal (see
    ``gates.is_rehearsal``) never gets further than *rehearsal passed*;
    the real thing is a *soak passed* if ``soak`` is what was tried, else plainly *passed*.
    """
    if fault:
        return Verdict.FAULT
    if interrupted:
        return Verdict.INTERRUPTED
    if refused:
        return Verdict.REFUSED
    if not applied:
        return Verdict.DRY_RUN_ONLY
    if not gates or not all(gate.passed for gate in gates):
        return Verdict.FAILED
    if rehearsal:
        return Verdict.REHEARSAL_PASSED
    return Verdict.SOAK_PASSED if soak else Verdict.PASSED
