"""When a soak's edits are made: in their order, when enough was handed out, and when the replay stands still."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from statlib.review.edits import SetThreshold
from statlib.runbook.soak.editing import STALLED_S, Editor
from statlib.runbook.soak.work import PlannedEdit


class Noting(Editor):
    """Notes what it would have made."""

    def __init__(self, *edits: PlannedEdit) -> None:
        host: Any = None
        rows: Any = None
        super().__init__(host, uuid4(), edits, rows)
        self.noted: list[PlannedEdit] = []

    def _make(self, edit: PlannedEdit) -> None:
        self.noted.append(edit)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Monotonic seconds as the editor reads them."""
    seconds = [100.0]
    monkeypatch.setattr("statlib.runbook.soak.editing.time.monotonic", lambda: seconds[0])
    return seconds


def edit(after: int, minimum: int) -> PlannedEdit:
    return PlannedEdit(after, SetThreshold(min_screenings=minimum, agreement_ratio=0.66))


def test_an_edit_is_made_once_enough_was_handed_out_and_in_its_order(now: list[float]) -> None:
    first, second = edit(5, 3), edit(9, 2)
    editor = Noting(first, second)
    assert [editor.make_due(n) for n in (0, 4, 5, 6, 9, 9)] == [False, False, True, False, True, False]
    assert editor.noted == [first, second]


def test_what_takes_an_edit_back_does_not_wait_for_a_replay_that_waits_for_it(now: list[float]) -> None:
    """A claim that the raised threshold keeps out is under way until the threshold is lowered again."""
    editor = Noting(edit(5, 3), edit(9, 2), edit(20, 3))
    assert editor.make_due(6)
    assert not editor.make_due(6)
    now[0] += STALLED_S / 2
    assert not editor.make_due(7), "it goes on"
    now[0] += STALLED_S - 0.01
    assert not editor.make_due(7)
    now[0] += 0.01
    assert editor.make_due(7)
    now[0] += 10 * STALLED_S
    assert not editor.make_due(7), "nothing waits for a new edit"
    assert editor.left == 1
