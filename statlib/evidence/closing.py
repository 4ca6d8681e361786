"""Ends a run's journal: the derived gates, then the verdict. Nothing can be appended afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from statlib.evidence.entries import EntryKind, open_steps
from statlib.evidence.journal import Journal
from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.results import GateResult
from statlib.evidence.verdicts import Verdict
from statlib.kernel.refusals import Refusal


def close_run(journal: Journal, *, gates: Sequence[GateResult], verdict: Verdict) -> str:
    """Append one GateDerived for each gate and RunClosed; returns the journal's final head.

    Refuses RunNotClosed while a step is open: whoever ends an interrupted run closes its steps first. A crash in
    between leaves gates without a closing entry, and calling again derives and appends them anew.
    """
    if still_open := open_steps(journal.entries):
        raise Refusal(EvidenceReason.RunNotClosed, f"steps are still open: {', '.join(still_open)}")
    for gate in gates:
        journal.append(EntryKind.GateDerived, **gate.model_dump(mode="json"))
    return journal.append(EntryKind.RunClosed, verdict=verdict.value).hash
