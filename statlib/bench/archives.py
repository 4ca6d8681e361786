"""An archive of many small, sealed runs, for measuring what is kept beside it and for looking at its pages.

The runs are invented, by a seed, and each verifies: journal, captures, gates, manifest. Files are written without
being forced to disk, as nothing is lost with them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from statlib import __version__
from statlib.evidence.bundle import (
    HEAD_META,
    VERDICT_META,
    Bundle,
    Digest,
    KeyFigure,
    RunEvidence,
    Statement,
    Subject,
    digest_line,
)
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.derivation import derive
from statlib.evidence.entries import CHAIN_START, Entry, EntryKind, StepOutcome, compose
from statlib.evidence.expectations import EXPECTATIONS
from statlib.evidence.json_values import encode, sha256_of, sha256_of_file
from statlib.evidence.results import GateResult
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verdicts import verdict as decided
from statlib.runbook.archive import RunFolder

NEWEST = datetime(2026, 3, 16, 7, 5, tzinfo=UTC)
APART = timedelta(minutes=57)
_CELL = "run.act()"


@dataclass(frozen=True, slots=True)
class Kind:
    """A runbook that the archive has runs of: what it measures, in what, against which limit, and around what value."""

    runbook: str
    title: str
    unit: str
    comparison: str
    limit: float
    middle: float
    spread: float
    seconds: float
    highlight: str
    highlight_unit: str


KINDS = (
    Kind("drift_check", "Scopes that drifted", "", "=", 0, 0, 0, 252, "Time a scope", "ms"),
    Kind("stale_repair", "Scopes left stale", "", "=", 0, 0, 0, 140, "Scopes repaired", ""),
    Kind("backfill_family", "Slowest publication", "s", "≤", 30, 12, 6, 480, "Scopes published", ""),
    Kind("write_bench", "Save p95 over source-only", "×", "≤", 1.15, 1.08, 0.04, 1_120, "Commands a save", ""),
    Kind("receipt_retirement", "Receipts retired", "", "≥", 1, 48_000, 9_000, 560, "Space freed", "MiB"),
    Kind("narrow_gate_open", "Families not served", "", "=", 0, 0, 0, 75, "Families opened", ""),
    Kind("narrow_gate_close", "Readers still served", "", "=", 0, 0, 0, 38, "Projects closed", ""),
    Kind("restore_drill", "Leases left behind", "", "=", 0, 0, 0, 3_300, "Time to first exact read", "min"),
)
DEPLOYMENTS = ("review-prod-eu", "review-prod-us", "review-staging-eu", "embedded")


def leave_runs(archive: Path, count: int, *, newest: datetime = NEWEST, seed: int = 7) -> Iterator[RunFolder]:
    """Write ``count`` runs, newest last; the same seed and count give the same runs."""
    chance = random.Random(seed)  # noqa: S311 - invents numbers, keeps no secret
    for number in range(count):
        kind = chance.choices(KINDS, weights=(8, 4, 3, 2, 2, 1, 1, 1))[0]
        started = newest - APART * (count - 1 - number)
        run_id = f"{chance.getrandbits(48):012x}"
        yield leave_run(RunFolder(archive, kind.runbook, started.replace(microsecond=0), run_id), kind, chance)


def leave_run(run: RunFolder, kind: Kind, chance: random.Random) -> RunFolder:
    """Write one sealed run of ``kind``."""
    ended = chance.choices(
        (Verdict.PASSED, Verdict.FAILED, Verdict.DRY_RUN_ONLY, Verdict.REFUSED, Verdict.INTERRUPTED),
        weights=(82, 6, 5, 4, 3),
    )[0]
    measured = max(0.0, chance.gauss(kind.middle, kind.spread)) if kind.spread else kind.middle
    if ended is Verdict.FAILED:
        measured = 0.0 if kind.comparison == "≥" else kind.limit * 1.2 + 1
    elif ended is Verdict.PASSED:
        measured = max(measured, kind.limit) if kind.comparison == "≥" else min(measured, kind.limit)
    row = {
        "key": "measured", "title": kind.title, "expected": kind.limit, "measured": round(measured, 2),
        "comparison": kind.comparison, "unit": kind.unit,
    }  # fmt: skip
    took = kind.seconds * chance.uniform(0.7, 1.4)
    highlight = KeyFigure(label=kind.highlight, value=round(chance.uniform(2, 60), 1), unit=kind.highlight_unit)
    _Writing(run, ended, took, [row], highlight, chance.choice(DEPLOYMENTS)).write()
    return run


class _Writing:
    """One run being written."""

    def __init__(  # noqa: PLR0917 - the parts of a run
        self,
        run: RunFolder,
        ended: Verdict,
        took_s: float,
        rows: Sequence[Mapping[str, Any]],
        highlight: KeyFigure,
        deployment: str,
    ) -> None:
        self._run, self._ended, self._took_s, self._rows = run, ended, took_s, rows
        self._highlight, self._deployment = highlight, deployment
        self._parameters = {"apply": ended is not Verdict.DRY_RUN_ONLY, "confirm": ""}
        self._entries: list[Entry] = []
        self._lines: list[bytes] = []

    def write(self) -> None:
        bundle = Bundle(self._run.final)
        bundle.captures.mkdir(parents=True)
        self._say(
            0, EntryKind.RunStarted, runbook=self._run.runbook, run_id=self._run.run_id,
            apply=self._parameters["apply"], parameters=self._parameters, deployment=self._deployment,
            principal="operator", clock_offset_ms=0,
        )  # fmt: skip
        self._say(0.1, EntryKind.CellExecuted, cell="act", sha256=sha256_of(_CELL.encode()), index=0)
        self._say(0.2, EntryKind.StepStarted, step="act")
        self._act(bundle)
        gates = self._gates(bundle)
        for gate in gates:
            self._say(self._took_s, EntryKind.GateDerived, **gate.model_dump(mode="json"))
        self._say(self._took_s, EntryKind.RunClosed, verdict=self._ended.value)
        bundle.journal.write_bytes(b"".join(self._lines))
        self._files(bundle)
        self._seal(bundle, gates)

    def _say(self, after_s: float, kind: EntryKind, /, **data: Any) -> None:
        previous = self._entries[-1].hash if self._entries else CHAIN_START
        at = self._run.started + timedelta(seconds=after_s)
        entry, line = compose(kind, data, at=at, seq=len(self._entries) + 1, previous=previous)
        self._entries.append(entry)
        self._lines.append(line)

    def _act(self, bundle: Bundle) -> None:
        outcome, why = StepOutcome.DONE, ""
        match self._ended:
            case Verdict.DRY_RUN_ONLY:
                outcome = StepOutcome.DRY_RUN
            case Verdict.REFUSED:
                outcome = StepOutcome.REFUSED
                self._say(1, EntryKind.Refused, reason="WriterGracePending", step="act", detail="", remedy="")
            case Verdict.INTERRUPTED:
                outcome, why = StepOutcome.FAILED, "interrupted"
            case _:
                content = b"".join(encode(row) + b"\n" for row in self._rows)
                (bundle.captures / f"{EXPECTATIONS}.jsonl").write_bytes(content)
                self._say(
                    self._took_s, EntryKind.Capture, name=EXPECTATIONS, file=f"captures/{EXPECTATIONS}.jsonl",
                    sha256=sha256_of(content), size_bytes=len(content), rows=len(self._rows), complete=True,
                )  # fmt: skip
        self._say(self._took_s, EntryKind.StepClosed, step="act", outcome=outcome.value, seconds=self._took_s, why=why)
        if self._ended is Verdict.INTERRUPTED:
            self._say(self._took_s, EntryKind.Interrupted, by="SIGTERM", detail="")

    def _gates(self, bundle: Bundle) -> tuple[GateResult, ...]:
        if self._ended not in (Verdict.PASSED, Verdict.FAILED):
            return ()
        derived = derive(CaptureReader(bundle.evidence, self._entries), self._entries)
        self._ended = decided(derived.gates, rehearsal=derived.rehearsal, applied=True, soak=derived.soak)
        return derived.gates

    def _files(self, bundle: Bundle) -> None:
        cell = {"id": "act", "cell_type": "code", "source": _CELL, "metadata": {}, "outputs": [], "execution_count": 1}
        notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        bundle.notebook.write_text(json.dumps(notebook), encoding="utf-8")
        bundle.report.write_text(
            f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta name="{VERDICT_META}" content="{self._ended.value}">'
            f'<meta name="{HEAD_META}" content="{self._entries[-1].hash}">'
            f"<title>{self._run.runbook}</title></head><body><h1>{self._ended.value}</h1></body></html>",
            encoding="utf-8",
        )

    def _seal(self, bundle: Bundle, gates: tuple[GateResult, ...]) -> None:
        subjects = [
            Subject(name=bundle.name_of(path), digest=Digest(sha256=sha256_of_file(path))) for path in bundle.files()
        ]
        statement = Statement(
            subject=tuple(sorted(subjects, key=lambda subject: subject.name)),
            predicate=RunEvidence(
                runbook=self._run.runbook,
                run_id=self._run.run_id,
                verdict=self._ended,
                journal_head=self._entries[-1].hash,
                statlib_version=__version__,
                parameters=dict(self._parameters),
                environment={"statlib": __version__},
                gates=gates,
                highlights=(self._highlight,) if gates else (),
            ),
        )
        content = encode(statement.model_dump(mode="json", by_alias=True))
        bundle.manifest.write_bytes(content)
        bundle.manifest_digest.write_bytes(digest_line(content))
