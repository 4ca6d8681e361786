"""What an ordinary runbook expects to find when it has acted: captured, so that its gates can be derived again."""

from __future__ import annotations

from typing import Any

from statlib.runbook.run import Run


def expect(run: Run[Any], key: str, title: str, *, expected: float, measured: float, unit: str = "") -> None:
    """Put one expectation and what was measured on record; equality decides."""
    with run.captures.lines("expectations") as rows:
        rows.append(
            {
                "key": key,
                "title": title,
                "expected": expected,
                "measured": measured,
                "comparison": "=",
                "unit": unit,
            }
        )
