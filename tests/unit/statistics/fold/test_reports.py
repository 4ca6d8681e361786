"""What is counted of a batch, and that nothing is before its commit is known."""

from __future__ import annotations

from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from statlib.kernel import telemetry
from statlib.statistics.fold.reports import report
from statlib.statistics.fold.transaction import Batch, End
from statlib.statistics.moves import StaleCause
from statlib.statistics.pending import Poison
from tests.domain import LOANS, SHELVES
from tests.pending_books import FOLDING_LIBRARY

Told = list[tuple[str, float, dict[str, str]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    heard: Told = []

    def hear(name: str, amount: float = 1, *, unit: str = "1", **labels: Enum) -> None:
        heard.append((name, amount, {key: label.name for key, label in labels.items()}))

    monkeypatch.setattr(telemetry, "count", hear)
    monkeypatch.setattr(telemetry, "record", hear)
    return heard


def batch(end: End = End.FOLDED, **changed: Any) -> Batch:
    given: dict[str, Any] = {
        "documents": (UUID(int=1),),
        "lags_s": (0.5, 2.0),
        "discarded": {LOANS: StaleCause.FENCED, SHELVES: StaleCause.KEY_CAPACITY},
        "quarantined": (Poison.OVERFLOWED, Poison.UNKNOWN_KIND),
    }
    return Batch(end, **given | changed)


@pytest.mark.req("WORKER-59", "POISON-19", "WORKER-55")
def test_a_committed_batch_is_told_with_its_lag_what_it_discarded_and_what_it_set_aside(told: Told) -> None:
    report(batch(), FOLDING_LIBRARY)
    assert told == [
        ("fold.batches", 1, {}),
        ("fold.entries", 2, {}),
        ("fold.discarded", 1, {"family": LOANS, "reason": "FENCED"}),
        ("fold.discarded", 1, {"family": SHELVES, "reason": "KEY_CAPACITY"}),
        ("fold.quarantined", 1, {"reason": "OVERFLOWED"}),
        ("fold.quarantined", 1, {"reason": "UNKNOWN_KIND"}),
        ("fold.lag", 500.0, {}),
        ("fold.lag", 2000.0, {}),
    ]


@pytest.mark.req("POISON-17")
def test_reaching_the_hard_cap_is_told(told: Told) -> None:
    report(batch(incomplete=True), FOLDING_LIBRARY)
    assert ("fold.quarantine_capacity_exhausted", 1, {}) in told


@pytest.mark.req("WORKER-59")
@pytest.mark.parametrize("end", [end for end in End if end is not End.FOLDED])
def test_nothing_is_told_of_a_batch_that_changed_nothing(told: Told, end: End) -> None:
    report(batch(end), FOLDING_LIBRARY)
    assert told == []
