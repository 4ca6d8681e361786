"""Turns: saves of one project in one process queue for their transaction instead of aborting one another.

Every transactional save of a project writes that project's control, so of two at once one must start over. Queueing
costs a wait; colliding costs a whole attempt. It is a courtesy and no guard: whoever has waited long enough goes
ahead without it, and saves of other processes never asked. Exactness rests on the transaction alone.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

PATIENCE_S = 1.0  # longer than a save takes; short beside its deadline, should the one ahead be stuck


class Turns:
    """One queue per project."""

    def __init__(self) -> None:
        self._queues: defaultdict[UUID, threading.Lock] = defaultdict(threading.Lock)
        self._finding = threading.Lock()

    @contextmanager
    def turn(self, project: UUID) -> Iterator[bool]:
        """Wait for this project's turn, at most ``PATIENCE_S`` seconds. Yields whether there was a wait."""
        with self._finding:
            queue = self._queues[project]
        at_once = queue.acquire(blocking=False)
        mine = at_once or queue.acquire(timeout=PATIENCE_S)
        try:
            yield not at_once
        finally:
            if mine:
                queue.release()
