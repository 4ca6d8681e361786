"""How a notebook shows a refusal or an interruption, without a traceback through code that did as it should."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from statlib.kernel.refusals import Refusal
from statlib.runbook.shell import in_kernel


def show_refusals_briefly() -> None:
    """From now on, in this kernel. The cell still counts as one that raised. Outside a kernel: nothing."""
    if not in_kernel():
        return
    from IPython.core.getipython import get_ipython  # noqa: PLC0415 - loaded in every kernel, and nowhere else

    shell: Any = get_ipython()
    shell.set_custom_exc((Refusal, KeyboardInterrupt), _show)


def _show(
    shell: Any, kind: type[BaseException], error: BaseException, trace: TracebackType, tb_offset: int | None = None
) -> list[str]:
    del trace, tb_offset
    if isinstance(error, Refusal):
        lines = [f"Refused: {error}", error.remedy]
    else:
        lines = ["Interrupted by hand.", "Run it again: what was done is on record and is not repeated."]
    shell._showtraceback(kind, error, lines)
    return lines
