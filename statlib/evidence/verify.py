"""The verifier: needs the report folder and nothing else, no database, no network, no notebook software.

It believes nothing that it can derive: hashes, chain, executed cells, closed steps, gates and verdict. It never
stops at the first finding, because whoever reads the list wants to know what happened to the folder.

Against whom: without a signature or an anchor it shows that nothing was damaged or edited piecemeal. Someone
who rewrites journal, captures, report and manifest consistently is beyond what a folder alone can show. What the
folder cannot carry is handed in: the keys that the reader trusts, and the anchors as the database holds them.
``Verification.assurance`` says which of them there were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from statlib.evidence.anchors import Anchor, closing
from statlib.evidence.bundle import Bundle, Statement
from statlib.evidence.checks.authenticity import check_anchors, check_requirements, read_signature
from statlib.evidence.checks.captures import check_captures
from statlib.evidence.checks.cells import check_cells
from statlib.evidence.checks.files import check_files, read_manifest
from statlib.evidence.checks.outcome import check_outcome, check_report, declared_verdict
from statlib.evidence.checks.run import check_course, check_head, check_steps, read_chain
from statlib.evidence.entries import Entry
from statlib.evidence.envelope import TrustedKey
from statlib.evidence.findings import Assurance, Check, Finding, Requirement, Verification
from statlib.kernel.refusals import Refusal, SettingsReason

__all__ = ["Assurance", "Check", "Finding", "Requirement", "Verification", "verify"]


def verify(
    folder: Path,
    *,
    trusted: Mapping[str, TrustedKey] | None = None,
    anchors: Sequence[Anchor] | None = None,
    require: frozenset[Requirement] = frozenset(),
) -> Verification:
    """Check a sealed folder. Refuses InputUnreadable if there is no such folder; every other fault of the folder
    is a finding.

    ``trusted``: public keys by id. ``anchors``: every anchor that the database holds of this run; None: not asked.
    ``require``: what must be there beyond that; a signature by a key that is not trusted does not count.
    """
    if not folder.is_dir():
        raise Refusal(SettingsReason.InputUnreadable, f"{folder} is not a folder")
    bundle = Bundle(folder)
    statement, findings = read_manifest(bundle)
    if statement is not None:
        findings += check_files(bundle, statement)
    chain, damage = read_chain(bundle)
    findings += damage
    entries = tuple(chain.entries)
    declared = declared_verdict(entries)
    findings += check_course(bundle, entries)
    if statement is not None:
        findings += check_head(bundle, chain, statement)
    findings += check_steps(entries, declared)
    findings += check_cells(bundle, entries, declared)
    findings += check_captures(bundle, entries)
    findings += check_outcome(bundle, entries, statement)
    findings += check_report(bundle, statement, declared)
    signature, forged = read_signature(bundle, statement, trusted or {})
    findings += forged
    findings += check_anchors(bundle, entries, anchors or ())
    findings += check_requirements(bundle, require, signature, anchors)
    anchored = None if anchors is None else closing(anchors) is not None
    return Verification(
        folder=folder,
        findings=tuple(findings),
        assurance=Assurance.of(signature, anchored=anchored is True),
        signature=signature,
        anchored=anchored,
        verdict=statement.predicate.verdict if statement is not None else None,
        journal_head=statement.predicate.journal_head if statement is not None else None,
        files=len(statement.subject) if statement is not None else 0,
        entries=len(entries),
        looked_at=frozenset(_looked_at(bundle, statement, entries)),
    )


def _looked_at(bundle: Bundle, statement: Statement | None, entries: Sequence[Entry]) -> Iterator[Check]:
    if bundle.manifest.is_file():
        yield Check.MANIFEST
    if statement is not None:
        yield Check.FILES
    if entries:
        yield from (Check.JOURNAL, Check.STEPS, Check.CAPTURES, Check.GATES, Check.VERDICT)
    if entries and bundle.notebook.is_file():
        yield Check.CELLS
    if bundle.report.is_file():
        yield Check.REPORT
