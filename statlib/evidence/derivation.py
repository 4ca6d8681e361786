"""What a run's captures amount to: gates and what sort of run they judge. Once for the run, once for its verifier.

Invariant: both ask this one function, so that a verdict is never derived by one rule and checked by another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statlib.evidence import soak_captures as soak
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.entries import CLOCK_OFFSET, Entry
from statlib.evidence.expectations import derive_expected, has_expectations
from statlib.evidence.gates import derive_gates, is_rehearsal
from statlib.evidence.results import GateResult
from statlib.kernel.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Derivation:
    """``gates`` is empty if the run captured neither thresholds nor expectations; ``why_none`` then says so.

    ``soak``: thresholds of a soak were captured; its verdict is a soak's, and its rehearsal a matter of its window.
    An ordinary run is a rehearsal only if its clock was advanced: nothing else asks it to last.
    """

    gates: tuple[GateResult, ...]
    soak: bool
    rehearsal: bool
    why_none: str = ""


def derive(captures: CaptureReader, entries: Sequence[Entry]) -> Derivation:
    """Soak gates first, if thresholds were captured, then one gate for each expectation. Never raises for captures."""
    expected = derive_expected(captures) if has_expectations(captures) else ()
    accelerated = clock_was_advanced(entries)
    if not captures.files(f"{soak.THRESHOLDS}.json") and expected:
        return Derivation(expected, soak=False, rehearsal=accelerated)
    try:
        thresholds = captures.document(soak.THRESHOLDS, soak.SoakThresholds)
    except Refusal as refusal:
        return Derivation((), soak=True, rehearsal=True, why_none=str(refusal))
    gates = (*derive_gates(captures, thresholds), *expected)
    return Derivation(gates, soak=True, rehearsal=accelerated or is_rehearsal(captures, thresholds))


def clock_was_advanced(entries: Sequence[Entry]) -> bool:
    """Whether any entry says that it was written under an advanced clock."""
    return any(entry.data.get(CLOCK_OFFSET) not in (None, 0) for entry in entries)
