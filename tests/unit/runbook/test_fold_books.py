"""What the fold's runbooks refuse before they ask the boundary for anything."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from statlib.kernel.refusals import Reason, Refusal
from statlib.runbook import fold
from statlib.runbook.books import build_pending_index, enable_fold
from statlib.runbook.parameters import RunbookParameters
from statlib.runbook.reasons import RunbookReason
from statlib.statistics.documents import FoldMode
from statlib.statistics.reasons import OperateReason


def run_of(parameters: RunbookParameters) -> Any:
    """A run that has no client: whoever asks the boundary for anything fails."""
    return SimpleNamespace(parameters=parameters)


@pytest.mark.req("MODE-04", "ENTRY-63")
@pytest.mark.parametrize(
    ("act", "parameters", "reason"),
    [
        (
            enable_fold.enable,
            enable_fold.EnableParameters(project=uuid4(), apply=True),
            RunbookReason.RolloutUnconfirmed,
        ),
        *(
            (
                build_pending_index.build,
                build_pending_index.BuildParameters(apply=True, quiet_hour=said),
                RunbookReason.QuietHourUnconfirmed,
            )
            for said in ("", "  ")
        ),
    ],
)
def test_what_only_an_operator_can_know_must_be_said(
    act: Callable[[Any], object], parameters: RunbookParameters, reason: Reason
) -> None:
    with pytest.raises(Refusal) as caught:
        act(run_of(parameters))
    assert caught.value.reason is reason


def standings(*seen: tuple[FoldMode, bool, int]) -> Callable[[Any], Any]:
    """What is seen look by look: fold mode, whether a worker is live, and how much is pending."""
    found = iter(seen)

    def look(_: Any) -> Any:
        mode, live, pending = next(found)
        return SimpleNamespace(fold=SimpleNamespace(fold_mode=mode, worker_live=live), pending=pending)

    return look


def test_the_end_of_fold_mode_is_waited_for_while_a_worker_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "POLL_S", 0)
    seen = [(FoldMode.DISABLING, True, 2), (FoldMode.DISABLING, False, 0), (FoldMode.DISABLED, True, 0)]
    monkeypatch.setattr(fold, "fold_standing", standings(*seen))
    assert fold.wait_until_disabled(run_of(RunbookParameters())).fold.fold_mode is FoldMode.DISABLED


def test_nobody_who_could_end_fold_mode_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "POLL_S", 0)
    monkeypatch.setattr(fold, "SILENT_MAX_S", -1)
    monkeypatch.setattr(fold, "fold_standing", standings((FoldMode.DISABLING, False, 1)))
    with pytest.raises(Refusal) as refused:
        fold.wait_until_disabled(run_of(RunbookParameters()))
    assert refused.value.reason is OperateReason.FoldFleetUnsupported
