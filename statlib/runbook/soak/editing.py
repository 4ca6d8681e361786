"""The edits of a soak, each made when it is due and taken back later; what they outdate is counted anew at once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.review.edit_reasons import EditReason
from statlib.review.edits import SetThreshold, edit_project, set_threshold
from statlib.runbook.soak.savers import Rows
from statlib.runbook.soak.work import PlannedEdit
from statlib.statistics.hosts import Host

STALLED_S = 2.0  # nothing handed out for so long: the replay stands still
_DONE_ALREADY = (EditReason.AlreadyThere, EditReason.NotAMember)


class Editor:
    """Makes planned edits in their order. One that is refused or fails stays the next, and is made again."""

    def __init__(self, host: Host, project: UUID, edits: Sequence[PlannedEdit], rows: Rows) -> None:
        self._host = host
        self._project = project
        self._left = deque(edits)
        self._rows = rows
        self._lock = threading.Lock()
        self._seen = (0, time.monotonic())  # how much was handed out, and since when it has been so much
        self.made = 0

    @property
    def left(self) -> int:
        return len(self._left)

    def make_due(self, handed_out: int) -> bool:
        """Make the next edit if it is due. Whether one was made. Raises as the edit does.

        One that takes another back is also due when the replay stands still: it may be that which everybody waits for.
        """
        with self._lock:
            if not self._left or not self._is_due(handed_out):
                return False
            self._make(self._left[0])
            self._left.popleft()
            self.made += 1
            return True

    def _is_due(self, handed_out: int) -> bool:
        if handed_out != self._seen[0]:
            self._seen = (handed_out, time.monotonic())
        takes_back = self.made % 2 == 1
        stalled = time.monotonic() - self._seen[1] >= STALLED_S
        return self._left[0].after <= handed_out or (takes_back and stalled)

    def _make(self, edit: PlannedEdit) -> None:
        started = time.perf_counter()
        try:
            if isinstance(edit.change, SetThreshold):
                set_threshold(self._host, self._project, edit.change)
            else:
                edit_project(self._host, self._project, edit.change)
        except Refusal as refusal:
            if refusal.reason not in _DONE_ALREADY:  # an earlier try whose answer was lost made it
                raise
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        self._rows.append({"at": datetime.now(UTC).isoformat(), "edit": edit.name, "took_ms": took_ms})
