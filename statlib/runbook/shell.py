"""The kernel's shell, where there is one: a run also works in a process without."""

from __future__ import annotations

import sys

from statlib.runbook.fragments import Fragment


def in_kernel() -> bool:
    """Whether this process is a notebook's kernel."""
    if "IPython" not in sys.modules:  # a kernel has it loaded; nobody else waits for it
        return False
    from IPython.core.getipython import get_ipython  # noqa: PLC0415 - see above

    return get_ipython() is not None


def show(fragment: Fragment) -> None:
    """Add ``fragment`` to the running cell's output; outside a kernel nothing is shown."""
    if in_kernel():
        from IPython.display import display  # noqa: PLC0415 - loaded in every kernel, and nowhere else

        display(fragment)  # type: ignore[no-untyped-call]
