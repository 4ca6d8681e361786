# ruff: noqa: E501 (prose of invented reports reads better unbroken)
"""Invented runs for the tests of the report and for looking at it; no number here was measured.

python -m tests.unit.runbook.report_samples FOLDER     writes one page for each verdict
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from statlib.evidence.entries import StepOutcome
from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.results import Comparison, GateResult
from statlib.evidence.verdicts import Verdict
from statlib.runbook.fragments import Figure, GateTable, StatusLine
from statlib.runbook.look import figures as f
from statlib.runbook.look import shapes
from statlib.runbook.look.outputs import CellOutput
from statlib.runbook.report import (
    BundleFile,
    DataKind,
    DataSource,
    Halt,
    Highlight,
    Integrity,
    NextStep,
    Report,
    ReportCell,
    StepEvent,
    TimelineStep,
    render_report,
)

START = datetime(2026, 3, 9, 5, 48, 2, tzinfo=UTC)
CLASSES = ("Included", "Excluded", "Conflict", "InProgress", "Unscreened")
FAMILIES = ("ProjectScreening", "MembershipScreening", "ReviewerScreening", "StageAnnotation")


def gate(
    key: str,
    title: str,
    limit: float,
    measured: float | None,
    unit: str = "",
    *,
    comparison: Comparison = Comparison.AT_MOST,
    note: str = "",
    source: str = "captures/operations.jsonl",
) -> GateResult:
    """A result that agrees with its own numbers."""
    return GateResult(
        key=key,
        title=title,
        threshold=limit,
        threshold_text=f"{comparison} {limit:g} {unit}",
        comparison=comparison,
        measured=measured,
        unit=unit,
        passed=measured is not None and comparison.holds(measured, limit),
        source=source,
        note=note,
        problem=EvidenceReason.NothingMeasured if measured is None else None,
    )


def gates(*, failing: bool) -> tuple[GateResult, ...]:
    least, exactly = Comparison.AT_LEAST, Comparison.EXACTLY
    return (
        gate(
            "elapsed_window", "Elapsed window", 60, 61.4, "s", comparison=least,
            note="2026-03-09 05:48:11 to 05:49:12 UTC, real clock", source="captures/window.json",
        ),
        gate(
            "volume", "Representative volume", 100, 128, "%", comparison=least,
            note="2,825 of 2,200 operations, 1,204 of 900 reads", source="captures/operations.jsonl, captures/reads.jsonl",
        ),
        gate("events", "Events never confirmed", 0, 0, comparison=exactly, note="2,825 events, 3,012 submissions"),
        gate("twice", "Operations applied twice", 0, 0, comparison=exactly, note="2,825 operations written, of which 187 repeated the standing decision"),
        gate(
            "receipts", "Receipts unaccounted for", 0, 0, comparison=exactly,
            note="2,825 expected, 2,825 found; 0 missing, 0 surplus, 0 out of order (each must have after > before ≥ 0)", source="captures/receipts.jsonl",
        ),
        gate(
            "mismatches", "Parity mismatches", 0, 2 if failing else 0, comparison=exactly,
            note="240 comparisons" + (": 2 ReviewerScreening" if failing else ""), source="captures/parity.jsonl",
        ),
        gate(
            "comparisons", "Comparisons, fewest of a family", 20, 58, comparison=least,
            note="fewest: StageAnnotation, 2 put off; 4 families", source="captures/parity.jsonl",
        ),
        gate(
            "fallbacks", "Reads that fell back to the source", 0.5, 0.31, "%",
            note="4 of 1,204 reads: 3 RowStale, 1 GuardNotFresh", source="captures/reads.jsonl",
        ),
        gate(
            "backlog", "Unresolved backlog at the end", 0, 0, comparison=exactly,
            note="0 rebuilds, 0 stale families, 0 stale scopes", source="captures/backlog.json",
        ),
        gate("capacity", "Refused for capacity", 0, 0, comparison=exactly, source="captures/refusals.json"),
        gate(
            "growth", "Storage growth, fastest collection", 1_200, 1_460.2 if failing else 1_012.4, "B/operation",
            note="pmProjectStatisticsReceipt: 988.1 (963.8 to 1,012.4); the upper 95 % bound counts",
            source="captures/storage.jsonl",
        ),
    )  # fmt: skip


def saves(count: int, seconds: float = 1.0) -> list[f.SavesInterval]:
    rng = random.Random(5)
    made = []
    for at in range(count):
        level = 46 + 9 * math.sin(at / count * 9) + rng.gauss(0, 3)
        level *= 0.35 if 0.62 < at / count < 0.68 else 1.0
        made.append(
            f.SavesInterval(
                START + timedelta(seconds=9 + at * seconds),
                seconds,
                max(0, round(level * seconds)),
                stale=rng.choice((0, 0, 0, 1, 1, 2)) + (4 if 0.62 < at / count < 0.66 else 0),
                exhausted=int(0.63 < at / count < 0.645),
            )
        )
    return made


def latency_intervals(count: int, seconds: float = 1.0) -> list[f.LatencyInterval]:
    rng = random.Random(6)
    made = []
    for at in range(count):
        busy = 2.3 if 0.62 < at / count < 0.68 else 1.0
        for outcome, base in (("confirmed", 9.0), ("stale", 21.0)):
            p50 = base * busy * rng.uniform(0.9, 1.15)
            made.append(
                f.LatencyInterval(
                    START + timedelta(seconds=9 + at * seconds),
                    outcome,
                    40,
                    p50,
                    p50 * 2.1,
                    p50 * rng.uniform(2.8, 3.7),
                )
            )
    return made


def parity(count: int, seconds: float, *, failing: bool) -> tuple[list[f.ParityPoint], list[f.ReadsInterval]]:
    rng = random.Random(7)
    points = [
        f.ParityPoint(
            START + timedelta(seconds=9 + (at + 0.5) * seconds),
            family,
            None if family == "StageAnnotation" and at in (40, 41)
            else not (failing and family == "ReviewerScreening" and at in (37, 38)),
        )
        for at in range(count)
        for family in FAMILIES
    ]  # fmt: skip
    reads = [
        f.ReadsInterval(
            START + timedelta(seconds=9 + at * seconds), seconds, rng.randint(14, 26), int(at in (37, 38, 39))
        )
        for at in range(count)
    ]
    return points, reads


def storage(count: int, *, failing: bool) -> dict[str, list[f.StoragePoint]]:
    rng = random.Random(8)
    slopes = {
        "pmProjectStatisticsReceipt": 1_420.0 if failing else 988.0,
        "pmProjectStatisticsDelta": 611.0,
        "pmStudy": 204.0,
        "pmProjectStatisticsRow": 3.0,
        "pmProjectStatisticsOutbox": 0.4,
        "pmProjectStatisticsControl": 0.0,
    }
    return {
        name: [
            f.StoragePoint(at * 2_825 / count, 40_000 + max(0.0, slope * at * 2_825 / count + rng.gauss(0, slope * 40)))
            for at in range(count)
        ]
        for name, slope in slopes.items()
    }


def screening(count: int, seconds: float = 1.0) -> list[f.ScreeningPoint]:
    made = []
    for at in range(count):
        done = at / max(1, count - 1)
        included, excluded, conflict = round(41 * done), round(1_104 * done**1.2), round(62 * done**0.8)
        progress = round(48 * math.sin(done * 3.1))
        rest = 1_255 - included - excluded - conflict - progress
        studies = dict(zip(CLASSES, (included, excluded, conflict, progress, rest), strict=True))
        made.append(f.ScreeningPoint(START + timedelta(seconds=9 + at * seconds), studies))
    return made


@cache
def sample_figures(count: int = 60, seconds: float = 1.0, *, failing: bool = False) -> tuple[Figure, ...]:
    points, reads = parity(count, seconds, failing=failing)
    over = f.Span(START + timedelta(seconds=9), count * seconds)
    return (
        f.saves_over_time(saves(count, seconds), source="operations.jsonl", over=over),
        f.save_latency_over_time(latency_intervals(count, seconds), source="operations.jsonl", over=over),
        f.parity_over_time(points, reads, source="parity.jsonl, reads.jsonl", over=over),
        f.storage_growth(storage(min(count, 400), failing=failing), source="storage.jsonl", limit=1_200),
        f.screening_progress(screening(count, seconds), source="progress.jsonl", over=over),
    )


@cache
def latency_summary() -> Figure:
    arms = {"source only": (2.9, 4.6, 6.8), "fold": (3.0, 4.8, 7.1), "transactional": (9.8, 23.0, 41.0)}
    return f.save_latency(
        [
            f.LatencySummary(f"{n} reviewer{'s' * (n > 1)}", arm, 2_000, *(v * n**0.4 for v in quantiles))
            for n in (1, 3, 5, 10)
            for arm, quantiles in arms.items()
        ],
        source="saves.json",
    )


def timeline(last: StepOutcome | None = StepOutcome.DONE) -> tuple[TimelineStep, ...]:
    done = StepOutcome.DONE
    return (
        TimelineStep("Preflight", START, 1.2, done, "14 checks: gates open, versions equal, clock within 12 ms"),
        TimelineStep("Dry run", START + timedelta(seconds=2), 0.4, done, "1 project, 1 family, 4 reviewers; nothing written"),
        TimelineStep("Load the project", START + timedelta(seconds=3), 5.8, done, "1,255 studies; 0 records unreadable"),
        TimelineStep(
            "Hold the window", START + timedelta(seconds=9), 61.4 if last else None, last,
            "2,825 operations and 1,204 reads confirmed",
            (
                StepEvent(START + timedelta(seconds=47), "Primary stepped down; saves waited 3.1 s"),
                StepEvent(START + timedelta(seconds=50), "New primary elected"),
            ),
        ),
    )  # fmt: skip


def closing() -> tuple[TimelineStep, ...]:
    done = StepOutcome.DONE
    return (
        TimelineStep(
            "Backfill what is stale", START + timedelta(seconds=71), 2.2, done, "3 scopes, an ordinary backfill"
        ),
        TimelineStep("Evaluate the gates", START + timedelta(seconds=74), 0.3, done, "from the captures"),
        TimelineStep("Seal the evidence", START + timedelta(seconds=75), 0.2, done, "31 journal lines, 9 captures"),
    )


def cells() -> tuple[ReportCell, ...]:
    verdict = GateTable(gates(failing=True)[5:8])
    line = StatusLine(shapes.PASSED, "Done", "preflight, 1.2 s")
    figure = f.saves_over_time(saves(60), source="operations.jsonl")
    return (
        ReportCell(1, "Parameters", 'project = "simulated"\nreviewers = 4\nduration_s = 60\napply = True', duration_s=0.02),
        ReportCell(
            2, "Preflight", 'preflight = step("preflight", soak.preflight)\npreflight',
            "## Preflight\n\nNothing is written before **every** check holds: see `docs/runbooks.md`.",
            (CellOutput(line.text(), line._repr_html_()),), 1.2,
        ),
        ReportCell(3, "Saves", "soak.saves.shown()", "", (CellOutput(figure.text(), figure._repr_html_()),), 0.6),
        ReportCell(4, "Gates", "gates", "", (CellOutput(verdict.text(), verdict._repr_html_()),), 0.3),
        ReportCell(5, "Seal", "run.seal()", "", (CellOutput("31 journal lines, 9 captures"),), executed=False),
    )  # fmt: skip


HEAD = "a90d36f7158e4bc2f07a81d3c64e9b5530c7e21fd8946ab7125fe83b0d67c94a"


def sample(verdict: Verdict, *, points: int = 60, seconds: float = 1.0) -> Report:
    """A whole run that ended in ``verdict``."""
    failing = verdict is Verdict.FAILED
    drawn = sample_figures(points, seconds, failing=failing) if verdict not in STOPPED else ()
    base = Report(
        runbook="soak_evidence",
        subject="Soak",
        run_id="9f27c1d4-6a5b-4f0e-9d51-0b6a8e3f7a21",
        deployment="review-staging-eu",
        deployment_note="1 project, 1,255 studies",
        started=START,
        ended=START + timedelta(seconds=76),
        principal="operator-07",
        capability="application-administrator",
        applied=True,
        verdict=verdict,
        lead=LEADS[verdict],
        took_note="window 1 min 01 s",
        rehearsal="The window was held for 61 s instead of seven days.",
        soak=True,
        next_steps=NEXT[verdict],
        gates=gates(failing=failing),
        figures=drawn,
        figure_of_gate={"mismatches": "parity", "growth": "storage", "fallbacks": "parity"},
        timeline=(*timeline(), *closing()),
        provenance=(
            DataSource("Screening decisions", DataKind.RECORDED, "Replayed in recorded order for each study", 2_825, "events"),
            DataSource("Reviewers’ pace", DataKind.SIMULATED, "Closed loop, think time log-normal, seed 7341", 4, "reviewers"),
        ),
        parameters=(("project", "simulated"), ("reviewers", 4), ("duration_s", 60), ("arm", "transactional"), ("apply", True)),
        environment=(
            ("statlib", "0.1.0, catalogue 1"),
            ("Python", "3.11.9, Linux x86_64"),
            ("Server", "MongoDB 6.0.14, 1 member"),
            ("Machine", "2 cores, 8 GiB"),
            ("Write concern", "majority, journalled"),
            ("Clock", "the server’s; offset 0 s"),
        ),
        integrity=Integrity(
            HEAD,
            "statlib evidence verify reports/soak_evidence/20260309T054802Z-9f27c1d4",
            "Unsigned: the chain and the hashes show that nothing was damaged, and cannot show that nobody rewrote "
            "everything consistently.",
            anchored_in="the audit record of run 9f27c1d4, 2026-03-09 05:49:18 UTC",
            files=(
                BundleFile("report.html", None),
                BundleFile("notebook.ipynb", 421_888, "a07c51e9" * 8),
                BundleFile("evidence/journal.jsonl", 23_120, "5e13c7d092af" * 5),
                BundleFile("evidence/captures/operations.jsonl", 1_204_881, "77aa01be" * 8),
            ),
        ),
        cells=cells(),
        version="0.1.0",
        sample_notice="Sample: every number is invented",
    )  # fmt: skip
    if verdict in (Verdict.PASSED, Verdict.SOAK_PASSED):
        return replace(
            base, rehearsal="", highlights=(Highlight("Saves confirmed", 2_825, "", "in 3,012 submissions"),)
        )
    if verdict is Verdict.REHEARSAL_PASSED:
        highlights = (
            Highlight("Saves confirmed", 2_825, "", "in 3,012 submissions"),
            Highlight("Comparisons, all exact", 240, "", "4 families"),
        )
        return replace(base, highlights=highlights)
    if verdict is Verdict.FAILED:
        return base
    stopped = replace(base, gates=(), figures=(), halt=HALTS.get(verdict), rehearsal="", cells=cells()[:2])
    if verdict is Verdict.DRY_RUN_ONLY:
        plan = (Highlight("Studies that would be replayed", 1_255), Highlight("Decisions", 2_825, "", "by 4 reviewers"))
        return replace(stopped, applied=False, timeline=timeline()[:2], highlights=plan)
    if verdict is Verdict.REFUSED:
        refused = TimelineStep(
            "Open the narrow gate", START + timedelta(seconds=9), 0.1, StepOutcome.REFUSED, "WriterGracePending"
        )
        return replace(stopped, timeline=(*timeline()[:3], refused))
    return replace(stopped, timeline=timeline(None), ended=None if verdict is Verdict.FAULT else base.ended)


LEADS = {
    Verdict.PASSED: "The gate is open, and every family is served and exact.",
    Verdict.SOAK_PASSED: "Every count stayed exact for seven days, every save is accounted for, and growth stayed within its bound.",
    Verdict.REHEARSAL_PASSED: "Every count stayed exact, every save is accounted for, and nothing fell behind.",
    Verdict.FAILED: "Two comparisons differed while the primary stepped down, and receipts grew faster than allowed. No save was lost or applied twice.",
    Verdict.DRY_RUN_ONLY: "Preflight holds and the plan is below. Nothing was written: the run was not told to apply.",
    Verdict.REFUSED: "The narrow gate was opened less than a minute ago, so the backfill was refused and nothing was changed.",
    Verdict.INTERRUPTED: "The run was stopped while it held its window. Leases were released and what had been captured is kept.",
    Verdict.FAULT: "The connection to the database was lost for good. What was confirmed until then is in the captures.",
}
HALTS = {
    Verdict.REFUSED: Halt(
        "WriterGracePending", "project 3f1c, opened 12 s ago; the grace is 60 s", "Run it again in 48 s.", "Open the narrow gate"
    ),
    Verdict.INTERRUPTED: Halt(
        "SIGTERM", "after 31 s of 60 s", "Run it again; it resumes from what is stored.", "Hold the window"
    ),
    Verdict.FAULT: Halt(
        "AutoReconnect", "no primary within 30 s; 4 saves were under way and are unresolved",
        "Run statlib doctor, then run it again.", "Hold the window",
    ),
}  # fmt: skip
NEXT = {
    Verdict.PASSED: (NextStep("Undo it, if need be.", "", "statlib runbook run narrow_gate_close"),),
    Verdict.SOAK_PASSED: (NextStep("Keep this folder.", "It is the evidence.", "statlib evidence verify ."),),
    Verdict.REHEARSAL_PASSED: (
        NextStep("Nothing to roll back.", "The project serves its statistics."),
        NextStep("Then soak for seven days.", "", "statlib runbook run soak_evidence -p duration_s=604800"),
    ),
    Verdict.FAILED: (
        NextStep("Leave the narrow gate open.", "Readers that met the difference fell back to the source."),
        NextStep("See what differed.", "Both differences and their scopes are in the capture.", "statlib why 3f1c"),
        NextStep("Repair the family", "and compare it again.", "statlib repair 3f1c --family ReviewerScreening"),
        NextStep("Then rehearse again.", "", "statlib runbook run soak_evidence"),
    ),
    Verdict.DRY_RUN_ONLY: (
        NextStep(
            "To act, say so twice.", "", "statlib runbook run soak_evidence -p apply=true -p confirm=review-staging-eu"
        ),
    ),
    Verdict.REFUSED: (
        NextStep("Wait for the grace to pass,", "then run the same command.", "statlib runbook run soak_evidence"),
    ),
    Verdict.INTERRUPTED: (
        NextStep("Run it again.", "Steps that are done are not repeated.", "statlib runbook run soak_evidence"),
    ),
    Verdict.FAULT: (NextStep("Find what is missing.", "", "statlib doctor"), NextStep("Then run it again.")),
}


STOPPED = frozenset({Verdict.DRY_RUN_ONLY, Verdict.REFUSED, Verdict.INTERRUPTED, Verdict.FAULT})


def write_samples(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for verdict in Verdict:
        page = render_report(sample(verdict))
        (folder / f"{verdict.value.replace(' ', '-')}.html").write_text(page, encoding="utf-8")
    week = replace(sample(Verdict.FAILED, points=2_000, seconds=302.4), ended=START + timedelta(days=7, minutes=43))
    more = (*week.figures, latency_summary())
    (folder / "week.html").write_text(render_report(replace(week, figures=more)), encoding="utf-8")


if __name__ == "__main__":
    write_samples(Path(sys.argv[1]))
