"""What a saver puts on record of a save that was refused."""

from __future__ import annotations

import pytest

from statlib.kernel.refusals import Refusal
from statlib.runbook.soak.savers import reason_with_causes
from statlib.statistics.reasons import SaveReason


@pytest.mark.parametrize(
    ("causes", "said"),
    [
        ([], "AttemptsExhausted"),
        (["StatisticsConflict"] * 3, "AttemptsExhausted (3 × StatisticsConflict)"),
        (["B", "A", "B"], "AttemptsExhausted (2 × B, 1 × A)"),
    ],
)
def test_a_refusal_names_each_cause_once_with_its_number(causes: list[str], said: str) -> None:
    refused = Refusal(SaveReason.AttemptsExhausted, "operation", state={"failedAttempts": causes})
    assert reason_with_causes(refused) == said
