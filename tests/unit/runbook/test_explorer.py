"""How many lines the explorer spends on one question."""

from __future__ import annotations

from uuid import UUID

import pytest

from statlib.review.summaries import AnswerSummary
from statlib.runbook.explorer import ANSWERS_SHOWN, _told


@pytest.mark.parametrize(("different", "lines"), [(ANSWERS_SHOWN, ANSWERS_SHOWN), (ANSWERS_SHOWN + 1, ANSWERS_SHOWN)])
def test_rare_answers_are_told_together_and_none_is_lost(different: int, lines: int) -> None:
    values = {f"answer {number}": 100 - number for number in range(different)}
    told = _told(AnswerSummary(UUID(int=1), "Which?", sum(values.values()) + 3, 3, values))
    assert told[-1] == ("(free text)", 3)
    assert len(told) == lines + 1
    assert sum(count for _, count in told) == sum(values.values()) + 3
    assert [line for line, _ in told if "other" in line] == (["(2 other answers)"] if different > lines else [])
