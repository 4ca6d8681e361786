"""A runbook as small as one can be that still prepares, acts, measures and passes the soak's gates.

Its durable state is a text file: acting appends one line, so that a repeated effect is a second line.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, Field

from statlib.evidence.soak_captures import SoakThresholds
from statlib.kernel.refusals import Reason, Refusal, RefusalKind
from statlib.runbook.catalogue import Runbook
from statlib.runbook.parameters import ActingParameters
from statlib.runbook.run import Run


class TinyReason(Reason):
    TooManyLines = (RefusalKind.CAPACITY, "Empty the file first.")


class TinyParameters(ActingParameters):
    effects: Path = Field(description="the file that acting appends to")
    lines: int = Field(default=1, ge=0, le=5, description="lines to append")
    comparisons_min: int = Field(default=1, ge=1, description="comparisons that the gate asks for")


class Plan(BaseModel):
    lines: int
    already_there: int


class Done(BaseModel):
    appended: int


def preflight(run: Run[TinyParameters]) -> Plan:
    parameters = run.parameters
    return Plan(lines=parameters.lines, already_there=len(_lines(parameters.effects)))


def append(run: Run[TinyParameters], plan: Plan) -> Done:
    parameters = run.parameters
    if plan.lines > 3:
        raise Refusal(TinyReason.TooManyLines, f"{plan.lines} lines")
    with parameters.effects.open("a", encoding="utf-8") as file:
        file.writelines(f"{run.request_id('append')}\n" for _ in range(plan.lines))
    return Done(appended=plan.lines)


def measure(run: Run[TinyParameters], done: Done | None) -> None:
    parameters = run.parameters
    started = datetime(2026, 3, 2, tzinfo=UTC)
    at = started.isoformat()
    captures = run.captures
    captures.write(
        "thresholds",
        SoakThresholds(
            duration_s=1,
            operations_min=1,
            reads_min=1,
            families=("ProjectScreening",),
            comparisons_per_family_min=parameters.comparisons_min,
            fallback_rate_max=0.5,
            bytes_per_operation_max=1e6,
        ),
    )
    ended = (started + timedelta(seconds=3)).isoformat()
    saved = (started + timedelta(seconds=1)).isoformat()
    captures.write("window", {"started_at": at, "ended_at": ended, "monotonic_s": 3.0, "clock_offset_ms": 0})
    captures.write("loaded", {"events_total": 1, "events_distinct": 1, "provenance": {"source": "tests"}})
    captures.write("backlog", {"rebuilds_unresolved": 0, "stale_families": [], "stale_scopes": 0})
    captures.write("refusals", {"capacity_refused": 0})
    with captures.lines("operations") as rows:
        rows.append(
            {
                "event": 0, "operation_id": "screening:a", "namespace": "screening", "study": "s",
                "arm": "transactional", "outcome": "saved", "reason": None, "attempts": 1, "latency_ms": 2.0,
                "resubmission": 0, "at": saved, "expects_receipt": True, "applied": True, "noop": False,
            }
        )  # fmt: skip
    with captures.lines("reads") as rows:
        rows.append(
            {
                "family": "ProjectScreening", "scopes": 1, "source": "materialised", "reason": None, "latency_ms": 1.0,
                "at": at,
            }
        )  # fmt: skip
    with captures.lines("parity") as rows:
        rows.append(
            {
                "family": "ProjectScreening", "scopes_compared": 1, "exact": True, "compared": True, "differences": [],
                "reason": None, "at": at,
            }
        )  # fmt: skip
    with captures.lines("receipts") as rows:
        rows.append(
            {
                "namespace": "screening", "operation_id": "screening:a", "expected": 0, "before": 0, "after": 1,
                "digest": "0" * 64,
            }
        )  # fmt: skip
    with captures.lines("storage") as rows:
        for second in range(8):
            rows.append(
                {
                    "at": (started + timedelta(seconds=second / 2)).isoformat(), "collection": "pmStudy",
                    "documents": 1, "size_bytes": 100, "storage_bytes": 4096,
                }
            )  # fmt: skip


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


RUNBOOK = Runbook(name="tiny", summary="Append lines to a file.", parameters=TinyParameters)
