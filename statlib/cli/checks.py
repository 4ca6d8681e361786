"""What one check of ``statlib doctor`` found, and the checks of this machine: Python, packages, files, programs."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from statlib.kernel.installation import install_command
from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.local.binary import find_binary

PYTHON_OLDEST = (3, 11)
FREE_FAIL_BYTES = 512 * 1024**2  # a server stops taking writes before its journal has no room left
FREE_WARN_BYTES = 5 * 1024**3
EXTRAS = {
    "local": "starts the embedded database",
    "admin": "serves the boundary, which runbooks ask",
    "evidence": "signs and verifies reports",
    "notebooks": "runs runbooks",
    "metrics": "feeds Prometheus",
}
PRIVATE_FILES = ("statlib.toml", "operator.token", "tokens.json")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line. ``remedy`` is the command or the change that mends it; empty where nothing is to be mended."""

    name: str
    level: Level
    found: str
    remedy: str = ""


def machine_checks() -> Iterator[Check]:
    """What needs no settings."""
    yield python_check()
    for extra, purpose in EXTRAS.items():
        yield extra_check(extra, purpose)
    yield browser_check()


def folder_checks(settings: Settings) -> Iterator[Check]:
    """What the settings point to on this machine."""
    yield clock_check(settings)
    yield data_folder_check(settings.data_dir.expanduser())
    yield from private_file_checks(settings)
    yield disk_check(settings.data_dir.expanduser())
    yield mongod_check(settings)


def python_check() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= PYTHON_OLDEST:
        return Check("python", Level.OK, found)
    return Check("python", Level.FAIL, found, "Install Python 3.11 or later, and statlib into it.")


def extra_check(extra: str, purpose: str) -> Check:
    """Every package that the extra asks for, on this platform, in the version that it asks for."""
    asked = requirements_of(extra)
    lacking = [problem for one in asked if (problem := _problem(one))]
    if not asked:
        lacking = ["this installation does not know it"]
    if not lacking:
        return Check(f"extra {extra}", Level.OK, purpose)
    return Check(f"extra {extra}", Level.WARN, f"{', '.join(lacking)} ({purpose})", install_command(extra))


def requirements_of(extra: str) -> list[Requirement]:
    """What the extra adds here; another extra that it names is checked under its own name."""
    declared = [Requirement(line) for line in requires("statlib") or ()]
    return [
        one
        for one in declared
        if one.marker is not None
        and one.name != "statlib"
        and one.marker.evaluate({"extra": extra})
        and not one.marker.evaluate({"extra": ""})
    ]


def browser_check() -> Check:
    for name in BROWSERS:
        if found := shutil.which(name):
            return Check("browser", Level.OK, found)
    return Check(
        "browser", Level.OK, "none found; only printing reports to PDF from the command line wants one: "
        "apt-get install chromium",
    )  # fmt: skip


def clock_check(settings: Settings) -> Check:
    """An advanced clock belongs to a rehearsal; forgotten, it would outdate leases and label every run."""
    try:
        offset_ms = settings.time.offset_ms
    except (Fault, OSError) as error:
        return Check("clock", Level.FAIL, str(error), _remove(settings.clock.offset_file))
    if offset_ms:
        found = f"advanced by {offset_ms / 1000:,.0f} s: whatever runs now is accelerated, and says so"
        return Check("clock", Level.WARN, found, _remove(settings.clock.offset_file))
    return Check("clock", Level.OK, "the database's own")


def data_folder_check(folder: Path) -> Check:
    name = "data folder"
    if not folder.exists():
        parent = _nearest(folder)
        if os.access(parent, os.W_OK | os.X_OK):
            return Check(name, Level.OK, f"{folder} is made when it is needed")
        return Check(name, Level.FAIL, f"{folder} cannot be made: {parent} is not writable", _own(parent))
    if not folder.is_dir():
        return Check(name, Level.FAIL, f"{folder} is no folder", "Set data_dir to a folder.")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return Check(name, Level.FAIL, f"{folder} is not writable", _own(folder))
    if mode := folder.stat().st_mode & _OTHERS:
        return Check(name, Level.FAIL, f"{folder} is open to others ({mode:03o})", f"chmod 700 {_quoted(folder)}")
    return Check(name, Level.OK, str(folder))


def private_file_checks(settings: Settings) -> Iterator[Check]:
    """Files that hold tokens or addresses with passwords are their owner's alone."""
    files = [settings.data_dir.expanduser() / name for name in PRIVATE_FILES]
    if settings.admin.token_file is not None:
        files.append(settings.admin.token_file)
    for file in files:
        try:
            mode = file.stat().st_mode
        except OSError:
            continue
        if mode & _OTHERS:
            found = f"{file} is readable by others ({stat.S_IMODE(mode):03o})"
            yield Check("private file", Level.FAIL, found, f"chmod 600 {_quoted(file)}")
        else:
            yield Check("private file", Level.OK, str(file))


def disk_check(folder: Path) -> Check:
    place = _nearest(folder)
    free = shutil.disk_usage(place).free
    level = Level.FAIL if free < FREE_FAIL_BYTES else Level.WARN if free < FREE_WARN_BYTES else Level.OK
    remedy = "" if level is Level.OK else f"Free space there, or set data_dir elsewhere; du -sh {_quoted(place)}/*"
    return Check("disk space", level, f"{free / 1024**3:,.1f} GiB free at {place}", remedy)


def mongod_check(settings: Settings) -> Check:
    """Needed to start the embedded server; a deployment of one's own does without."""
    try:
        found = find_binary(settings)
    except Refusal as refusal:
        if settings.mongo.uri.get_secret_value():
            return Check("mongod", Level.OK, f"not usable here, and not needed: mongo.uri is set ({refusal.detail})")
        command = refusal.detail.partition("install with: ")[2] or refusal.remedy
        return Check("mongod", Level.FAIL, refusal.detail, command)
    return Check("mongod", Level.OK, f"{found.version_text}, {found.path} ({found.source})")


def _problem(one: Requirement) -> str:
    try:
        found = version(one.name)
    except PackageNotFoundError:
        return f"{one.name} is missing"
    return "" if one.specifier.contains(found, prereleases=True) else f"{one.name} is {found}, needs {one.specifier}"


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that exists."""
    path = folder.absolute()
    return next(place for place in (path, *path.parents) if place.exists())


def _own(folder: Path) -> str:
    return f'sudo chown "$USER" {_quoted(folder)}'


def _remove(file: Path | None) -> str:
    return f"rm {_quoted(file)}" if file else ""


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
