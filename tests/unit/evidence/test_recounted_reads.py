"""Reads of what saves outdate by design are not held against the fallback rate, and are told beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.results import GateResult
from tests.unit.evidence.soak_run import THRESHOLDS, Raw, Row, fallback, gates_of, read

APART = "reviewer page"


def fallback_gate(folder: Path, reads: list[Row], recounted: tuple[str, ...]) -> GateResult:
    thresholds = THRESHOLDS.model_copy(update={"recounted": recounted})
    return gates_of(replace(Raw(), reads=reads), folder, thresholds)["fallback_rate"]


@pytest.mark.parametrize(("recounted", "measured", "passed"), [((), 50.0, False), ((APART,), 0.0, True)])
def test_only_reads_that_are_named_are_left_out(
    tmp_path: Path, recounted: tuple[str, ...], measured: float, passed: bool
) -> None:
    gate = fallback_gate(tmp_path, [read()] * 5 + [{**fallback(), "family": APART}] * 5, recounted)
    assert (gate.measured, gate.passed) == (measured, passed)
    assert ("besides, 5 of 5 reads" in gate.note) == bool(recounted)


def test_a_run_that_reads_nothing_else_has_measured_nothing(tmp_path: Path) -> None:
    gate = fallback_gate(tmp_path, [{**read(), "family": APART}] * 5, (APART,))
    assert (gate.passed, gate.problem) == (False, EvidenceReason.NothingMeasured)
