"""The order of a replay: each study's work in its order, different studies at once, at a given rate."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

from statlib.review.loading.store import per_study_order
from statlib.runbook.soak.work import Work


class Schedule:
    """Hands out work to worker threads. Invariant: a study's next piece waits until the one before it is done.

    ``rate_per_s``: the n-th piece is due n/rate seconds after the start, whatever became of those before; 0: at once.
    """

    def __init__(self, work: Iterable[Work], rate_per_s: float) -> None:
        self._waiting: dict[UUID, deque[Work]] = {
            study: deque(ordered) for study, ordered in per_study_order(work).items()
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
        self._held = 0
        self._under_way = 0

    def take(self) -> Work | None:
        """The next piece, when it is due; None when all are done or the replay was stopped."""
        with self._changed:
            while not self._stopped and self._open:
                wait_s = self._due_in_s()
                if self._free and wait_s <= 0 and not self._held:
                    _, study = heapq.heappop(self._free)
                    self._handed_out += 1
                    self._under_way += 1
                    return self._waiting[study].popleft()
                self._changed.wait(max(wait_s, 0.001) if self._free and not self._held else None)
            return None

    def done(self, work: Work) -> None:
        """It is answered for: its study may go on."""
        with self._changed:
            self._open -= 1
            self._under_way -= 1
            rest = self._waiting[work.study_id]
            if rest:
                heapq.heappush(self._free, (rest[0].seq, work.study_id))
            self._changed.notify_all()

    @contextmanager
    def held(self, patience_s: float) -> Iterator[bool]:
        """Nothing is handed out in the block. Tells whether what was under way was answered for within the patience."""
        with self._changed:
            self._held += 1
            quiet = self._changed.wait_for(lambda: self._stopped or not self._under_way, patience_s)
        try:
            yield quiet
        finally:
            with self._changed:
                self._held -= 1
                self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def handed_out(self) -> int:
        return self._handed_out

    @property
    def remaining(self) -> int:
        return self._open

    def _due_in_s(self) -> float:
        if not self._rate_per_s:
            return 0.0
        return self._started + self._handed_out / self._rate_per_s - time.monotonic()
