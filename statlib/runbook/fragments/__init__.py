"""What a step shows: tables, status lines, gates, progress and figures, as values that render themselves.

Each fragment gives ``text/html`` and, beside it, ``text/plain`` that says the same in words: a host that
strips styles, a terminal and a log all stay readable. The stylesheet is emitted once, by
``stylesheet_fragment()``; a report embeds the very same fragments.
"""

from statlib.runbook.fragments.base import Fragment, Stylesheet, Value, stylesheet_fragment
from statlib.runbook.fragments.figure import Figure
from statlib.runbook.fragments.gate_table import GateTable, GateValues, inside
from statlib.runbook.fragments.lines import Code, Quantity, RefusalLine, StatusLine
from statlib.runbook.fragments.progress import Progress
from statlib.runbook.fragments.tables import Column, KeyValues, Table

__all__ = [
    "Code", "Column", "Figure", "Fragment", "GateTable", "GateValues", "KeyValues", "Progress", "Quantity",
    "RefusalLine", "StatusLine", "Stylesheet", "Table", "Value", "inside", "stylesheet_fragment",
]  # fmt: skip
