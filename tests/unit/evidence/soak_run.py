"""A small soak run, as true rows that tests then bend, and the folder that such a run leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from statlib.evidence import soak_captures as soak
from statlib.evidence.bundle import HEAD_META, VERDICT_META, Signs, seal
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.captures import Captures
from statlib.evidence.closing import close_run
from statlib.evidence.entries import EntryKind
from statlib.evidence.gates import derive_gates, is_rehearsal
from statlib.evidence.journal import Journal
from statlib.evidence.json_values import sha256_of
from statlib.evidence.results import GateResult
from statlib.evidence.verdicts import Verdict, verdict

STARTED = datetime(2026, 3, 9, 6, 0, tzinfo=UTC)
FAMILY = "ProjectScreening"
EVENTS = 20
THRESHOLDS = soak.SoakThresholds(
    duration_s=60,
    operations_min=EVENTS,
    reads_min=10,
    families=(FAMILY,),
    comparisons_per_family_min=3,
    fallback_rate_max=0.1,
    bytes_per_operation_max=500,
)

Row = dict[str, Any]


def at(seconds: float) -> str:
    return (STARTED + timedelta(seconds=seconds)).isoformat()


def operation(event: int, **changed: Any) -> Row:
    return {
        "event": event,
        "operation_id": f"screening:{event}",
        "namespace": "screening",
        "study": f"study-{event}",
        "arm": "transactional",
        "outcome": "saved",
        "reason": None,
        "attempts": 1,
        "latency_ms": 4.5,
        "resubmission": 0,
        "at": at(event),
        "expects_receipt": True,
        "applied": True,
        "noop": False,
    } | changed


def read(**changed: Any) -> Row:
    return {
        "family": FAMILY,
        "scopes": 1,
        "source": "materialised",
        "reason": None,
        "latency_ms": 1.1,
        "at": at(1),
    } | changed


def fallback() -> Row:
    return read(source="authoritative", reason="RowStale")


def parity(**changed: Any) -> Row:
    return {
        "family": FAMILY,
        "scopes_compared": 1,
        "exact": True,
        "compared": True,
        "differences": [],
        "reason": None,
        "at": at(5),
    } | changed


def receipt(event: int, **changed: Any) -> Row:
    return {
        "namespace": "screening",
        "operation_id": f"screening:{event}",
        "expected": 0,
        "before": 0,
        "after": 1,
        "digest": "d",
    } | changed


def sample(seconds: float, size_bytes: int, collection: str = "receipts") -> Row:
    return {
        "at": at(seconds),
        "collection": collection,
        "documents": 1,
        "size_bytes": size_bytes,
        "storage_bytes": 4096,
    }


@dataclass(frozen=True)
class Raw:
    """Every capture of a run in which all held: 20 events saved, 10 reads, 3 comparisons, 100 B an operation."""

    window: Row | None = field(
        default_factory=lambda: {
            "started_at": at(0),
            "ended_at": at(60),
            "monotonic_s": 60.0,
            "clock_offset_ms": 0,
        }
    )
    loaded: Row | None = field(
        default_factory=lambda: {
            "events_total": EVENTS,
            "events_distinct": EVENTS,
            "provenance": {"name": "invented"},
        }
    )
    backlog: Row | None = field(
        default_factory=lambda: {"rebuilds_unresolved": 0, "stale_families": [], "stale_scopes": 0}
    )
    refusals: Row | None = field(default_factory=lambda: {"capacity_refused": 0})
    operations: Sequence[Row] | None = field(default_factory=lambda: [operation(n) for n in range(EVENTS)])
    reads: Sequence[Row] | None = field(default_factory=lambda: [read()] * 9 + [fallback()])
    parity: Sequence[Row] | None = field(default_factory=lambda: [parity()] * 3)
    receipts: Sequence[Row] | None = field(default_factory=lambda: [receipt(n) for n in range(EVENTS)])
    storage: Sequence[Row] | None = field(
        default_factory=lambda: [sample(n - 0.5, 1000 + 100 * n) for n in (0, 5, 10, 15, 20)]
    )

    def without(self, name: str) -> Raw:
        return replace(self, **{name: None})

    def write(self, captures: Captures) -> None:
        for name in ("window", "loaded", "backlog", "refusals"):
            if (value := getattr(self, name)) is not None:
                captures.write(name, value)
        for name in ("operations", "reads", "parity", "receipts", "storage"):
            if (rows := getattr(self, name)) is not None:
                with captures.lines(name) as lines:
                    for row in rows:
                        lines.append(row)


CAPTURES = tuple(Raw.__dataclass_fields__)


def gates_of(raw: Raw, folder: Path, thresholds: soak.SoakThresholds = THRESHOLDS) -> dict[str, GateResult]:
    """Write ``raw`` into ``folder`` as a run does, and derive."""
    with Journal(folder / "journal.jsonl") as journal:
        raw.write(Captures(folder, journal))
        return {gate.key: gate for gate in derive_gates(CaptureReader(folder, journal.entries), thresholds)}


CELLS = (("purpose", "markdown", "What and why."), ("parameters", "code", "apply = True"), ("act", "code", "run.act()"))


def write_notebook(path: Path, cells: Sequence[tuple[str, str, str]] = CELLS) -> None:
    path.write_text(
        json.dumps(
            {
                "cells": [
                    {"id": cell, "cell_type": kind, "source": source, "metadata": {}}
                    | ({"outputs": [], "execution_count": 1} if kind == "code" else {})
                    for cell, kind, source in cells
                ],
                "metadata": {},
                "nbformat": 4,
                "nbformat_minor": 5,
            }
        ),
        encoding="utf-8",
    )


def write_report(path: Path, verdict: str, head: str) -> None:
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="{VERDICT_META}" content="{verdict}">'
        f'<meta name="{HEAD_META}" content="{head}"><title>run</title></head><body></body></html>',
        encoding="utf-8",
    )


@dataclass
class Story:
    """What happened in a run; each field is one thing that a test may tell otherwise."""

    raw: Raw = field(default_factory=Raw)
    apply: bool = True
    executed: tuple[str, ...] = ("parameters", "act")
    source_of: Callable[[str], str] = lambda source: source
    steps: tuple[tuple[str, str], ...] = (("hold the window", "done"),)
    between: Callable[[Journal], object] = lambda journal: None
    thresholds: soak.SoakThresholds | None = THRESHOLDS
    gates: bool = True
    verdict: Verdict | None = None


def leave_bundle(folder: Path, story: Story, *, key: Signs | None = None) -> Path:
    """Tell ``story`` through the real writers, and seal it."""
    parameters = {"apply": story.apply, "duration_s": 60, "large": 1e17}
    evidence = folder / "evidence"
    with Journal(evidence / "journal.jsonl") as journal:
        captures = Captures(evidence, journal)
        journal.append(
            EntryKind.RunStarted, runbook="soak_evidence", run_id="0123", apply=story.apply, parameters=parameters
        )
        for index, (cell, _, source) in enumerate(CELLS):
            if cell in story.executed:
                sha256 = sha256_of(story.source_of(source).encode())
                journal.append(EntryKind.CellExecuted, cell=cell, sha256=sha256, index=index)
        for step, outcome in story.steps:
            journal.append(EntryKind.StepStarted, step=step)
            journal.append(EntryKind.StepClosed, step=step, outcome=outcome)
        story.raw.write(captures)
        gates: tuple[GateResult, ...] = ()
        rehearsal = True
        if story.thresholds is not None:
            captures.write("thresholds", story.thresholds)
            reader = CaptureReader(evidence, journal.entries)
            rehearsal = is_rehearsal(reader, story.thresholds)
            gates = derive_gates(reader, story.thresholds) if story.gates else ()
        story.between(journal)
        ended = story.verdict or verdict(gates, rehearsal=rehearsal, applied=story.apply)
        head = close_run(journal, gates=gates, verdict=ended)
    write_notebook(folder / "notebook.ipynb")
    write_report(folder / "report.html", ended, head)
    seal(folder, parameters=parameters, environment={"python": "3.11"}, verdict=ended, journal_head=head, key=key)
    return folder
