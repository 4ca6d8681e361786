"""What a run ended as is decided from its journal and its cells, and the first cause that applies wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.captures import Captures
from statlib.evidence.entries import EntryKind
from statlib.evidence.journal import Journal
from statlib.evidence.soak_captures import SoakThresholds
from statlib.evidence.verdicts import Verdict
from statlib.runbook.conclusion import Conclusion, Ending, conclude

START, CLOSE = EntryKind.StepStarted, EntryKind.StepClosed


class Course:
    """A journal written by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Journal(folder / "journal.jsonl")
        self.journal.append(EntryKind.RunStarted, runbook="r", run_id="1", apply=True, parameters={})

    def step(self, name: str, outcome: str | None = "done", why: str = "") -> None:
        self.journal.append(START, step=name, inputs={})
        if outcome == "refused":
            self.journal.append(EntryKind.Refused, step=name, reason="Full", detail="no room", remedy="Make room.")
        if outcome is not None:
            self.journal.append(CLOSE, step=name, outcome=outcome, seconds=0.1, why=why)

    def close(self) -> None:
        self.journal.append(EntryKind.Note, text="closed", closing=True)

    def ends(self, *, applied: bool = True, **ending: Any) -> Conclusion:
        entries = self.journal.entries
        return conclude(entries, CaptureReader(self.folder, entries), Ending(**ending), applied=applied)


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return Course(tmp_path)


@pytest.fixture
def whole(course: Course) -> Course:
    course.step("act")
    course.close()
    return course


def test_a_whole_run_that_was_not_told_to_act_is_a_dry_run(whole: Course) -> None:
    assert whole.ends(applied=False) == Conclusion(Verdict.DRY_RUN_ONLY)


def test_a_run_that_acted_and_left_no_thresholds_has_failed(whole: Course) -> None:
    assert whole.ends() == Conclusion(Verdict.FAILED)


def test_gates_are_derived_from_captures_and_one_without_evidence_fails(whole: Course) -> None:
    thresholds = SoakThresholds(
        duration_s=1, operations_min=1, reads_min=1, families=("F",), comparisons_per_family_min=1,
        fallback_rate_max=0, bytes_per_operation_max=1,
    )  # fmt: skip
    Captures(whole.folder, whole.journal).write("thresholds", thresholds)
    ended = whole.ends()
    assert ended.verdict is Verdict.FAILED
    assert ended.rehearsal
    assert ended.gates
    assert not any(gate.passed for gate in ended.gates)


@pytest.mark.parametrize(
    ("ending", "verdict", "cause"),
    [
        ({"stopped_by": "SIGTERM"}, Verdict.INTERRUPTED, "SIGTERM"),
        ({"kernel_died": True, "cell": 3}, Verdict.INTERRUPTED, "the kernel died"),
        ({"error_name": "KeyError", "cell": 3}, Verdict.FAULT, "KeyError"),
        ({"error_name": "Refusal", "error_text": "Full: no room"}, Verdict.REFUSED, "Full"),
        ({"error_name": "SystemExit", "cell": 3}, Verdict.INTERRUPTED, "SystemExit in code cell 3"),
        ({"error_name": "KeyboardInterrupt"}, Verdict.INTERRUPTED, "KeyboardInterrupt"),
        ({"unexecuted": 2}, Verdict.INTERRUPTED, "2 cells were not executed"),
        ({"unexecuted": 1}, Verdict.INTERRUPTED, "1 cell was not executed"),
        ({"fault": "no kernel"}, Verdict.FAULT, "the notebook could not be executed"),
        ({"stopped_by": "SIGTERM", "error_name": "KeyError"}, Verdict.INTERRUPTED, "SIGTERM"),
        ({"kernel_died": True, "unexecuted": 2, "fault": "?"}, Verdict.INTERRUPTED, "the kernel died"),
        ({"error_name": "KeyError", "unexecuted": 2}, Verdict.FAULT, "KeyError"),
    ],
)
@pytest.mark.parametrize("applied", [True, False])
def test_how_the_cells_ended_comes_before_any_gate_and_any_dry_run(
    whole: Course, ending: dict[str, Any], verdict: Verdict, cause: str, applied: bool
) -> None:
    ended = whole.ends(applied=applied, **ending)
    assert ended.verdict is verdict
    assert ended.halted is not None
    assert ended.halted.cause == cause
    assert ended.halted.remedy
    assert ended.gates == ()


@pytest.mark.parametrize(
    ("outcome", "why", "verdict", "cause"),
    [
        ("refused", "Full: no room", Verdict.REFUSED, "Full"),
        ("failed", "KeyError", Verdict.FAULT, "KeyError"),
        ("failed", "interrupted", Verdict.INTERRUPTED, "by hand"),
    ],
)
def test_a_step_that_did_not_succeed_decides_even_if_every_cell_went_on(
    course: Course, outcome: str, why: str, verdict: Verdict, cause: str
) -> None:
    course.step("act", outcome, why)
    course.close()
    halted = course.ends().halted
    assert halted is not None
    assert (halted.verdict, halted.cause, halted.at_step) == (verdict, cause, "act")


def test_a_step_that_succeeded_when_it_was_tried_again_is_no_halt(course: Course) -> None:
    course.step("act", "refused", "Full: no room")
    course.step("act")
    course.close()
    assert course.ends().halted is None


def test_a_step_left_open_is_named_whatever_ended_the_run(course: Course) -> None:
    course.step("act", None)
    for ending in ({"kernel_died": True}, {"stopped_by": "SIGINT"}, {}):
        halted = course.ends(**ending).halted
        assert halted is not None
        assert (halted.verdict, halted.at_step) == (Verdict.INTERRUPTED, "act")


def test_a_run_that_its_notebook_never_closed_is_incomplete(course: Course) -> None:
    course.step("act")
    halted = course.ends().halted
    assert halted is not None
    assert (halted.verdict, halted.cause) == (Verdict.INTERRUPTED, "the run was not closed")
