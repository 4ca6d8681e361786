"""``statlib reports site``: bring the pages up to date with the archive.

A runbook's folder that has not changed is not listed, a run that is known is not read, the trend of a runbook without
a new run is not drawn, and a page that a new run does not belong on is not written. What an update costs does so not
grow with the archive, but for the names in the one folder that changed, which are listed. The first page holds the
newest runs; every run is on its month's page, in parts of bounded size that fill up from the oldest, so that a full
part never changes again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from statlib.kernel.refusals import Refusal, SettingsReason
from statlib.runbook.archive import is_run_folder, run_at
from statlib.runbook.site import ledger as ledgers
from statlib.runbook.site.ledger import Ledger
from statlib.runbook.site.pages import (
    INDEX_NAME,
    index_page,
    look_digest,
    month_item,
    month_page,
    month_page_name,
    row,
    trend_item,
)
from statlib.runbook.site.records import RunRecord, month_of, read_record
from statlib.runbook.site.trends import RUNS_MAX, trend_of

INDEX_RUNS_MAX = 200
PART_RUNS_MAX = 250


@dataclass(frozen=True, slots=True)
class Update:
    """``unrecorded``: runs that are gone without a tombstone; somebody should know why."""

    index: Path
    runs: int
    added: int
    removed: int
    unreadable: int
    pages_written: int
    unrecorded: tuple[str, ...]
    seconds: float


@dataclass(slots=True)
class _Changes:
    added: list[RunRecord] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    runbooks: set[str] = field(default_factory=set)
    months_cut: set[str] = field(default_factory=set)


def update_site(archive: Path, *, tombstones: frozenset[str] = frozenset(), anew: bool = False) -> Update:
    """Write what changed. ``tombstones`` names removed runs (``runbook/folder``) that retention accounts for;
    ``anew`` reads and writes everything again. Refuses InputUnreadable if there is no such folder."""
    began = time.perf_counter()
    if not archive.is_dir():
        raise Refusal(SettingsReason.InputUnreadable, f"{archive} is not a folder")
    if anew:
        (archive / ledgers.LEDGER_NAME).unlink(missing_ok=True)
    with ledgers.opened(archive) as ledger:
        changes = _changes(archive, ledger)
        look = look_digest()
        stale = anew or ledger.look() != look or not (archive / INDEX_NAME).is_file()
        if ledger.look() not in ("", look):
            ledger.render_again(row)
        written = _write_pages(archive, ledger, changes, everything=stale)
        if stale:
            ledger.keep_look(look)
        months = ledger.months()
    return Update(
        index=archive / INDEX_NAME,
        runs=sum(month.runs for month in months),
        added=len(changes.added),
        removed=len(changes.removed),
        unreadable=sum(record.verdict is None for record in changes.added),
        pages_written=written,
        unrecorded=tuple(name for name in changes.removed if name not in tombstones),
        seconds=time.perf_counter() - began,
    )


def _changes(archive: Path, ledger: Ledger) -> _Changes:
    changes, found = _Changes(), set()
    now_ns = ledgers.touch(archive)
    with os.scandir(archive) as entries:
        runbooks = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    for runbook in runbooks:
        folder = archive / runbook
        changed_ns = folder.stat().st_mtime_ns
        found.add(runbook)
        if ledger.seen_ns(runbook) == changed_ns:
            continue
        _compare(archive, runbook, frozenset(os.listdir(folder)), ledger, changes)  # noqa: PTH208 - the names alone
        if changed_ns < now_ns:  # else it may change again under the same stamp
            ledger.see(runbook, changed_ns)
    for runbook in set(ledger.runbooks()) - found:
        _compare(archive, runbook, frozenset(), ledger, changes)
    return changes


def _compare(archive: Path, runbook: str, names: frozenset[str], ledger: Ledger, changes: _Changes) -> None:
    known, folder = ledger.folders(runbook), archive / runbook
    new = sorted(name for name in names - known if is_run_folder(name) and (folder / name).is_dir())
    records = [read_record(run_at(folder / name)) for name in new]
    ledger.add(records, row)
    changes.added += records
    gone = sorted(known - names)
    changes.months_cut |= ledger.drop(runbook, gone)
    changes.removed += [f"{runbook}/{name}" for name in gone]
    if new or gone:
        changes.runbooks.add(runbook)


def _write_pages(archive: Path, ledger: Ledger, changes: _Changes, *, everything: bool) -> int:
    if not (everything or changes.added or changes.removed):
        return 0
    months = ledger.months()
    links = {month.name: range(1, _parts(month.runs) + 1) for month in months}
    first_parts = dict.fromkeys(links, 1) if everything else _first_parts(ledger, changes)
    written = 0
    for name, first in first_parts.items():
        for part in links.get(name, range(0))[first - 1 :]:
            page = month_page(name, part, ledger.part_of_month(name, part, PART_RUNS_MAX))
            _replace(archive / month_page_name(name, part), page)
            written += 1
    for month in months:
        if month.name in first_parts:
            ledger.keep_month(month.name, month_item(month, links[month.name]))
    for runbook in changes.runbooks.union(ledger.runbooks() if everything else ()):
        if runs := ledger.of_runbook(runbook, RUNS_MAX):
            ledger.keep_trend(runbook, trend_item(trend_of(runs)))
        else:
            ledger.drop_trend(runbook)
    newest, failures = ledger.newest(INDEX_RUNS_MAX), ledger.last_failures(2)
    _replace(archive / INDEX_NAME, index_page(newest, months, ledger.month_items(), ledger.trends(), failures))
    if everything or changes.months_cut:
        _remove_left_over(archive, {month_page_name(name, part) for name, parts in links.items() for part in parts})
    return written + 1


def _first_parts(ledger: Ledger, changes: _Changes) -> Mapping[str, int]:
    """Of each month that changed, the oldest part that did: in it and in those after it runs have moved."""
    first = dict.fromkeys(changes.months_cut, 1)
    for record in changes.added:
        month, part = month_of(record.started), ledger.count_before(record) // PART_RUNS_MAX + 1
        first[month] = min(part, first.get(month, part))
    return first


def _remove_left_over(archive: Path, linked: Collection[str]) -> None:
    """Months and parts that have no run any more, once the first page does not lead there."""
    for path in archive.glob(month_page_name("*", 1)):
        if path.name not in linked:
            path.unlink(missing_ok=True)


def _parts(runs: int) -> int:
    return -(-runs // PART_RUNS_MAX)


def _replace(path: Path, content: str) -> None:
    """In one step, so that a reader never meets half a page."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(content, encoding="utf-8")
    temporary.replace(path)
