"""``statlib evidence``: hold a report folder to its word."""

from __future__ import annotations

from pathlib import Path

import click

from statlib.cli.output import answer, json_option

EXIT_EVIDENCE_REFUSED = 3


@click.group()
def evidence() -> None:
    """Check the evidence that a run left behind."""


@evidence.command()
@click.argument("path", type=click.Path(path_type=Path))
@json_option
@click.pass_context
def verify(context: click.Context, path: Path) -> None:
    """Verify the report folder PATH, using nothing else.

    Recomputes every hash and the journal's chain, checks that each cell executed and each step closed, derives
    each gate and the verdict from the raw captures, and names what does not fit.

    Exit codes: 0 accepted, 3 refused, 2 no such folder.
    """
    from statlib.evidence.verify import Check, Verification, verify  # noqa: PLC0415  (keeps --help fast)

    found: Verification = verify(path)
    lines = []
    for check in Check:
        wrong = [finding for finding in found.findings if finding.check is check]
        lines.append(f"{check:<9} {f'{len(wrong)} wrong' if wrong else 'ok'}")
        lines += [f"          {finding}" for finding in wrong]
    lines += [
        "",
        f"Accepted: {found.verdict}; {found.files} files, {found.entries} journal entries, head {found.journal_head}"
        if found.ok
        else f"Refused: {len(found.findings)} findings",
        found.assurance.meaning if found.ok else "Do not rely on this folder; keep it as it is, and run again.",
    ]
    answer(
        {
            "ok": found.ok,
            "folder": found.folder,
            "verdict": found.verdict,
            "journal_head": found.journal_head,
            "files": found.files,
            "entries": found.entries,
            "assurance": found.assurance,
            "findings": found.findings,
        },
        lines,
    )
    if not found.ok:
        context.exit(EXIT_EVIDENCE_REFUSED)
