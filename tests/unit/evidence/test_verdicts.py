"""The verdict follows from gates and from how the run ended; the worse cause wins."""

from __future__ import annotations

from itertools import product

import pytest

from statlib.evidence.results import Comparison, GateResult, duration
from statlib.evidence.verdicts import EXIT_CODES, Verdict, verdict


def gate(passed: bool) -> GateResult:
    return GateResult(
        key="k",
        title="K",
        threshold=0,
        threshold_text="0",
        comparison=Comparison.EXACTLY,
        measured=0 if passed else 1,
        unit="",
        passed=passed,
        source="",
        note="",
    )


@pytest.mark.parametrize(
    ("gates", "rehearsal", "applied", "due"),
    [
        ([True, True], False, True, Verdict.SOAK_PASSED),
        ([True, True], True, True, Verdict.REHEARSAL_PASSED),
        ([True, False], False, True, Verdict.FAILED),
        ([True, False], True, True, Verdict.FAILED),
        ([], False, True, Verdict.FAILED),
        ([], True, False, Verdict.DRY_RUN_ONLY),
        ([True], False, False, Verdict.DRY_RUN_ONLY),
    ],
)
def test_gates_decide_a_run_that_went_to_its_end(
    gates: list[bool], rehearsal: bool, applied: bool, due: Verdict
) -> None:
    assert verdict([gate(passed) for passed in gates], rehearsal=rehearsal, applied=applied) is due


@pytest.mark.parametrize(
    ("passed", "rehearsal", "due"),
    [(True, False, Verdict.PASSED), (True, True, Verdict.REHEARSAL_PASSED), (False, False, Verdict.FAILED)],
)
def test_an_ordinary_operation_is_never_called_a_soak(passed: bool, rehearsal: bool, due: Verdict) -> None:
    assert verdict([gate(passed)], rehearsal=rehearsal, applied=True, soak=False) is due


@pytest.mark.parametrize(("fault", "interrupted", "refused"), [c for c in product((False, True), repeat=3) if any(c)])
@pytest.mark.parametrize("applied", [False, True])
def test_the_worse_cause_wins_over_passed_gates(fault: bool, interrupted: bool, refused: bool, applied: bool) -> None:
    due = Verdict.FAULT if fault else Verdict.INTERRUPTED if interrupted else Verdict.REFUSED
    given = {"fault": fault, "interrupted": interrupted, "refused": refused}
    assert verdict([gate(True)], rehearsal=False, applied=applied, **given) is due


def test_exit_codes_are_the_documented_ones() -> None:
    assert {str(ended): ended.exit_code for ended in Verdict} == {
        "passed": 0,
        "soak passed": 0,
        "rehearsal passed": 0,
        "failed": 3,
        "dry run only": 0,
        "refused": 4,
        "interrupted": 5,
        "fault": 6,
    }
    assert set(EXIT_CODES) == set(Verdict)


@pytest.mark.parametrize(
    ("comparison", "below", "equal", "above"),
    [
        (Comparison.AT_MOST, True, True, False),
        (Comparison.AT_LEAST, False, True, True),
        (Comparison.EXACTLY, False, True, False),
    ],
)
def test_comparisons_include_the_boundary(comparison: Comparison, below: bool, equal: bool, above: bool) -> None:
    assert [comparison.holds(value, 2) for value in (1, 2, 3)] == [below, equal, above]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.5, "59.5 s"),
        (60, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (604_800, "7 d 00 h"),
        (90_061, "1 d 01 h"),
    ],
)
def test_durations_show_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
