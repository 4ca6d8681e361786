"""The trend of a runbook: one number of its runs, oldest to newest, from zero, as a line that is read at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statlib.runbook.look.quantities import number, with_unit
from statlib.runbook.site.records import Measure, RunRecord

RUNS_MAX = 30
WIDTH, HEIGHT, EDGE, BASE = 112.0, 30.0, 4.0, 27.0


@dataclass(frozen=True, slots=True)
class Trend:
    """``measures`` are of one label, oldest first; ``last`` is the newest run, whether or not it measured that."""

    runbook: str
    last: RunRecord
    measures: tuple[Measure, ...]

    @property
    def value(self) -> str:
        return with_unit(self.measures[-1].value, self.measures[-1].unit) if self.measures else "none"

    @property
    def label(self) -> str:
        return self.measures[-1].label if self.measures else "no number on record"

    @property
    def limit(self) -> str:
        limit = self.measures[-1].limit if self.measures else None
        return f"limit {with_unit(limit, self.measures[-1].unit)}" if limit is not None else ""

    @property
    def spoken(self) -> str:
        if len(self.measures) < 2:
            return ""
        first, last = (number(self.measures[at].value) for at in (0, -1))
        return f"{len(self.measures)} runs, from {first} to {last}."

    def svg(self) -> str:
        """No text in it: the words stand beside it."""
        values = [max(0.0, measure.value) for measure in self.measures]
        limit = self.measures[-1].limit if self.measures else None
        top = max([*values, limit or 0.0]) or 1.0
        points = [(_x(at, len(values)), BASE - 20.5 * value / top) for at, value in enumerate(values)]
        parts = [f'<path d="M0 {BASE:g}H{WIDTH:g}" stroke="var(--rule)"/>']
        if limit:
            parts.append(
                f'<path d="M0 {BASE - 20.5 * limit / top:.1f}H{WIDTH:g}" stroke="var(--fail)" stroke-dasharray="4 3"/>'
            )
        if len(points) > 1:
            line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            parts.append(f'<path d="M{line}" stroke="var(--s1)" stroke-width="1.6" stroke-linejoin="round"/>')
        crosses = "".join(
            f"M{x - 3:.1f} {y - 3:.1f}l6 6m0-6l-6 6"
            for (x, y), measure in zip(points, self.measures, strict=True)
            if measure.over
        )
        if crosses:
            parts.append(f'<path d="{crosses}" stroke="var(--fail)" stroke-width="1.8"/>')
        if points and not self.measures[-1].over:
            x, y = points[-1]
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="var(--s1)"/>')
        return f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" fill="none" aria-hidden="true">{"".join(parts)}</svg>'


def trend_of(runs: Sequence[RunRecord]) -> Trend:
    """Of one runbook's runs, oldest first. The number is what the newest run that has any is remembered by."""
    label = next((run.measures[0].label for run in reversed(runs) if run.measures), None)
    found = (next((measure for measure in run.measures if measure.label == label), None) for run in runs)
    return Trend(runs[-1].runbook, runs[-1], tuple(measure for measure in found if measure is not None))


def _x(at: int, count: int) -> float:
    return WIDTH - 8 if count == 1 else EDGE + at * (WIDTH - 12) / (count - 1)
