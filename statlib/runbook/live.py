"""A place in a notebook's output that is redrawn: for long waits."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from IPython.display import DisplayHandle, display

from statlib.runbook.fragments import Fragment


class Live:
    """Shows one fragment at a time in one place; empties it at the end, so that a report keeps the result alone."""

    def __enter__(self) -> Self:
        self._place: DisplayHandle | None = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._place is not None:
            self._place.update({"text/plain": ""}, raw=True)

    def show(self, fragment: Fragment) -> None:
        if self._place is None:
            self._place = display(fragment, display_id=True)
        else:
            self._place.update(fragment)
