"""One process drives a run and one kernel takes its steps; either's death gives the run back."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from statlib.kernel.refusals import Refusal
from statlib.runbook import holding
from statlib.runbook.archive import RunFolder, new_run
from statlib.runbook.holding import Hold, hold_run, hold_steps
from statlib.runbook.reasons import RunbookReason

SPAWN = multiprocessing.get_context("spawn")
NEVER = SPAWN.Event()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return new_run(tmp_path, "enable")


def _keep(take: Callable[[RunFolder], Hold], folder: RunFolder, taken: Any, never: Any) -> None:
    with take(folder):
        taken.set()
        never.wait()


def held_elsewhere(take: Callable[[RunFolder], Hold], folder: RunFolder) -> SpawnProcess:
    taken = SPAWN.Event()
    other = SPAWN.Process(target=_keep, args=(take, folder, taken, NEVER))
    other.start()
    assert taken.wait(30)
    return other


@pytest.mark.parametrize("take", [hold_run, hold_steps])
def test_a_second_holder_is_refused_until_the_first_has_died(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, take: Callable[[RunFolder], Hold]
) -> None:
    monkeypatch.setattr(holding, "ORPHANED_KERNEL_S", 0.0)
    other = held_elsewhere(take, folder)
    for again in (hold_run, take):
        with pytest.raises(Refusal) as refused:
            again(folder)
        assert refused.value.reason is RunbookReason.RunBusy
    other.kill()
    other.join(30)
    assert other.exitcode is not None
    take(folder).release()


def test_a_run_is_driven_again_as_soon_as_the_kernel_that_was_left_behind_has_ended(folder: RunFolder) -> None:
    other = held_elsewhere(hold_steps, folder)
    other.kill()
    hold_run(folder).release()
    other.join(30)


def test_a_refused_drive_leaves_the_run_free(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "ORPHANED_KERNEL_S", 0.0)
    with hold_steps(folder), pytest.raises(Refusal):
        hold_run(folder)
    hold_run(folder).release()


def test_a_hold_outlives_the_publication_of_its_run_and_is_released_once(folder: RunFolder) -> None:
    with hold_run(folder) as hold:
        folder.publish()
        with pytest.raises(Refusal):
            Hold(folder.final)
    hold.release()
    Hold(folder.final).release()
