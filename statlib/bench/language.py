"""What every benchmark prints: where it ran, the raw table, and the few figures that a reader decides by."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

Cell = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Report:
    """``cells`` are the raw table, latencies in ms; ``figures`` are derived from them, paired within the run."""

    bench: str
    short_form: bool
    environment: Mapping[str, str | int]
    cells: Sequence[Cell]
    figures: Mapping[str, float]


def environment(server: str) -> dict[str, str | int]:
    """What ran it: never a machine's name or folders."""
    return {
        "statlib": version("statlib"),
        "pymongo": version("pymongo"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count() or 0,
        "server": server,
    }


@dataclass(frozen=True, slots=True)
class Quantiles:
    """In the unit of the values."""

    p50: float
    p95: float
    p99: float


def quantiles(values: Sequence[float]) -> Quantiles:
    """By linear interpolation between order statistics."""
    if len(values) == 1:
        return Quantiles(values[0], values[0], values[0])
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return Quantiles(cuts[49], cuts[94], cuts[98])


def table(cells: Sequence[Cell]) -> list[str]:
    """The cells as aligned text, numbers to the right."""
    if not cells:
        return []
    names = list(cells[0])
    shown = [[_text(cell.get(name, "")) for name in names] for cell in cells]
    widths = [max(len(name), *(len(row[at]) for row in shown)) for at, name in enumerate(names)]
    numeric = [not isinstance(cells[0].get(name, ""), str) for name in names]

    def line(row: Sequence[str]) -> str:
        return "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()

    return [line(names), *(line(row) for row in shown)]


def _text(value: str | int | float) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
