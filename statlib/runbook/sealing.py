"""The end of a run: its verdict on record, its report written, its folder sealed and published.

The order is what makes a half-finished end harmless: steps are closed, then gates and the verdict enter the
journal, then the report is written, then everything is sealed, and only then does the folder take its final
name. Whatever dies in between leaves a working folder, which no reader takes for a run. The archive's pages, made
last, prove nothing and can be made again.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from statlib import __version__
from statlib.evidence.bundle import KeyFigure, seal
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.captures import Captures
from statlib.evidence.closing import close_run
from statlib.evidence.entries import CLOCK_OFFSET, EntryKind, StepOutcome, open_steps
from statlib.evidence.journal import Journal
from statlib.evidence.verdicts import Verdict
from statlib.kernel.refusals import Fault
from statlib.kernel.settings import Settings
from statlib.runbook.account import Proofs, account_for
from statlib.runbook.anchoring import anchor_close
from statlib.runbook.archive import RunFolder
from statlib.runbook.catalogue import Runbook
from statlib.runbook.conclusion import Conclusion, Ending, Halted, conclude
from statlib.runbook.findings import Findings
from statlib.runbook.listing import list_runs
from statlib.runbook.parameters import RunbookParameters, may_act, plain_parameters
from statlib.runbook.redaction import redact_notebook, redaction_for
from statlib.runbook.report import render_report
from statlib.runbook.signing import signing_key
from statlib.runbook.steps import INTERRUPTED

EXIT_INPUT_LEFT_OUT = 1  # as `statlib load` exits when rows were not loaded
_NAMED_PACKAGES = ("pymongo", "papermill", "nbclient", "ipykernel")


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A sealed and published run. ``path`` is its final folder. ``left_out``: what of its input it did without."""

    run_id: str
    path: Path
    conclusion: Conclusion
    left_out: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The verdict's; a run that passed, but not on all of its input, says so with a code of its own."""
        return self.conclusion.verdict.exit_code or (EXIT_INPUT_LEFT_OUT if self.left_out else 0)


def end_run(
    runbook: Runbook,
    folder: RunFolder,
    parameters: RunbookParameters,
    journal: Journal,
    ending: Ending,
    *,
    settings: Settings,
) -> EndedRun:
    """Conclude the run in its working folder, whose notebook is in place and which nobody else writes to any more.

    Faults, naming the verdict and the folder, if the report or the seal cannot be made.
    """
    Captures(folder.evidence, journal).recover()
    conclusion = _record(journal, folder, ending, applied=may_act(parameters))
    try:
        findings = _seal(runbook, folder, parameters, journal, conclusion, settings)
    except Exception as error:
        raise Fault(
            f"run {folder.run_id} ended as {conclusion.verdict.value!r}, but could not be sealed",
            remedy=f"Its evidence is whole, in {folder.working}; no report was made of it.",
        ) from error
    path = folder.publish()
    list_runs(folder.archive)
    return EndedRun(folder.run_id, path, conclusion, findings.left_out)


def _seal(  # noqa: PLR0917 - what a seal is made of
    runbook: Runbook,
    folder: RunFolder,
    parameters: RunbookParameters,
    journal: Journal,
    conclusion: Conclusion,
    settings: Settings,
) -> Findings:
    redaction = redaction_for(settings)
    redact_notebook(folder.notebook, redaction)
    key = signing_key(settings)
    anchored = anchor_close(journal, folder, settings)
    entries = journal.entries
    findings = Findings()
    if runbook.findings is not None:
        findings = runbook.findings(CaptureReader(folder.evidence, entries), parameters)
    environment = {**environment_facts(), **findings.environment}
    proofs = Proofs(signed_by=f"the key {key.key_id}" if key else "", anchored=anchored)
    report = account_for(
        runbook, folder, entries, conclusion, findings=findings, environment=environment, proofs=proofs
    )
    folder.report.write_text(redaction.text(render_report(report)), encoding="utf-8")
    seal(
        folder.working,
        parameters=plain_parameters(parameters),
        environment=environment,
        verdict=conclusion.verdict,
        journal_head=journal.head,
        highlights=tuple(KeyFigure(label=one.label, value=one.value, unit=one.unit) for one in findings.highlights),
        key=key,
    )
    return findings


def environment_facts() -> Mapping[str, str]:
    """What ran it: versions, and the kind of machine; never its name or its folders."""
    facts = {
        "statlib": __version__,
        "Python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    for name in _NAMED_PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            continue
    return facts


def _record(journal: Journal, folder: RunFolder, ending: Ending, *, applied: bool) -> Conclusion:
    if offset_ms := journal.clock_offset_ms:
        journal.append(EntryKind.Note, text=f"the clock was advanced by {offset_ms} ms", **{CLOCK_OFFSET: offset_ms})
    entries = journal.entries
    conclusion = conclude(entries, CaptureReader(folder.evidence, entries), ending, applied=applied)
    if (halted := conclusion.halted) is not None:
        _record_halt(journal, halted)
    close_run(journal, gates=conclusion.gates, verdict=conclusion.verdict)
    return conclusion


def _record_halt(journal: Journal, halted: Halted) -> None:
    """Close what is open, and say why, in the words that the verdict rests on."""
    for step in open_steps(journal.entries):
        why = f"{INTERRUPTED}: {halted.cause}"
        journal.append(EntryKind.StepClosed, step=step, outcome=StepOutcome.FAILED.value, seconds=None, why=why)
    match halted.verdict:
        case Verdict.INTERRUPTED:
            journal.append(EntryKind.Interrupted, by=halted.cause, detail=halted.detail)
        case Verdict.REFUSED if not halted.at_step:
            journal.append(EntryKind.Refused, reason=halted.cause, detail=halted.detail, remedy=halted.remedy)
        case _:
            journal.append(EntryKind.Note, text=f"{halted.cause}: {halted.detail}")
