"""The journal: an unbroken chain from RunStarted to RunClosed in which every step was closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from statlib.evidence.bundle import Bundle, Statement
from statlib.evidence.entries import Chain, Entry, EntryKind, StepOutcome, open_steps, scan
from statlib.evidence.findings import Check, Finding
from statlib.evidence.verdicts import Verdict

_PASSABLE = {StepOutcome.DONE.value, StepOutcome.SKIPPED.value}


def read_chain(bundle: Bundle) -> tuple[Chain, list[Finding]]:
    """What of the journal held, and what did not, line by line."""
    name = bundle.name_of(bundle.journal)
    try:
        chain, torn = scan(bundle.journal.read_bytes())
    except OSError as error:
        return Chain(), [Finding(Check.JOURNAL, name, f"cannot be read: {error.strerror}")]
    findings = [Finding(Check.JOURNAL, f"{name} line {damage.line}", damage.what) for damage in chain.damage]
    if torn:
        findings.append(Finding(Check.JOURNAL, f"{name} line {chain.line + 1}", "is torn: it has no line end"))
    return chain, findings


def check_course(bundle: Bundle, entries: Sequence[Entry]) -> Iterator[Finding]:
    """Begins with RunStarted, ends with the one RunClosed."""
    name = bundle.name_of(bundle.journal)
    if not entries or entries[0].kind is not EntryKind.RunStarted:
        yield Finding(Check.JOURNAL, f"{name} line 1", "is not RunStarted")
    if not entries or entries[-1].kind is not EntryKind.RunClosed:
        yield Finding(Check.JOURNAL, name, "does not end with RunClosed: the run never ended, or its end was cut off")
    for entry in entries[:-1]:
        if entry.kind is EntryKind.RunClosed:
            yield Finding(Check.JOURNAL, f"{name} line {entry.seq}", "closes the run before its last line")


def check_head(bundle: Bundle, chain: Chain, statement: Statement) -> Iterator[Finding]:
    """The manifest, like the journal, knows one head, one run and one set of parameters."""
    name, manifest = bundle.name_of(bundle.journal), bundle.name_of(bundle.manifest)
    if not chain.entries:
        return
    if chain.head != statement.predicate.journal_head:
        yield Finding(Check.JOURNAL, name, f"its head is not the one that {manifest} gives")
    started = next((entry.data for entry in chain.entries if entry.kind is EntryKind.RunStarted), None)
    if started is None:
        return
    for field in ("runbook", "run_id", "parameters"):
        if started[field] != getattr(statement.predicate, field):
            yield Finding(Check.MANIFEST, manifest, f"gives other {field} than the journal's RunStarted")


def check_steps(entries: Sequence[Entry], declared: Verdict | None) -> Iterator[Finding]:
    """Each step started was closed, none was closed unstarted, and none that failed is part of a pass."""
    for step in open_steps(entries):
        yield Finding(Check.STEPS, f"step {step}", "was started and never closed")
    started: set[str] = set()
    outcomes: dict[str, str] = {}
    for entry in entries:
        step = str(entry.data.get("step", ""))
        if entry.kind is EntryKind.StepStarted:
            started.add(step)
        elif entry.kind is EntryKind.StepClosed:
            outcomes[step] = str(entry.data["outcome"])
            if step not in started:
                yield Finding(Check.STEPS, f"step {step}", f"was closed in line {entry.seq} and never started")
    if declared is not None and declared.passing:
        for step, outcome in outcomes.items():
            if outcome not in _PASSABLE:
                yield Finding(Check.STEPS, f"step {step}", f"ended as {outcome}, in a run whose verdict is {declared}")
