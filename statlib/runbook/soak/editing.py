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

_DONE_ALREADY = (EditReason.AlreadyThere, EditReason.NotAMember)


class Editor:
    """Makes planned edits in their order. One that is refused or fails stays the next, and is made again."""

    def __init__(self, host: Host, project: UUID, edits: Sequence[PlannedEdit], rows: Rows) -> None:
        self._host = host
        self._project = project
        self._left = deque(edits)
        self._rows = rows
        self._lock = threading.Lock()
        self.made = 0

    @property
    def left(self) -> int:
        return len(self._left)

    def make_due(self, handed_out: int) -> bool:
        """Make the next edit if it is due. Whether one was made. Raises as the edit does."""
        with self._lock:
            if not self._left or self._left[0].after > handed_out:
                return False
            self._make(self._left[0])
            self._left.popleft()
            self.made += 1
            return True

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
