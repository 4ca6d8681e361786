"""Showing things in a notebook's output: at once, or in one place that is redrawn during a long wait.

Outside a kernel (a test, a script) nothing is shown.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

from statlib.runbook.fragments import Fragment


def in_kernel() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def show(fragment: Fragment) -> None:
    """Show it in the cell that is executing."""
    if in_kernel():
        _display(fragment)


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
        if self._place is None:
            self._place = _display(fragment, display_id=True)
        else:
            self._place.update(fragment)


def _display(fragment: Fragment, **options: Any) -> Any:
    from IPython.display import display  # noqa: PLC0415 - loaded in every kernel, and nowhere else

    shown: Any = display
    return shown(fragment, **options)
