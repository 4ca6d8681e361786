"""What a runbook adds to its report, derived from raw captures when the run has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from statlib.evidence.capture_reader import CaptureReader
from statlib.runbook.fragments import Figure
from statlib.runbook.parameters import RunbookParameters
from statlib.runbook.report import DataSource, Highlight, NextStep


@dataclass(frozen=True)
class Findings:
    """``subject`` is what was tried, as a headline names it ("Soak"). ``figure_of_gate`` maps a gate's key to the key
    of the figure that shows what it measured. ``next_steps`` are for a run that failed. ``unused``: parameters that
    shape simulated data, of a run that had none. ``left_out``: what of the input the run did without, a line each."""

    subject: str = ""
    lead: str = ""
    highlights: tuple[Highlight, ...] = ()
    figures: tuple[Figure, ...] = ()
    provenance: tuple[DataSource, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    unused: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    figure_of_gate: Mapping[str, str] = field(default_factory=dict)


Derive = Callable[[CaptureReader, RunbookParameters], Findings]
"""Called once, also for a run that ended early: it must do without captures that are not there."""
