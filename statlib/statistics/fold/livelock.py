"""How large the next batch may be, and which documents it leaves out: one hot document must not hold up the others.

A batch that aborts is halved, down to the one document whose savers are faster than the fold. That one is left out for
a moment, again and again, and given up in the end: its set is then discarded in a way that its savers cannot abort.
Held in memory, by one worker, and lost with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from statlib.statistics.bounds import (
    FOLD_BATCH_DOCS_MAX,
    LIVELOCK_DISCARD_AFTER,
    LIVELOCK_SKIP_AFTER,
    LIVELOCK_SKIP_S,
)


class Livelock:
    """Of one project. ``now`` is monotonic seconds throughout."""

    def __init__(self) -> None:
        self._docs_max = FOLD_BATCH_DOCS_MAX
        self._aborts: dict[UUID, int] = {}
        self._left_out_until: dict[UUID, float] = {}

    @property
    def docs_max(self) -> int:
        """How many documents the next batch may take."""
        return self._docs_max

    def skipped(self, now: float) -> frozenset[UUID]:
        """Documents that the next batch leaves out."""
        self._left_out_until = {document: until for document, until in self._left_out_until.items() if until > now}
        return frozenset(self._left_out_until)

    def wait_s(self, now: float) -> float:
        """How long until the first of them may be tried again; zero if there is none."""
        return max(min(self._left_out_until.values(), default=now) - now, 0.0)

    def folded(self, documents: Sequence[UUID]) -> None:
        for document in documents:
            self._aborts.pop(document, None)
            self._left_out_until.pop(document, None)
        self._docs_max = min(self._docs_max * 2, FOLD_BATCH_DOCS_MAX)

    def aborted(self, documents: Sequence[UUID], now: float) -> UUID | None:
        """A conflict over the documents of a batch. Returns the one that is to be given up, if any."""
        if len(documents) != 1:
            self._docs_max = max(min(self._docs_max, len(documents)) // 2, 1)
            return None
        document = documents[0]
        aborts = self._aborts[document] = self._aborts.get(document, 0) + 1
        if aborts >= LIVELOCK_DISCARD_AFTER:
            return document
        if aborts % LIVELOCK_SKIP_AFTER == 0:
            self._left_out_until[document] = now + LIVELOCK_SKIP_S
            self._docs_max = FOLD_BATCH_DOCS_MAX
        return None
