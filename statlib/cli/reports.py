"""``statlib reports``: the archive as a list, as pages, compared, and pruned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from statlib.cli.output import answer, json_option, plain
from statlib.kernel.plurals import plural
from statlib.runbook.archive import ARCHIVE_DEFAULT

if TYPE_CHECKING:
    from statlib.runbook.site.comparison import Comparison
    from statlib.runbook.site.retention import Reached

archive_option = click.option(
    "--archive", type=click.Path(path_type=Path, file_okay=False), default=ARCHIVE_DEFAULT, show_default=True,
    help="The folder that keeps the runs.",
)  # fmt: skip


@click.group()
def reports() -> None:
    """List, compare, show and prune archived runs."""


@reports.command("list")
@archive_option
@click.option("--runbook", help="Only runs of this one.")
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="How many, newest first.")
@json_option
def list_reports(archive: Path, runbook: str | None, last: int) -> None:
    """List archived runs, newest first: when, what, how it ended, and where it is."""
    from heapq import nlargest  # noqa: PLC0415 - this command alone

    from statlib.runbook.archive import find_runs  # noqa: PLC0415
    from statlib.runbook.look import quantities as q  # noqa: PLC0415
    from statlib.runbook.site.records import read_record  # noqa: PLC0415

    newest = nlargest(last, find_runs(archive, runbook=runbook), key=lambda run: (run.started, run.run_id))
    found = [(run, read_record(run)) for run in newest]
    width = max((len(run.runbook) for run, _ in found), default=0)
    lines = [
        f"{q.instant(record.started)}  {run.runbook:<{width}}  "
        f"{record.words}{f': {record.detail}' if record.detail else ''}  {run.final}"
        for run, record in found
    ]
    told = [
        {
            "runbook": run.runbook,
            "run_id": run.run_id,
            "path": run.final,
            "started": record.started,
            "duration_s": record.duration_s,
            "deployment": record.deployment,
            "verdict": record.verdict,
            "words": record.words,
            "detail": record.detail,
            "signed": record.signed,
            "measures": [measure.model_dump(mode="json") for measure in record.measures],
        }
        for run, record in found
    ]
    answer({"runs": told}, lines or f"no runs in {archive}")


@reports.command()
@click.argument("first", metavar="A", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("second", metavar="B", type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
def compare(first: Path, second: Path) -> None:
    """Show two runs of one runbook side by side: gates, key figures, and what they were given.

    A and B are folders of runs. A gate that passes in one and not in the other, or was held to another threshold,
    is marked with *. A folder that does not verify is compared all the same, and said to be so.
    """
    from statlib.runbook.site.comparison import compare as compared  # noqa: PLC0415 - keeps --help fast

    found = compared(first, second)
    value = plain(found)
    value["gates"] = [
        {
            "key": pair.key,
            "title": pair.title,
            "unit": pair.unit,
            "a": pair.a.model_dump(mode="json") if pair.a else None,
            "b": pair.b.model_dump(mode="json") if pair.b else None,
            "change": pair.change,
            "turned": pair.turned,
        }
        for pair in found.gates
    ]
    answer(value, list(_compared(found)))


@reports.command()
@archive_option
@click.option("--anew", is_flag=True, help="Read and write everything again, instead of what is new.")
@json_option
def site(archive: Path, anew: bool) -> None:
    """Bring the archive's pages up to date: index.html, and one page for each month.

    Only new runs are read and only pages that they belong on are written; nothing in the archive is changed. The
    pages are plain files: open index.html, or serve the folder.
    """
    from statlib.runbook.site.build import update_site  # noqa: PLC0415 - keeps --help fast
    from statlib.runbook.site.retention import read_tombstones  # noqa: PLC0415

    done = update_site(archive, tombstones=frozenset(stone.name for stone in read_tombstones(archive)), anew=anew)
    lines = [
        f"{plural(done.runs, 'run')}: {done.added:,} new, {done.removed:,} gone; "
        f"{plural(done.pages_written, 'page')} written "
        f"in {done.seconds:.2f} s",
        f"open {done.index}",
    ]
    answer(done, lines)
    if done.unreadable:
        told = f"{plural(done.unreadable, 'new run')} cannot be read; `statlib evidence verify` says of each folder why"
        click.echo(told, err=True)
    for name in done.unrecorded:
        click.echo(f"gone without a tombstone: {name}", err=True)


@reports.command()
@archive_option
@click.option("--keep-days", type=click.IntRange(min=0), help="Keep what is younger than so many days.")
@click.option("--keep-last", type=click.IntRange(min=0), help="Keep so many of each runbook, the newest.")
@click.option("--failed-too", is_flag=True, help="Also remove runs that did not pass; else they are kept.")
@click.option("--apply", "act", is_flag=True, help="Remove; without it, only say what would be removed.")
@json_option
def prune(
    *, archive: Path, keep_days: int | None, keep_last: int | None, failed_too: bool, act: bool
) -> None:  # fmt: skip
    """Remove old runs, with a tombstone for each; dry unless --apply is given.

    With both bounds a run is removed only if neither keeps it. Each run is verified first: one that does not verify
    is never removed, and one that failed, was refused or was interrupted only with --failed-too. Those are named.
    """
    from statlib.runbook.site.retention import (  # noqa: PLC0415 - keeps --help fast
        Fate,
        Rule,
        finish_removals,
        reached_by,
        remove,
    )

    if keep_days is None and keep_last is None:
        raise click.UsageError("give --keep-days, --keep-last or both; without a bound nothing is old")
    rule = Rule(keep_days, keep_last, failed_too)
    if act:
        finish_removals(archive)
    found = list(reached_by(archive, rule))
    doomed = [reached for reached in found if reached.fate is Fate.REMOVE]
    stones = [remove(archive, reached, rule) for reached in doomed] if act else []
    would = f"{plural(len(doomed), 'run')} would be removed; nothing was (give --apply)"
    removed = f"{plural(len(stones), 'run')} removed" if act else would
    answer(
        {
            "applied": act,
            "rule": str(rule),
            "runs": [_reached(reached) for reached in found],
            "tombstones": [stone.model_dump(mode="json") for stone in stones],
        },
        [
            *(f"{reached.fate}  {reached.run.final}  ({reached.why})" for reached in found),
            f"{removed}; {len(found) - len(doomed):,} kept though old",
        ],
    )


def _reached(reached: Reached) -> dict[str, object]:
    return {
        "path": reached.run.final,
        "fate": reached.fate.name.lower(),
        "verdict": reached.verdict,
        "why": reached.why,
    }


def _compared(found: Comparison) -> Iterator[str]:
    from statlib.runbook.look import quantities as q  # noqa: PLC0415

    yield found.runbook
    for letter, side in (("A", found.a), ("B", found.b)):
        doubt = "" if side.verified else "; DOES NOT VERIFY"
        yield f"  {letter}  {side.verdict}{doubt}  {side.folder}"
    table: list[tuple[str, ...]] = [("", "", "A", "B", "B − A")]
    for pair in found.gates:
        shown = (
            "none"
            if gate is None
            else "not measured"
            if gate.measured is None
            else q.with_unit(gate.measured, pair.unit)
            for gate in (pair.a, pair.b)
        )
        marked = (
            f"{text}{'' if gate is None or gate.passed else ' ✕'}"
            for text, gate in zip(shown, (pair.a, pair.b), strict=True)
        )
        change = "" if pair.change is None else "same" if pair.change == 0 else q.with_unit(pair.change, pair.unit)
        table.append(("*" if pair.turned else "", pair.title, *marked, change))
    for figure in found.figures:
        values = ("none" if value is None else q.with_unit(value, figure.unit) for value in (figure.a, figure.b))
        table.append(("", figure.label, *values, f"× {q.number(figure.ratio)}" if figure.ratio is not None else ""))
    yield ""
    yield from _aligned(table)
    for title, pairs in (("parameters that differ", found.parameters), ("environment that differs", found.environment)):
        if pairs:
            yield ""
            yield title
            yield from (f"  {pair.name}: {pair.a or 'none'} → {pair.b or 'none'}" for pair in pairs)


def _aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        mark, title, *numbers = row
        cells = [f"{mark:<{widths[0]}}", f"{title:<{widths[1]}}"]
        cells += [f"{text:>{width}}" for text, width in zip(numbers, widths[2:], strict=True)]
        yield "  ".join(cells).rstrip()
