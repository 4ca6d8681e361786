"""The order of a replay: each study's events in recorded order, different studies at once, at a given rate."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Iterable
from uuid import UUID

from statlib.review.loading.review import DecisionEvent
from statlib.review.loading.store import per_study_order


class Schedule:
    """Hands out events to worker threads. Invariant: a study's next event waits until the one before it is done.

    ``rate_per_s``: the n-th event is due n/rate seconds after the start, whatever became of those before; 0: at once.
    """

    def __init__(self, events: Iterable[DecisionEvent], rate_per_s: float) -> None:
        self._waiting: dict[UUID, deque[DecisionEvent]] = {
            study: deque(ordered) for study, ordered in per_study_order(events).items()
        }
        self._free = [(ordered[0].seq, study) for study, ordered in self._waiting.items()]
        heapq.heapify(self._free)
        self._open = sum(len(ordered) for ordered in self._waiting.values())
        self.total = self._open
        self._handed_out = 0
        self._rate_per_s = rate_per_s
        self._started = time.monotonic()
        self._changed = threading.Condition()
        self._stopped = False

    def take(self) -> DecisionEvent | None:
        """The next event, when it is due; None when all are done or the replay was stopped."""
        with self._changed:
            while not self._stopped and self._open:
                wait_s = self._due_in_s()
                if self._free and wait_s <= 0:
                    _, study = heapq.heappop(self._free)
                    self._handed_out += 1
                    return self._waiting[study].popleft()
                self._changed.wait(max(wait_s, 0.001) if self._free else None)
            return None

    def done(self, event: DecisionEvent) -> None:
        """The event is answered for: its study may go on."""
        with self._changed:
            self._open -= 1
            rest = self._waiting[event.study_id]
            if rest:
                heapq.heappush(self._free, (rest[0].seq, event.study_id))
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def remaining(self) -> int:
        return self._open

    def _due_in_s(self) -> float:
        if not self._rate_per_s:
            return 0.0
        return self._started + self._handed_out / self._rate_per_s - time.monotonic()
