"""The archive: where runs are kept, and the moment at which a folder becomes a run.

    reports/<runbook>/<UTC start>-<run id>/          a finished run, sealed
    reports/<runbook>/.working-<UTC start>-<run id>/  one that is under way, or that died without saying so

Invariant: a folder without the dot is complete. A run is written in its working folder and renamed once,
after it is sealed, so that neither a reader nor the site ever meets half a report.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from statlib.kernel.refusals import Fault, Refusal
from statlib.runbook.reasons import RunbookReason

ARCHIVE_DEFAULT = Path("reports")
ARCHIVE_VARIABLE = "STATLIB_ARCHIVE"
NOTEBOOK_NAME = "notebook.ipynb"
REPORT_NAME = "report.html"
EVIDENCE_NAME = "evidence"
JOURNAL_NAME = "journal.jsonl"
MANIFEST_NAME = "manifest.json"

_WORKING = ".working-"
_START_FORMAT = "%Y%m%dT%H%M%SZ"
_FOLDER = re.compile(r"(?P<start>\d{8}T\d{6}Z)-(?P<id>[0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's place. ``started`` is UTC to the second; ``run_id`` is 12 hexadecimal digits.

    ``made`` are the folders around it that were made for it, innermost first.
    """

    archive: Path
    runbook: str
    started: datetime
    run_id: str
    made: tuple[Path, ...] = field(default=(), compare=False, repr=False)

    @property
    def name(self) -> str:
        return f"{self.started.strftime(_START_FORMAT)}-{self.run_id}"

    @property
    def working(self) -> Path:
        return self.archive / self.runbook / f"{_WORKING}{self.name}"

    @property
    def final(self) -> Path:
        return self.archive / self.runbook / self.name

    @property
    def path(self) -> Path:
        """Where the files are now."""
        return self.final if self.final.is_dir() else self.working

    @property
    def finished(self) -> bool:
        return self.final.is_dir()

    @property
    def evidence(self) -> Path:
        return self.path / EVIDENCE_NAME

    @property
    def journal(self) -> Path:
        return self.evidence / JOURNAL_NAME

    @property
    def notebook(self) -> Path:
        return self.path / NOTEBOOK_NAME

    @property
    def report(self) -> Path:
        return self.path / REPORT_NAME

    def publish(self) -> Path:
        """Make the working folder a finished run, in one rename. Returns the final path."""
        try:
            return self.working.rename(self.final)
        except OSError as error:
            raise Fault(
                f"the run could not be archived as {self.final}", remedy=f"Its files are in {self.working}."
            ) from error

    def withdraw(self) -> None:
        """Take the working folder of a run that was refused away, and what was made around it unless others use it."""
        shutil.rmtree(self.working)
        with contextlib.suppress(OSError):  # the first that holds another run ends it
            for folder in self.made:
                folder.rmdir()


def archive_folder() -> Path:
    """Where a notebook opened by hand keeps its runs: the folder that STATLIB_ARCHIVE names, else ``reports`` here or,
    for a notebook in ``runbooks``, beside it."""
    if named := os.environ.get(ARCHIVE_VARIABLE):
        return Path(named)
    beside = Path("..") / ARCHIVE_DEFAULT
    return beside if not ARCHIVE_DEFAULT.is_dir() and beside.is_dir() else ARCHIVE_DEFAULT


def new_run(archive: Path, runbook: str) -> RunFolder:
    """Make a working folder for a run that starts now. Faults, with the folder, where it cannot be written."""
    place = archive.resolve()
    made = tuple(around for around in (place / runbook, place, *place.parents) if not around.exists())
    started = datetime.now(UTC).replace(microsecond=0)
    folder = RunFolder(place, runbook, started, secrets.token_hex(6), made)
    try:
        folder.evidence.mkdir(parents=True)
    except OSError as error:
        raise Fault(
            f"cannot write to the archive {archive}: {error.strerror}", remedy="Name another with --archive."
        ) from error
    return folder


def run_at(path: Path) -> RunFolder:
    """The run whose working or final folder is ``path``. Refuses RunNotFound if the name is not a run's."""
    match = _FOLDER.fullmatch(path.name.removeprefix(_WORKING))
    if match is None or not path.is_dir():
        raise Refusal(RunbookReason.RunNotFound, f"{path} is not the folder of a run")
    started = datetime.strptime(match["start"], _START_FORMAT).replace(tzinfo=UTC)
    return RunFolder(path.resolve().parents[1], path.parent.name, started, match["id"])


def is_run_folder(name: str) -> bool:
    """Whether a folder of that name is a finished run, by its name alone."""
    return _FOLDER.fullmatch(name) is not None


def find_runs(archive: Path, *, runbook: str | None = None) -> Iterator[RunFolder]:
    """Finished runs, newest first within each runbook; one directory listing per runbook, no file is opened."""
    yield from _runs(archive, runbook, working=False)


def find_unfinished(archive: Path, *, runbook: str | None = None) -> Iterator[RunFolder]:
    """Working folders: runs under way, and those whose process died. The same order."""
    yield from _runs(archive, runbook, working=True)


def find_unfinished_run(archive: Path, runbook: str, run_id: str) -> RunFolder:
    """The working folder of one run, to resume it. Refuses RunNotFound."""
    for folder in find_unfinished(archive, runbook=runbook):
        if folder.run_id == run_id:
            return folder
    raise Refusal(RunbookReason.RunNotFound, f"{runbook} has no unfinished run {run_id} in {archive}")


def _runs(archive: Path, runbook: str | None, *, working: bool) -> Iterator[RunFolder]:
    if not archive.is_dir():
        return
    names = [runbook] if runbook else sorted(entry.name for entry in archive.iterdir() if entry.is_dir())
    for name in names:
        if not (archive / name).is_dir():
            continue
        entries = (entry for entry in (archive / name).iterdir() if entry.name.startswith(_WORKING) == working)
        for entry in sorted(entries, key=lambda found: found.name, reverse=True):
            if _FOLDER.fullmatch(entry.name.removeprefix(_WORKING)) and entry.is_dir():
                yield run_at(entry)
