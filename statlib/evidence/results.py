"""A gate's result: threshold, measured value, pass or fail, and the raw file that it was derived from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from statlib.evidence.reasons import EvidenceReason


class Comparison(StrEnum):
    """How the measured value must stand to the threshold."""

    AT_MOST = "≤"
    AT_LEAST = "≥"
    EXACTLY = "="

    def holds(self, measured: float, limit: float) -> bool:
        if self is Comparison.AT_MOST:
            return measured <= limit
        if self is Comparison.AT_LEAST:
            return measured >= limit
        return measured == limit


def _by_name(value: Any) -> Any:
    return EvidenceReason[value] if isinstance(value, str) and value in EvidenceReason.__members__ else value


Problem = Annotated[
    EvidenceReason, BeforeValidator(_by_name), PlainSerializer(lambda reason: reason.name, return_type=str)
]


class GateResult(BaseModel):
    """One gate. ``threshold`` and ``measured`` are both in ``unit`` (empty for a plain count); ``threshold_text`` says
    the threshold to a reader. ``measured`` is null exactly when ``problem`` says why nothing could be measured: such
    a gate failed, because what was not shown was not reached."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    key: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    title: str
    threshold: float
    threshold_text: str
    comparison: Comparison
    measured: float | None
    unit: str
    passed: bool
    source: str = Field(description="capture files, relative to the evidence folder, comma-separated")
    note: str
    problem: Problem | None = None


def duration(seconds: float) -> str:
    """The two largest units: ``7 d 00 h``, ``1 min 05 s``; below a minute, seconds."""
    if seconds < 60:
        return f"{seconds:g} s"
    whole = round(seconds)
    if whole >= 86_400:
        return f"{whole // 86_400} d {whole % 86_400 // 3600:02} h"
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s"


def threshold_words(comparison: Comparison, limit: float, unit: str) -> str:
    """The threshold as a reader is told it: ``≥ 1 min 00 s``, ``≤ 4,096 B``, ``0``."""
    amount = duration(limit) if unit == "s" else f"{limit:,.12g}" + (f" {unit}" if unit else "")
    return amount if comparison is Comparison.EXACTLY else f"{comparison} {amount}"
