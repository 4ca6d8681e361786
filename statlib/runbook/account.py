"""The account of a run: its journal, notebook and gates brought together as the report shows them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nbformat

from statlib import __version__
from statlib.evidence.entries import CaptureData, Entry, EntryKind, StepOutcome
from statlib.evidence.verdicts import Verdict
from statlib.kernel.plurals import plural
from statlib.runbook import report as page
from statlib.runbook.anchoring import Anchored
from statlib.runbook.archive import RunFolder
from statlib.runbook.catalogue import Runbook
from statlib.runbook.commands import act_command, undo_command, verify_command
from statlib.runbook.conclusion import Conclusion
from statlib.runbook.findings import Findings
from statlib.runbook.fragments import Value
from statlib.runbook.look.outputs import CellOutput

UNSIGNED = (
    "The chain and the manifest show that nothing was damaged. They do not hold against somebody who rewrites the "
    "whole folder consistently: that takes a signature, or the head as the database recorded it."
)
SIGNED = (
    "Against somebody who rewrites the whole folder the signature holds, for whoever brings the signer's public key."
)
ANCHORED = (
    "Against somebody who rewrites the whole folder the journal's head holds, as the database's audit recorded it: "
    "verify with --anchor."
)
SIGNED_AND_ANCHORED = (
    "Against somebody who rewrites the whole folder two things hold: the signature, for whoever brings the signer's "
    "public key, and the journal's head in the database's audit (--anchor)."
)


@dataclass(frozen=True, slots=True)
class Proofs:
    """What holds the folder against somebody who rewrites it whole."""

    signed_by: str
    anchored: Anchored

    @property
    def anchored_in(self) -> str:
        if (anchor := self.anchored.anchor) is None:
            return f"nothing: {self.anchored.why}" if self.anchored.why else ""
        return f"the database's audit, {anchor.at:%Y-%m-%d %H:%M:%S} UTC by the database's clock"

    @property
    def assurance(self) -> str:
        if self.signed_by and self.anchored.anchor is not None:
            return SIGNED_AND_ANCHORED
        if self.signed_by:
            return SIGNED
        return ANCHORED if self.anchored.anchor is not None else UNSIGNED


def account_for(
    runbook: Runbook,
    folder: RunFolder,
    entries: Sequence[Entry],
    conclusion: Conclusion,
    *,
    findings: Findings,
    environment: Mapping[str, str],
    proofs: Proofs,
) -> page.Report:
    """The report's content. ``entries`` is the whole journal, its RunClosed included."""
    started = next(entry for entry in entries if entry.kind is EntryKind.RunStarted)
    parameters: Any = started.data["parameters"]
    halted = conclusion.halted
    return page.Report(
        runbook=runbook.name,
        run_id=folder.run_id,
        deployment=str(started.data.get("deployment", "")),
        started=started.at,
        ended=entries[-1].at,
        principal=str(started.data.get("principal", "")),
        capability=str(started.data.get("capability", "")),
        applied=started.data["apply"] is True,
        verdict=conclusion.verdict,
        lead=findings.lead or _lead(conclusion),
        integrity=_integrity(folder, entries, proofs),
        subject=findings.subject,
        rehearsal=_rehearsal(conclusion),
        soak=conclusion.soak,
        halt=page.Halt(halted.cause, halted.detail, halted.remedy, halted.at_step) if halted else None,
        highlights=findings.highlights,
        next_steps=tuple(_next_steps(runbook, folder, conclusion, started, findings.next_steps)),
        gates=conclusion.gates,
        figures=findings.figures,
        timeline=tuple(_timeline(entries)),
        provenance=findings.provenance,
        parameters=tuple(
            (name, _parameter(value, unused=name in findings.unused)) for name, value in parameters.items()
        ),
        environment=tuple(environment.items()),
        cells=tuple(_cells(folder, entries)),
        version=__version__,
        figure_of_gate=findings.figure_of_gate,
    )


def _lead(conclusion: Conclusion) -> str:
    failed = [gate for gate in conclusion.gates if not gate.passed]
    match conclusion.verdict:
        case Verdict.DRY_RUN_ONLY:
            return "Nothing was changed: the run stopped after its dry run, because it was not told to act."
        case Verdict.FAILED if not conclusion.gates:
            return "The run acted, but left no captures that a gate could be derived from."
        case Verdict.FAILED:
            named = ", ".join(gate.title for gate in failed)
            return f"{len(failed)} of {plural(len(conclusion.gates), 'gate')} failed: {named}."
        case ended if ended.passing:
            return "The one gate held." if len(conclusion.gates) == 1 else f"All {len(conclusion.gates)} gates held."
        case _:
            return "No gate was derived, because the run did not get that far."


def _rehearsal(conclusion: Conclusion) -> str:
    if not conclusion.rehearsal:
        return ""
    if not conclusion.soak:
        return "the clock was advanced"
    return "the window was shorter than seven days, or the clock was advanced"


def _next_steps(
    runbook: Runbook, folder: RunFolder, conclusion: Conclusion, started: Entry, of_failure: Sequence[page.NextStep]
) -> Iterator[page.NextStep]:
    given: Any = started.data["parameters"]
    if conclusion.verdict is Verdict.DRY_RUN_ONLY:
        yield page.NextStep(
            "Act",
            "When the dry run shows what you want.",
            act_command(runbook, given, str(started.data.get("deployment", ""))),
        )
    elif conclusion.halted is not None and conclusion.halted.remedy:
        yield page.NextStep(conclusion.halted.remedy)
    elif conclusion.verdict is Verdict.FAILED:
        yield page.NextStep("Look at the failed gates and their raw captures before running again.")
        yield from of_failure
    if runbook.rollback is not None and conclusion.verdict not in (Verdict.DRY_RUN_ONLY, Verdict.REFUSED):
        yield page.NextStep("Undo it, if need be.", "", undo_command(runbook.rollback, given))
    yield page.NextStep("Check that this report is what the evidence says.", "", verify_command(folder))


def _integrity(folder: RunFolder, entries: Sequence[Entry], proofs: Proofs) -> page.Integrity:
    files = [page.BundleFile("report.html", None), page.BundleFile("notebook.ipynb", folder.notebook.stat().st_size)]
    for entry in entries:
        if entry.kind is EntryKind.Capture:
            data = CaptureData.model_validate(entry.data)
            files.append(page.BundleFile(f"evidence/{data.file}", data.size_bytes, data.sha256))
    return page.Integrity(
        entries[-1].hash,
        verify_command(folder),
        proofs.assurance,
        signed_by=proofs.signed_by,
        anchored_in=proofs.anchored_in,
        files=tuple(files),
    )


def _timeline(entries: Sequence[Entry]) -> Iterator[page.TimelineStep]:
    opened: Entry | None = None
    events: list[page.StepEvent] = []
    for entry in entries:
        match entry.kind:
            case EntryKind.StepStarted:
                opened, events = entry, []
            case EntryKind.Note if opened is not None:
                events.append(page.StepEvent(entry.at, str(entry.data["text"])))
            case EntryKind.StepClosed if opened is not None:
                yield _timed(opened, entry, tuple(events))
                opened = None
    if opened is not None:
        yield page.TimelineStep(str(opened.data["step"]), opened.at, None, None, "", tuple(events))


def _timed(opened: Entry, closed: Entry, events: tuple[page.StepEvent, ...]) -> page.TimelineStep:
    seconds: Any = closed.data.get("seconds")
    return page.TimelineStep(
        str(closed.data["step"]),
        opened.at,
        float(seconds) if isinstance(seconds, int | float) else None,
        StepOutcome(str(closed.data["outcome"])),
        str(closed.data.get("why") or ""),
        events,
    )


def _cells(folder: RunFolder, entries: Sequence[Entry]) -> Iterator[page.ReportCell]:
    executed = {str(entry.data["cell"]) for entry in entries if entry.kind is EntryKind.CellExecuted}
    notebook: Any = nbformat.read(folder.notebook, as_version=4)  # type: ignore[no-untyped-call]
    prose, number = "", 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose = f"{prose}\n\n{cell.source}" if prose else str(cell.source)
        elif cell.cell_type == "code" and cell.source.strip():
            number += 1
            yield page.ReportCell(
                number=number,
                title=_title(prose) or cell_name(cell.source, cell.metadata.get("tags", ())) or f"Cell {number}",
                code=cell.source,
                prose=prose,
                outputs=tuple(_outputs(cell)),
                duration_s=cell.metadata.get("papermill", {}).get("duration"),
                executed=cell.id in executed,
            )
            prose = ""


def _title(prose: str) -> str:
    return next((line.lstrip("#").strip() for line in prose.splitlines() if line.startswith("#")), "")


def cell_name(source: str, tags: Collection[str]) -> str:
    """What a cell without a heading does: the step that it takes, or its place in the run; else empty."""
    if "injected-parameters" in tags:
        return "Parameters as given"
    if step := _STEP_TAKEN.search(source):
        return step["name"][:1].upper() + step["name"][1:]
    return "Close the run" if ".close(" in source else ""


_STEP_TAKEN = re.compile(r"\.(?:step|act)\(\s*(?P<quote>[\"'])(?P<name>[^\"']+)(?P=quote)")


def _outputs(cell: Any) -> Iterator[CellOutput]:
    for output in cell.outputs:
        if output.output_type == "stream":
            yield CellOutput(str(output.text))
        elif output.output_type == "error":
            yield CellOutput(f"{output.ename}: {output.evalue}")
        elif output.output_type in ("display_data", "execute_result"):
            data = output.data
            yield CellOutput(str(data.get("text/plain", "")), str(data.get("text/html", "")))


def _parameter(value: Any, *, unused: bool) -> Value:
    return f"{value}, for simulated data only: not used" if unused else _value(value)


def _value(value: Any) -> Value:
    return value if value is None or isinstance(value, str | int | float) else str(value)
