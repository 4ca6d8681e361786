"""The conclusion: what a run ended as, decided from its evidence and from which cells really executed.

Pure. Neither papermill's word nor the notebook's is asked: a notebook that ran to its end, with every cell
marked completed, has concluded nothing if its journal does not say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.derivation import derive
from statlib.evidence.entries import Entry, EntryKind, StepOutcome, open_steps
from statlib.evidence.results import GateResult
from statlib.evidence.verdicts import Verdict, verdict
from statlib.kernel.plurals import plural
from statlib.runbook.steps import INTERRUPTED

RESUME_REMEDY = "Run it again: what was done is known from durable state and is not repeated."


@dataclass(frozen=True, slots=True)
class Ending:
    """How the cells ended, as the kernel answered.

    ``stopped_by``: a signal or the time limit; empty if none. ``error_name`` is the class of the exception that a
    cell raised. ``cell`` is the place of the cell that raised or died, counted among code cells from 1; 0: none.
    ``fault`` is what executing them failed with.
    """

    unexecuted: int = 0
    stopped_by: str = ""
    kernel_died: bool = False
    error_name: str = ""
    error_text: str = ""
    cell: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Halted:
    """Why a run ended before its gates. ``at_step`` is empty outside a step."""

    verdict: Verdict
    cause: str
    detail: str
    remedy: str
    at_step: str = ""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """``gates`` are derived only if nothing halted the run and it was allowed to act; ``soak``: they are a soak's."""

    verdict: Verdict
    gates: tuple[GateResult, ...] = ()
    halted: Halted | None = None
    rehearsal: bool = False
    soak: bool = False


def conclude(entries: Sequence[Entry], captures: CaptureReader, ending: Ending, *, applied: bool) -> Conclusion:
    """Decide. The first cause that applies wins: stopped, kernel gone, a step or cell that refused or raised, cells
    or steps that are missing; only then the dry run, and only then the gates."""
    if (halted := _halted(entries, ending)) is not None:
        return Conclusion(halted.verdict, halted=halted)
    if not applied:
        return Conclusion(Verdict.DRY_RUN_ONLY)
    derived = derive(captures, entries)
    ended = verdict(derived.gates, rehearsal=derived.rehearsal, applied=True, soak=derived.soak)
    if not derived.gates:
        return Conclusion(ended)
    return Conclusion(ended, derived.gates, rehearsal=derived.rehearsal, soak=derived.soak)


def _halted(entries: Sequence[Entry], ending: Ending) -> Halted | None:
    step = _last_step(entries)
    at = step if step in open_steps(entries) or _outcome(entries, step) in _UNDONE else ""
    where = f"in code cell {ending.cell}" if ending.cell else ""
    if ending.stopped_by:
        return Halted(Verdict.INTERRUPTED, ending.stopped_by, where, RESUME_REMEDY, at)
    if ending.kernel_died:
        return Halted(Verdict.INTERRUPTED, "the kernel died", where, RESUME_REMEDY, at)
    return _undone_step(entries) or _raised(ending, where, at) or _missing(entries, ending, at)


_UNDONE = (StepOutcome.REFUSED, StepOutcome.FAILED)


def _undone_step(entries: Sequence[Entry]) -> Halted | None:
    """A step whose last closing is a refusal or a failure, even if the notebook went on after it."""
    names = dict.fromkeys(str(entry.data["step"]) for entry in entries if entry.kind is EntryKind.StepClosed)
    for name in names:
        closing = _closing(entries, name)
        outcome = _outcome(entries, name)
        why = str(closing.data.get("why") or "") if closing else ""
        if outcome is StepOutcome.REFUSED:
            refused = next(e for e in reversed(entries) if e.kind is EntryKind.Refused and e.data.get("step") == name)
            reason, detail, remedy = (str(refused.data.get(key) or "") for key in ("reason", "detail", "remedy"))
            return Halted(Verdict.REFUSED, reason, detail, remedy, name)
        if outcome is StepOutcome.FAILED and why == INTERRUPTED:
            return Halted(Verdict.INTERRUPTED, "by hand", "", RESUME_REMEDY, name)
        if outcome is StepOutcome.FAILED:
            return Halted(Verdict.FAULT, why, f"step {name} raised it", "See the cell's traceback below.", name)
    return None


def _raised(ending: Ending, where: str, at: str) -> Halted | None:
    match ending.error_name:
        case "":
            return None
        case "Refusal":
            reason, _, detail = ending.error_text.partition(": ")
            return Halted(Verdict.REFUSED, reason, detail, "See the cell's output below.", at)
        case "SystemExit" | "KeyboardInterrupt":
            return Halted(Verdict.INTERRUPTED, f"{ending.error_name} {where}".strip(), "", RESUME_REMEDY, at)
        case name:
            return Halted(Verdict.FAULT, name, f"{where}: {ending.error_text}", "See the cell's traceback below.", at)


def _missing(entries: Sequence[Entry], ending: Ending, at: str) -> Halted | None:
    if ending.fault:
        return Halted(Verdict.FAULT, "the notebook could not be executed", ending.fault, "Run `statlib doctor`.", at)
    if ending.unexecuted:
        left = f"{plural(ending.unexecuted, 'cell was', 'cells were')} not executed"
        return Halted(Verdict.INTERRUPTED, left, "", RESUME_REMEDY, at)
    if unclosed := open_steps(entries):
        return Halted(Verdict.INTERRUPTED, f"{unclosed[0]} was not closed", "", RESUME_REMEDY, unclosed[0])
    if not any(entry.kind is EntryKind.Note and entry.data.get("closing") is True for entry in entries):
        return Halted(Verdict.INTERRUPTED, "the run was not closed", "", "Let the last cell call run.close().", at)
    return None


def _last_step(entries: Sequence[Entry]) -> str:
    return next((str(entry.data["step"]) for entry in reversed(entries) if entry.kind is EntryKind.StepStarted), "")


def _closing(entries: Sequence[Entry], step: str) -> Entry | None:
    return next(
        (e for e in reversed(entries) if e.kind is EntryKind.StepClosed and e.data["step"] == step),
        None,
    )


def _outcome(entries: Sequence[Entry], step: str) -> StepOutcome | None:
    closing = _closing(entries, step)
    return StepOutcome(str(closing.data["outcome"])) if closing else None
