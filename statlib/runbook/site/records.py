"""One run as the pages know it, read from its sealed folder.

Only manifest and journal are read, and only held against the manifest's own hashes: that a folder is what it says is
for ``statlib evidence verify`` to tell. A folder that cannot be read is a record too, one that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict

from statlib.evidence.bundle import Bundle, RunEvidence
from statlib.evidence.checks.files import read_manifest
from statlib.evidence.entries import Entry, EntryKind
from statlib.evidence.journal import read_journal
from statlib.evidence.results import GateResult
from statlib.evidence.soak_captures import SEVEN_DAYS_S
from statlib.evidence.verdicts import Verdict
from statlib.kernel.refusals import Refusal
from statlib.runbook.archive import RunFolder
from statlib.runbook.look.verdicts import STOPPED, headline

WINDOW_GATE = "elapsed_window"
SHOWN_MAX = 2


class Outcome(StrEnum):
    """What the pages filter by."""

    PASSED = "passed"
    REHEARSAL = "rehearsal"
    DRY = "dry"
    FAILED = "failed"
    REFUSED = "refused"
    STOPPED = "stopped"


OUTCOMES = {
    Verdict.PASSED: Outcome.PASSED,
    Verdict.SOAK_PASSED: Outcome.PASSED,
    Verdict.REHEARSAL_PASSED: Outcome.REHEARSAL,
    Verdict.DRY_RUN_ONLY: Outcome.DRY,
    Verdict.FAILED: Outcome.FAILED,
    Verdict.REFUSED: Outcome.REFUSED,
    Verdict.INTERRUPTED: Outcome.STOPPED,
    Verdict.FAULT: Outcome.STOPPED,
}


class Measure(BaseModel):
    """One number of a run. ``limit``: its gate's threshold, None without one; ``over``: the gate failed."""

    model_config = ConfigDict(frozen=True)

    label: str
    value: float
    unit: str = ""
    limit: float | None = None
    over: bool = False


class RunRecord(BaseModel):
    """``verdict`` is None for a folder that cannot be read; ``words`` then says why. ``measures`` begin with those
    that the run is remembered by."""

    model_config = ConfigDict(frozen=True)

    runbook: str
    folder: str
    run_id: str
    started: AwareDatetime
    duration_s: float | None
    deployment: str
    verdict: Verdict | None
    words: str
    detail: str = ""
    signed: bool = False
    measures: tuple[Measure, ...] = ()

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES[self.verdict] if self.verdict is not None else Outcome.STOPPED

    @property
    def shown(self) -> tuple[Measure, ...]:
        return self.measures[:SHOWN_MAX]


def read_record(run: RunFolder) -> RunRecord:
    """Never raises for what is wrong with the folder."""
    bundle = Bundle(run.final)
    statement, findings = read_manifest(bundle)
    if statement is None or findings:
        return _unreadable(run, str(findings[0]) if findings else "manifest.json is missing")
    try:
        entries = read_journal(bundle.journal)
    except Refusal as refusal:
        return _unreadable(run, refusal.detail.replace(f"{run.final}/", ""))
    evidence = statement.predicate
    if not entries or entries[-1].hash != evidence.journal_head:
        return _unreadable(run, "the journal is not the one that was sealed")
    failed = sum(not gate.passed for gate in evidence.gates)
    words = headline(
        evidence.verdict,
        subject=_subject(evidence),
        failed=failed,
        gates=len(evidence.gates),
        cause=_cause(entries) if evidence.verdict in STOPPED else "",
    )
    said, _, detail = words.partition(": ")
    if evidence.verdict is Verdict.REHEARSAL_PASSED:
        detail = f"{len(evidence.gates)} of {len(evidence.gates)} gates"
    return RunRecord(
        runbook=run.runbook,
        folder=run.name,
        run_id=run.run_id,
        started=entries[0].at,
        duration_s=max(0.0, (entries[-1].at - entries[0].at).total_seconds()),
        deployment=str(entries[0].data.get("deployment", "")),
        verdict=evidence.verdict,
        words=said,
        detail=detail,
        signed=evidence.signed_by is not None and bundle.signature.is_file(),
        measures=tuple(_measures(evidence)),
    )


def _unreadable(run: RunFolder, why: str) -> RunRecord:
    return RunRecord(
        runbook=run.runbook,
        folder=run.name,
        run_id=run.run_id,
        started=run.started.replace(tzinfo=UTC) if run.started.tzinfo is None else run.started,
        duration_s=None,
        deployment="",
        verdict=None,
        words="Unreadable",
        detail=why,
    )


def _subject(evidence: RunEvidence) -> str:
    """What a failure is a failure of: a soak, a rehearsal of one, or nothing that has a name."""
    window = next((gate for gate in evidence.gates if gate.key == WINDOW_GATE), None)
    if window is None:
        return ""
    return "Rehearsal" if min(window.threshold, window.measured or 0) < SEVEN_DAYS_S else "Soak"


def _cause(entries: Sequence[Entry]) -> str:
    for entry in reversed(entries):
        if entry.kind is EntryKind.Refused:
            return str(entry.data["reason"])
        if entry.kind is EntryKind.Interrupted:
            return str(entry.data["by"])
        if entry.kind is EntryKind.Note and not entry.data.get("closing") and "clock_offset_ms" not in entry.data:
            return str(entry.data["text"]).partition(":")[0]
    return ""


def _measures(evidence: RunEvidence) -> Iterator[Measure]:
    """Gates that failed, then what the report shows large, then the other gates."""
    yield from (_of_gate(gate) for gate in evidence.gates if not gate.passed and gate.measured is not None)
    for figure in evidence.highlights:
        yield Measure(label=figure.label, value=figure.value, unit=figure.unit)
    yield from (_of_gate(gate) for gate in evidence.gates if gate.passed)


def _of_gate(gate: GateResult) -> Measure:
    return Measure(
        label=gate.title, value=gate.measured or 0.0, unit=gate.unit, limit=gate.threshold, over=not gate.passed
    )


def month_of(at: datetime) -> str:
    """``2026-03``, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m")
