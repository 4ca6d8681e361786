"""Gates of ordinary operations: what a runbook expected to find, and what it found.

A runbook that is no soak captures ``expectations.jsonl``, one row for each thing that must hold when it has acted.
Each row is a gate. Invariant: whether it passed is computed from the two numbers and never read from the row.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.results import Comparison, GateResult, threshold_words
from statlib.kernel.refusals import Refusal

EXPECTATIONS = "expectations"


class Expectation(BaseModel):
    """One row. ``expected`` and ``measured`` are both in ``unit``; ``measured`` is null where nothing was found to
    measure, and such a gate fails. A key captured again replaces what was captured before: a step taken again after
    its process died measures anew."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    key: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    title: str = Field(min_length=1)
    expected: float
    measured: float | None
    comparison: Comparison = Field(strict=False)
    unit: str = ""
    note: str = ""


def has_expectations(captures: CaptureReader) -> bool:
    """Whether the run captured any, readable or not."""
    return bool(captures.files(f"{EXPECTATIONS}.jsonl"))


def derive_expected(captures: CaptureReader) -> tuple[GateResult, ...]:
    """One gate for each key, in the order of their first rows. Never raises for bad captures: a capture that cannot be
    read, or holds no row, is one failed gate that says why."""
    files = captures.files(f"{EXPECTATIONS}.jsonl")
    try:
        rows = {row.key: row for row in captures.rows(EXPECTATIONS, Expectation)}
    except Refusal as refusal:
        if not isinstance(refusal.reason, EvidenceReason):
            raise
        return (_unreadable(files, refusal.reason, refusal.detail),)
    if not rows:
        return (_unreadable(files, EvidenceReason.NothingMeasured, "nothing was expected"),)
    return tuple(_gate(row, ", ".join(files)) for row in rows.values())


def _gate(row: Expectation, source: str) -> GateResult:
    missing = row.measured is None
    return GateResult(
        key=row.key,
        title=row.title,
        threshold=row.expected,
        threshold_text=threshold_words(row.comparison, row.expected, row.unit),
        comparison=row.comparison,
        measured=row.measured,
        unit=row.unit,
        passed=row.measured is not None and row.comparison.holds(row.measured, row.expected),
        source=source,
        note=row.note or ("nothing was found to measure" if missing else ""),
        problem=EvidenceReason.NothingMeasured if missing else None,
    )


def _unreadable(files: tuple[str, ...], reason: EvidenceReason, detail: str) -> GateResult:
    return GateResult(
        key=EXPECTATIONS,
        title="Expectations on record",
        threshold=1,
        threshold_text=threshold_words(Comparison.AT_LEAST, 1, ""),
        comparison=Comparison.AT_LEAST,
        measured=None,
        unit="",
        passed=False,
        source=", ".join(files) or f"captures/{EXPECTATIONS}.jsonl",
        note=detail,
        problem=reason,
    )
