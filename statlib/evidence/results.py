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


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Measured(_Result):
    """A number with its unit (empty for a plain count)."""

    number: float
    unit: str


class Threshold(_Result):
    """The limit, and the same in words for a reader."""

    text: str
    number: float
    unit: str


class GateResult(_Result):
    """One gate. ``measured`` is null exactly when ``problem`` says why nothing could be measured; such a gate
    failed, because what was not shown was not reached."""

    key: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    title: str
    threshold: Threshold
    comparison: Comparison
    measured: Measured | None
    passed: bool
    source: str = Field(description="capture file names, relative to the evidence folder, comma-separated")
    note: str
    problem: Problem | None = None


def duration(seconds: float) -> str:
    """The two largest units: ``7 d 00 h``, ``1 min 05 s``; below a minute, seconds."""
    if seconds < 60:
        return f"{seconds:g} s"
    whole = round(seconds)
    for size, unit, below_size, below in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // below_size:02} {below}"
    return f"{whole} s"
