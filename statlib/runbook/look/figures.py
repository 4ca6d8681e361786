"""The figures of a report, from plain data.

Each function returns a ``Figure``: drawn wide and narrow in the house style, with a caption that states what
was found and a table of the numbers. Nothing is drawn on pyplot, so that a cell neither keeps state nor shows
a figure twice. Captions say when data were thinned and how.
"""

from statlib.runbook.look.canvas import Span
from statlib.runbook.look.plots.latency import LatencyInterval, LatencySummary, save_latency, save_latency_over_time
from statlib.runbook.look.plots.parity import ParityPoint, ReadsInterval, parity_over_time
from statlib.runbook.look.plots.saves import SavesInterval, saves_over_time
from statlib.runbook.look.plots.screening import ScreeningPoint, screening_progress
from statlib.runbook.look.plots.storage import StoragePoint, storage_growth
from statlib.runbook.look.themed_svg import SVG_BYTES_MAX, themed_svg

__all__ = [
    "SVG_BYTES_MAX",
    "LatencyInterval",
    "LatencySummary",
    "ParityPoint",
    "ReadsInterval",
    "SavesInterval",
    "ScreeningPoint",
    "Span",
    "StoragePoint",
    "parity_over_time",
    "save_latency",
    "save_latency_over_time",
    "saves_over_time",
    "screening_progress",
    "storage_growth",
    "themed_svg",
]
