"""One place in a notebook's output that is redrawn during a long wait. Outside a kernel nothing is shown."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from statlib.runbook.fragments import Fragment
from statlib.runbook.shell import in_kernel


class Live:
    """Shows one fragment at a time in one place; empties it at the end, so that a report keeps the result alone."""

    def __enter__(self) -> Self:
        self._place: Any = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._place is not None:
            self._place.update({"text/plain": ""}, raw=True)

    def show(self, fragment: Fragment) -> None:
        """Put ``fragment`` into the place."""
        if not in_kernel():
            return
        if self._place is not None:
            self._place.update(fragment)
            return
        from IPython.display import display  # noqa: PLC0415 - loaded in every kernel, and nowhere else

        shown: Any = display
        self._place = shown(fragment, display_id=True)
