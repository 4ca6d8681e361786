"""What the fold's runbooks refuse before they ask the boundary for anything."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from statlib.kernel.refusals import Reason, Refusal
from statlib.runbook.books import build_pending_index, enable_fold
from statlib.runbook.parameters import RunbookParameters
from statlib.runbook.reasons import RunbookReason


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
