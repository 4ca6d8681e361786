"""How a batch shrinks when it aborts, and what happens to the one document that goes on aborting it."""

from __future__ import annotations

from uuid import UUID

import pytest

from statlib.statistics.bounds import (
    FOLD_BATCH_DOCS_MAX,
    LIVELOCK_DISCARD_AFTER,
    LIVELOCK_SKIP_AFTER,
    LIVELOCK_SKIP_S,
)
from statlib.statistics.fold.livelock import Livelock

DOCUMENTS = [UUID(int=number) for number in range(FOLD_BATCH_DOCS_MAX)]
HOT, OTHER = DOCUMENTS[0], DOCUMENTS[1]


@pytest.mark.req("WORKER-19")
def test_a_batch_that_aborts_is_halved_down_to_one_document() -> None:
    livelock, sizes = Livelock(), []
    for _ in range(7):
        sizes.append(livelock.docs_max)
        livelock.aborted(DOCUMENTS[: livelock.docs_max], now=0.0)
    assert sizes == [32, 16, 8, 4, 2, 1, 1]


def test_a_small_batch_is_halved_by_what_it_took_and_not_by_what_it_might_have() -> None:
    livelock = Livelock()
    livelock.aborted(DOCUMENTS[:3], now=0.0)
    assert livelock.docs_max == 1


def test_batches_grow_again_once_they_commit() -> None:
    livelock = Livelock()
    for _ in range(5):
        livelock.aborted(DOCUMENTS[: livelock.docs_max], now=0.0)
    sizes = []
    for _ in range(7):
        sizes.append(livelock.docs_max)
        livelock.folded([OTHER])
    assert sizes == [1, 2, 4, 8, 16, 32, 32]


@pytest.mark.req("WORKER-20")
def test_a_document_that_aborts_alone_five_times_in_a_row_is_left_out_for_two_seconds() -> None:
    livelock = Livelock()
    for _ in range(LIVELOCK_SKIP_AFTER - 1):
        assert livelock.aborted([HOT], now=10.0) is None
    assert livelock.skipped(10.0) == frozenset()
    assert livelock.aborted([HOT], now=10.0) is None
    assert livelock.skipped(10.0) == {HOT}
    assert livelock.docs_max == FOLD_BATCH_DOCS_MAX  # the others need not suffer from it
    assert livelock.wait_s(10.5) == LIVELOCK_SKIP_S - 0.5
    assert livelock.skipped(10.0 + LIVELOCK_SKIP_S) == frozenset()
    assert livelock.wait_s(10.0 + LIVELOCK_SKIP_S) == 0.0


def test_a_commit_in_between_makes_it_start_counting_anew() -> None:
    livelock = Livelock()
    for _ in range(3):
        for _ in range(LIVELOCK_SKIP_AFTER - 1):
            livelock.aborted([HOT], now=0.0)
        livelock.folded([HOT])
    assert livelock.skipped(0.0) == frozenset()


def test_documents_are_counted_apart() -> None:
    livelock = Livelock()
    for _ in range(LIVELOCK_SKIP_AFTER - 1):
        livelock.aborted([HOT], now=0.0)
        livelock.aborted([OTHER], now=0.0)
    assert livelock.skipped(0.0) == frozenset()
    livelock.aborted([OTHER], now=0.0)
    assert livelock.skipped(0.0) == {OTHER}


@pytest.mark.req("WORKER-21")
def test_after_twenty_in_a_row_it_is_given_up_and_not_before() -> None:
    livelock, now, moments = Livelock(), 0.0, []
    for _ in range(LIVELOCK_DISCARD_AFTER - 1):
        assert livelock.aborted([HOT], now) is None
        moments.append(bool(livelock.skipped(now)))
        now += livelock.wait_s(now)
    assert moments.count(True) == 3
    assert livelock.aborted([HOT], now) == HOT
    livelock.folded([HOT])
    assert livelock.aborted([HOT], now) is None


def test_what_was_committed_is_left_out_no_longer() -> None:
    livelock = Livelock()
    for _ in range(LIVELOCK_SKIP_AFTER):
        livelock.aborted([HOT], now=0.0)
    livelock.folded([HOT])
    assert livelock.skipped(0.0) == frozenset()
