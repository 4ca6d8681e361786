"""An ordinary operation's expectations become gates, by their numbers alone, for the run and for its verifier alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from statlib.evidence.bundle import Bundle, seal
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.captures import Captures
from statlib.evidence.closing import close_run
from statlib.evidence.derivation import derive
from statlib.evidence.entries import CLOCK_OFFSET, EntryKind
from statlib.evidence.expectations import EXPECTATIONS
from statlib.evidence.journal import Journal
from statlib.evidence.json_values import sha256_of
from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.verdicts import Verdict, verdict
from statlib.evidence.verify import verify
from tests.unit.evidence.soak_run import CELLS, THRESHOLDS, Raw, write_notebook, write_report

Row = dict[str, Any]


def row(**changed: Any) -> Row:
    return {
        "key": "stale_families", "title": "Families left stale", "expected": 0, "measured": 0, "comparison": "=",
        "unit": "",
    } | changed  # fmt: skip


def leave_operation(
    folder: Path,
    *rows: Row,
    offset_ms: int = 0,
    as_captured: Callable[[Captures, Sequence[Row]], None] | None = None,
    claimed: Verdict | None = None,
) -> Path:
    """The sealed folder of an ordinary runbook that expected ``rows``."""
    parameters = {"apply": True}
    evidence = folder / "evidence"
    with Journal(evidence / "journal.jsonl") as journal:
        started: Row = {"runbook": "gate_open", "run_id": "0456", "apply": True, "parameters": parameters}
        journal.append(EntryKind.RunStarted, **started, **{CLOCK_OFFSET: offset_ms})
        for index, (cell, kind, source) in enumerate(CELLS):
            if kind == "code":
                journal.append(EntryKind.CellExecuted, cell=cell, sha256=sha256_of(source.encode()), index=index)
        (as_captured or capture)(Captures(evidence, journal), rows)
        derived = derive(CaptureReader(evidence, journal.entries), journal.entries)
        ended = claimed or verdict(derived.gates, rehearsal=derived.rehearsal, applied=True, soak=derived.soak)
        head = close_run(journal, gates=derived.gates, verdict=ended)
    write_notebook(folder / "notebook.ipynb")
    write_report(folder / "report.html", ended, head)
    seal(folder, parameters=parameters, environment={}, verdict=ended, journal_head=head)
    return folder


def capture(captures: Captures, rows: Sequence[Row]) -> None:
    for one in rows:
        with captures.lines(EXPECTATIONS) as lines:
            lines.append(one)


@pytest.mark.parametrize(
    ("rows", "offset_ms", "due"),
    [
        ([row()], 0, Verdict.PASSED),
        ([row(), row(key="rows", comparison="≥", expected=5, measured=7)], 0, Verdict.PASSED),
        ([row(), row(key="rows", comparison="≤", expected=5, measured=7)], 0, Verdict.FAILED),
        ([row(measured=1)], 0, Verdict.FAILED),
        ([row(measured=None)], 0, Verdict.FAILED),
        ([row(measured=1), row()], 0, Verdict.PASSED),
        ([row(), row(measured=1)], 0, Verdict.FAILED),
        ([row()], 60_000, Verdict.REHEARSAL_PASSED),
        ([row(measured=1)], 60_000, Verdict.FAILED),
    ],
    ids=[
        "held", "several", "one too many", "not met", "not measured", "met when taken again",
        "broken when taken again", "on an advanced clock", "not met on an advanced clock",
    ],
)  # fmt: skip
def test_expectations_decide_and_the_verifier_derives_the_same(
    rows: list[Row], offset_ms: int, due: Verdict, tmp_path: Path
) -> None:
    found = verify(leave_operation(tmp_path, *rows, offset_ms=offset_ms))
    assert found.ok, found.findings
    assert found.verdict is due


@pytest.mark.parametrize("claimed", [Verdict.SOAK_PASSED, Verdict.REHEARSAL_PASSED, Verdict.PASSED])
def test_a_claim_that_the_expectations_do_not_bear_out_is_refused(claimed: Verdict, tmp_path: Path) -> None:
    found = verify(leave_operation(tmp_path, row(measured=3), claimed=claimed))
    assert [str(finding) for finding in found.findings] == [
        f"evidence/journal.jsonl: gives the verdict {str(claimed)!r}; it is 'failed'"
    ]


@pytest.mark.parametrize("claimed", [Verdict.SOAK_PASSED, Verdict.REHEARSAL_PASSED])
def test_a_pass_on_a_real_clock_is_neither_a_soak_nor_a_rehearsal(claimed: Verdict, tmp_path: Path) -> None:
    assert "it is 'passed'" in str(verify(leave_operation(tmp_path, row(), claimed=claimed)).findings)


def test_a_row_cannot_say_of_itself_that_it_passed(tmp_path: Path) -> None:
    found = verify(leave_operation(tmp_path, row(measured=1, passed=True)))
    assert found.verdict is Verdict.FAILED
    (gate,) = json.loads(Bundle(tmp_path).manifest.read_text())["predicate"]["gates"]
    assert gate["problem"] == EvidenceReason.CaptureMalformed.name


def test_a_capture_of_nothing_is_no_pass(tmp_path: Path) -> None:
    def nothing(captures: Captures, _: Sequence[Row]) -> None:
        captures.lines(EXPECTATIONS).close()

    found = verify(leave_operation(tmp_path, as_captured=nothing))
    assert found.ok
    assert found.verdict is Verdict.FAILED


def test_a_soak_that_also_expects_is_judged_by_both(tmp_path: Path) -> None:
    def soak(captures: Captures, rows: Sequence[Row]) -> None:
        Raw().write(captures)
        captures.write("thresholds", THRESHOLDS)
        capture(captures, rows)

    found = verify(leave_operation(tmp_path / "held", row(), as_captured=soak))
    assert (found.ok, found.verdict) == (True, Verdict.REHEARSAL_PASSED)
    found = verify(leave_operation(tmp_path / "failed", row(measured=1), as_captured=soak))
    assert (found.ok, found.verdict) == (True, Verdict.FAILED)
