"""Cancellation: asked once, noticed between steps, and only by the operation it is meant for."""

from __future__ import annotations

import threading

import pytest

from statlib.kernel.cancellation import (
    CancelCause,
    Cancellation,
    CancelReason,
    cancellable_by,
    require_not_cancelled,
)
from statlib.kernel.refusals import Refusal


def test_outside_of_an_operation_nothing_is_refused() -> None:
    require_not_cancelled()


@pytest.mark.parametrize("cause", list(CancelCause))
def test_an_operation_that_was_told_to_stop_is_refused_with_the_cause(cause: CancelCause) -> None:
    cancellation = Cancellation()
    with cancellable_by(cancellation):
        require_not_cancelled()
        cancellation.cancel(cause)
        with pytest.raises(Refusal, match=cause.value) as refused:
            require_not_cancelled()
    assert refused.value.reason is CancelReason.Cancelled
    require_not_cancelled()


def test_the_first_cause_stands() -> None:
    cancellation = Cancellation()
    cancellation.cancel(CancelCause.ASKED)
    cancellation.cancel(CancelCause.DISCONNECTED)
    assert cancellation.cause is CancelCause.ASKED
    assert cancellation.wait(0)


def test_another_thread_s_operation_goes_on() -> None:
    cancellation, went_on = Cancellation(), threading.Event()

    def other() -> None:
        require_not_cancelled()
        went_on.set()

    with cancellable_by(cancellation):
        cancellation.cancel(CancelCause.ASKED)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(timeout=20)
    assert went_on.is_set()
