"""How a notebook shows a refusal: its reason and remedy, without a traceback through code that did as it should."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from statlib.kernel.refusals import Refusal


def show_refusals_briefly() -> None:
    """From now on, in this kernel. The cell still counts as one that raised. Outside a kernel: nothing."""
    if "IPython" not in sys.modules:  # a kernel has it loaded; nobody else waits for it
        return
    from IPython.core.getipython import get_ipython  # noqa: PLC0415 - see above

    if (shell := get_ipython()) is not None:
        shell.set_custom_exc((Refusal,), _show)  # type: ignore[no-untyped-call]


def _show(
    shell: Any, kind: type[BaseException], error: BaseException, trace: TracebackType, tb_offset: int | None = None
) -> list[str]:
    del trace, tb_offset
    remedy = error.remedy if isinstance(error, Refusal) else ""
    lines = [f"Refused: {error}", remedy]
    shell._showtraceback(kind, error, lines)
    return lines
