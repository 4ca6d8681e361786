"""A step is on record before and after, and never taken twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from statlib.evidence.entries import EntryKind, StepOutcome, open_steps
from statlib.evidence.journal import Journal
from statlib.kernel.refusals import Fault, Refusal
from statlib.runbook.fragments import Fragment, KeyValues
from statlib.runbook.reasons import RunbookReason
from statlib.runbook.steps import RESULT_BYTES_MAX, Step, Steps, closed_step


class World:
    """What the steps of these tests act upon; ``fails`` is raised by the next call."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.fails: BaseException | None = None


class Report(BaseModel):
    count: int
    label: str


@dataclass(frozen=True)
class Pair:
    first: int
    second: float

    def shown(self) -> Fragment:
        return KeyValues((("sum", self.first + self.second),))


def act(world: World, count: int) -> Report:
    world.calls.append(count)
    if world.fails is not None:
        raise world.fails
    return Report(count=count, label="acted")


def pair(world: World) -> Pair:
    world.calls.append(0)
    return Pair(2, 0.5)


def nothing(world: World) -> None:
    world.calls.append(0)


def unannotated(world: World):  # type: ignore[no-untyped-def]
    world.calls.append(0)


def large(world: World, size: int) -> str:
    world.calls.append(size)
    return "x" * size


class Bench:
    """One run folder; ``reopen`` is a kernel that begins again in it."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder / "journal.jsonl")
        self.journal.append(EntryKind.RunStarted, runbook="r", run_id="1", apply=True, parameters={})
        self.world = World()
        self.reopen()

    def reopen(self, *, apply: bool = True) -> None:
        self.steps: Steps[World] = Steps(self.journal, self.world, apply=apply)

    def take(
        self, name: str, function: Callable[..., Any], *args: Any, acting: bool = False, **inputs: Any
    ) -> Step[Any]:
        return self.steps.take(name, function, acting=acting, args=args, inputs=inputs)

    @property
    def course(self) -> list[tuple[str, str]]:
        return [
            (entry.kind.value, str(entry.data.get("outcome", entry.data.get("reason", ""))))
            for entry in self.journal.entries[1:]
        ]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_step_is_on_record_with_inputs_result_and_duration(bench: Bench) -> None:
    step = bench.take("act", act, count=3, acting=True)
    assert (step.outcome, step.value) == (StepOutcome.DONE, Report(count=3, label="acted"))
    started, closed = bench.journal.entries[1:]
    assert (started.data["inputs"], started.data["acting"]) == ({"count": 3}, True)
    assert closed.data["result"] == {"count": 3, "label": "acted"}
    assert closed.data["seconds"] == step.seconds >= 0


@pytest.mark.parametrize("function", [act, pair, nothing])
def test_a_step_that_is_done_is_read_back_and_not_taken_again(bench: Bench, function: Callable[..., Any]) -> None:
    inputs: dict[str, Any] = {"count": 3} if function is act else {}
    first = bench.take("one", function, **inputs)
    bench.reopen()
    again = bench.take("one", function, **inputs)
    assert len(bench.world.calls) == 1
    assert (again.value, again.recorded, again.seconds) == (first.value, True, first.seconds)
    assert "Done before" in again.text()
    assert "nothing was repeated" in again.html()


def test_a_step_that_was_started_and_never_closed_is_taken_again(bench: Bench) -> None:
    bench.journal.append(EntryKind.StepStarted, step="act", inputs={"count": 3})
    assert open_steps(bench.journal.entries) == ("act",)
    assert bench.take("act", act, count=3).outcome is StepOutcome.DONE
    assert bench.world.calls == [3]


def test_a_closed_step_with_other_inputs_is_refused(bench: Bench) -> None:
    bench.take("act", act, count=3)
    with pytest.raises(Refusal, match="with other inputs") as refused:
        bench.take("act", act, count=4)
    assert refused.value.reason is RunbookReason.RunDiffers
    assert bench.world.calls == [3]


def test_a_recorded_result_that_no_longer_fits_is_refused(bench: Bench) -> None:
    bench.take("one", nothing)
    with pytest.raises(Refusal, match="another version"):
        bench.take("one", pair)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Refusal(RunbookReason.RunBusy, "elsewhere"), "refused"),
        (ValueError("boom"), "failed"),
        (KeyboardInterrupt(), "failed"),
        (SystemExit(0), "failed"),
    ],
)
def test_what_a_step_raises_is_on_record_and_may_be_tried_again(
    bench: Bench, error: BaseException, outcome: str
) -> None:
    bench.world.fails = error
    with pytest.raises(type(error)):
        bench.take("act", act, count=1)
    refused = [("Refused", "RunBusy")] if outcome == "refused" else []
    assert bench.course == [("StepStarted", ""), *refused, ("StepClosed", outcome)]
    bench.world.fails = None
    assert bench.take("act", act, count=1).outcome is StepOutcome.DONE
    assert bench.world.calls == [1, 1]


def test_an_interrupted_step_says_so(bench: Bench) -> None:
    bench.world.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.take("act", act, count=1)
    assert bench.journal.entries[-1].data["why"] == "interrupted"


def test_in_a_dry_run_the_acting_step_and_all_that_follow_are_not_taken(bench: Bench) -> None:
    bench.reopen(apply=False)
    assert bench.take("plan", act, count=1).outcome is StepOutcome.DONE
    stopped = bench.take("act", act, count=1, acting=True)
    assert (stopped.outcome, stopped.value) == (StepOutcome.DRY_RUN, None)
    assert bench.take("verify", nothing).outcome is StepOutcome.SKIPPED
    assert bench.take("act_more", nothing, acting=True).outcome is StepOutcome.SKIPPED
    assert bench.world.calls == [1]
    assert stopped.text().startswith("Dry run only")


def test_a_dry_run_that_is_run_again_still_takes_nothing_after_its_stop(bench: Bench) -> None:
    for _ in range(2):
        bench.reopen(apply=False)
        assert bench.take("act", act, count=1, acting=True).outcome is StepOutcome.DRY_RUN
        assert bench.take("verify", nothing).outcome is StepOutcome.SKIPPED
    assert bench.world.calls == []
    assert open_steps(bench.journal.entries) == ()


def test_a_function_that_does_not_say_what_it_returns_is_a_fault_before_it_is_called(bench: Bench) -> None:
    with pytest.raises(Fault, match="does not say what it returns"):
        bench.take("one", unannotated)
    assert bench.world.calls == []
    assert bench.course == []


def test_an_input_that_json_cannot_carry_is_a_fault_before_the_step_begins(bench: Bench) -> None:
    with pytest.raises(Fault, match="input that JSON cannot carry"):
        bench.take("act", act, count=object())
    assert bench.course == []


@pytest.mark.parametrize(("size", "fits"), [(RESULT_BYTES_MAX - 2, True), (RESULT_BYTES_MAX - 1, False)])
def test_a_result_larger_than_the_bound_is_a_fault(bench: Bench, size: int, fits: bool) -> None:
    if fits:
        assert bench.take("one", large, size).outcome is StepOutcome.DONE
        return
    with pytest.raises(Fault, match=f"{RESULT_BYTES_MAX} is the bound"):
        bench.take("one", large, size)
    assert bench.course[-1] == ("StepClosed", "failed")


def test_a_result_that_can_show_itself_is_asked_to(bench: Bench) -> None:
    assert "sum" in bench.take("one", pair).text()
    assert "label" in bench.take("two", act, count=1).text()


def test_only_the_last_closing_of_a_step_counts(bench: Bench) -> None:
    bench.world.fails = ValueError("boom")
    with pytest.raises(ValueError, match="boom"):
        bench.take("act", act, count=1)
    assert closed_step(bench.journal.entries, "act") is None
    bench.world.fails = None
    bench.take("act", act, count=1)
    closed = closed_step(bench.journal.entries, "act")
    assert closed is not None
    assert closed.outcome is StepOutcome.DONE
    assert closed_step(bench.journal.entries, "other") is None
