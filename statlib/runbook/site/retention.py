"""``statlib reports prune``: removing old runs, on demand, with a record of each.

Nothing is removed but by this, and nothing without ``apply``. A run that does not verify is kept whatever its age: it
may be the only trace of what happened to it. A run that did not pass is kept unless asked for by name of the option.
Every removal is a line in ``tombstones.jsonl``, each with the hash of the one before, written before the folder goes:
a crash in between leaves a run with a tombstone, which the next prune finishes.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from statlib.evidence.bundle import Bundle
from statlib.evidence.entries import Sha256
from statlib.evidence.journal import sync_folder
from statlib.evidence.json_values import encode, sha256_of
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import verify
from statlib.kernel.refusals import Fault, Refusal, SettingsReason
from statlib.runbook.archive import RunFolder, find_runs

TOMBSTONES_NAME = "tombstones.jsonl"
_REMOVING = ".removing-"
_START = "0" * 64


class Fate(StrEnum):
    """What becomes of a run that the rule reaches."""

    REMOVE = "remove"
    KEEP_UNVERIFIED = "kept: does not verify"
    KEEP_NOT_PASSED = "kept: did not pass (remove with --failed-too)"


class Tombstone(BaseModel):
    """What is left of a removed run: enough to know that it was, what it ended as, and what its bundle hashed to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runbook: str
    folder: str
    run_id: str
    started: AwareDatetime
    verdict: Verdict
    journal_head: Sha256
    manifest_sha256: Sha256
    files: int = Field(ge=1)
    size_bytes: int = Field(ge=0)
    rule: str
    removed_at: AwareDatetime
    removed_by: str
    previous: Sha256

    @property
    def name(self) -> str:
        return f"{self.runbook}/{self.folder}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A run is reached if it is older than ``keep_days`` *and* beyond the ``keep_last`` newest of its runbook; None:
    that bound does not speak. With neither, no run is reached."""

    keep_days: int | None = None
    keep_last: int | None = None
    failed_too: bool = False

    def __str__(self) -> str:
        parts = [f"older than {self.keep_days} days"] if self.keep_days is not None else []
        parts += [f"beyond the newest {self.keep_last} of its runbook"] if self.keep_last is not None else []
        return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class Reached:
    """One run that the rule reaches. ``verdict`` is None if the folder names none."""

    run: RunFolder
    fate: Fate
    verdict: Verdict | None
    why: str


def reached_by(archive: Path, rule: Rule, *, now: datetime | None = None) -> Iterator[Reached]:
    """Every run that the rule reaches, with its fate; changes nothing. Each is verified whole, so this takes time."""
    if not archive.is_dir():
        raise Refusal(SettingsReason.InputUnreadable, f"{archive} is not a folder")
    if rule.keep_days is None and rule.keep_last is None:
        return
    before = None if rule.keep_days is None else (now or datetime.now(UTC)) - timedelta(days=rule.keep_days)
    buried = {stone.name for stone in read_tombstones(archive)}
    places: dict[str, int] = {}
    for run in find_runs(archive):
        place = places[run.runbook] = places.get(run.runbook, 0) + 1
        recent = rule.keep_last is not None and place <= rule.keep_last
        if recent or (before is not None and run.started >= before):
            continue
        yield _judged(run, rule, already=f"{run.runbook}/{run.name}" in buried)


def remove(archive: Path, reached: Reached, rule: Rule) -> Tombstone:
    """Bury one run. Faults if it is not one to remove, or if its folder cannot be taken away."""
    if reached.fate is not Fate.REMOVE:
        raise Fault(f"{reached.run.final} is {reached.fate}", remedy="Leave it.")
    stones = read_tombstones(archive)
    name = f"{reached.run.runbook}/{reached.run.name}"
    stone = next((stone for stone in stones if stone.name == name), None) or _bury(archive, reached, rule)
    aside = reached.run.final.with_name(f"{_REMOVING}{reached.run.name}")
    try:
        reached.run.final.rename(aside)
        shutil.rmtree(aside)
    except OSError as error:
        raise Fault(f"{name} could not be removed", remedy="Its tombstone stands; prune again.") from error
    return stone


def finish_removals(archive: Path) -> None:
    """Take away what a prune that died had set aside: its tombstones stand already."""
    for aside in archive.glob(f"*/{_REMOVING}*"):
        with contextlib.suppress(OSError):
            shutil.rmtree(aside)


def read_tombstones(archive: Path) -> tuple[Tombstone, ...]:
    """Every removal, oldest first. Faults if the file is not the unbroken chain that it was written as."""
    try:
        lines = (archive / TOMBSTONES_NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    stones, previous = [], _START
    for number, line in enumerate(lines, start=1):
        try:
            stone = Tombstone.model_validate_json(line)
        except ValidationError as error:
            raise _broken(number) from error
        if stone.previous != previous:
            raise _broken(number)
        stones.append(stone)
        previous = sha256_of(line)
    return tuple(stones)


def _judged(run: RunFolder, rule: Rule, *, already: bool) -> Reached:
    found = verify(run.final)
    if already:
        return Reached(run, Fate.REMOVE, found.verdict, "its tombstone stands; the prune that wrote it died")
    if not found.ok:
        return Reached(run, Fate.KEEP_UNVERIFIED, found.verdict, str(found.findings[0]))
    passed = found.verdict is not None and (found.verdict.passing or found.verdict is Verdict.DRY_RUN_ONLY)
    if not passed and not rule.failed_too:
        return Reached(run, Fate.KEEP_NOT_PASSED, found.verdict, str(found.verdict))
    return Reached(run, Fate.REMOVE, found.verdict, str(rule))


def _bury(archive: Path, reached: Reached, rule: Rule) -> Tombstone:
    bundle = Bundle(reached.run.final)
    found = verify(bundle.folder)
    if not found.ok or found.verdict is None or found.journal_head is None:
        raise Fault(f"{bundle.folder} changed while it was judged", remedy=f"`statlib evidence verify {bundle.folder}`")
    path = archive / TOMBSTONES_NAME
    lines = path.read_bytes().splitlines() if path.is_file() else []
    files = [file for file in bundle.folder.rglob("*") if file.is_file()]
    stone = Tombstone(
        runbook=reached.run.runbook,
        folder=reached.run.name,
        run_id=reached.run.run_id,
        started=reached.run.started,
        verdict=found.verdict,
        journal_head=found.journal_head,
        manifest_sha256=sha256_of(bundle.manifest.read_bytes()),
        files=len(files),
        size_bytes=sum(file.stat().st_size for file in files),
        rule=f"{rule}{', failed runs too' if rule.failed_too else ''}",
        removed_at=datetime.now(UTC),
        removed_by=getpass.getuser(),
        previous=sha256_of(lines[-1]) if lines else _START,
    )
    with path.open("ab") as file:
        file.write(encode(stone.model_dump(mode="json")) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(archive)
    return stone


def _broken(line: int) -> Fault:
    return Fault(
        f"{TOMBSTONES_NAME} line {line} does not continue the record of removals",
        remedy="Keep the file as it is; move it aside to go on with a new record.",
    )
