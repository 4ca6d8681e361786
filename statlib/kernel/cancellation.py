"""Cancellation: asking a long operation to stop between two of its steps.

Whoever may stop an operation holds a ``Cancellation``; the operation itself only asks ``require_not_cancelled`` where
stopping leaves nothing half done. What it holds (leases, candidates) it gives back on the way out, as after any
refusal. A command that is already under way is never torn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

from statlib.kernel.refusals import Reason, Refusal, RefusalKind


class CancelReason(Reason):
    """Refusals of an operation that was told to stop."""

    Cancelled = (RefusalKind.CONTENTION, "It stopped between two steps and holds nothing: repeat it when it is wanted.")


class CancelCause(StrEnum):
    """Who told it to stop."""

    ASKED = "an operator asked for it"
    DISCONNECTED = "its client went away"
    STOPPING = "its process is stopping"


class Cancellation:
    """A request to stop that can be made once, from any thread."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self.cause: CancelCause | None = None

    @property
    def cancelled(self) -> bool:
        return self._set.is_set()

    def cancel(self, cause: CancelCause) -> None:
        """Ask to stop; the first cause stands."""
        self.cause = self.cause or cause
        self._set.set()

    def wait(self, seconds: float) -> bool:
        """Wait for a request to stop, at most so long; whether there was one."""
        return self._set.wait(seconds)

    def require_not_cancelled(self) -> None:
        """Refuses Cancelled."""
        if self.cancelled:
            raise Refusal(CancelReason.Cancelled, str(self.cause))


_current: ContextVar[Cancellation | None] = ContextVar("statlib_cancellation", default=None)


@contextmanager
def cancellable_by(cancellation: Cancellation) -> Iterator[None]:
    """Inside the block, ``require_not_cancelled`` asks this one. Applies to the thread or task that enters it."""
    before = _current.set(cancellation)
    try:
        yield
    finally:
        _current.reset(before)


def require_not_cancelled() -> None:
    """Refuses Cancelled if the operation under way was told to stop. Outside of one it does nothing."""
    if (current := _current.get()) is not None:
        current.require_not_cancelled()
