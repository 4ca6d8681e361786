"""Captures: raw numbers as files, each with its hash in the journal.

``captures/<name>.json`` holds one value, ``captures/<name>.jsonl`` one row a line, both canonical. Nothing is
ever overwritten: a name written again gets ``-2``, ``-3`` … after it. Invariant: a file's hash enters the
journal after the file is on disk, so a journaled capture always exists; the reverse, a file without an entry,
is what a crash leaves, and ``recover`` journals it as incomplete.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel

from statlib.evidence.entries import EntryKind
from statlib.evidence.journal import Journal, sync_folder
from statlib.evidence.json_values import Json, encode, sha256_of, sha256_of_file
from statlib.kernel.refusals import Fault

FOLDER = "captures"
_NAME = re.compile(r"[a-z][a-z0-9_]*(?:-[a-z][a-z0-9_]*)*")
_PART = re.compile(r"(?P<name>.+?)(?:-(?P<part>[0-9]+))?\.jsonl?")


@dataclass(frozen=True, slots=True)
class CaptureRef:
    """One capture as the journal holds it. ``file`` is relative to the evidence folder."""

    name: str
    file: str
    sha256: str
    size_bytes: int
    rows: int | None
    complete: bool


class Captures:
    """Writes captures below ``folder`` (the evidence folder: the one that holds ``journal.jsonl``)."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self._folder = folder
        self._journal = journal
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)

    def write(self, name: str, value: Json | BaseModel) -> CaptureRef:
        """Store one value. Raises Fault for a bad name or a value that JSON cannot say; nothing is then left behind."""
        content = self._journal.redacted(encode(value))
        descriptor, path = self._create(name, ".json")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
        return self._enter(CaptureRef(name, f"{FOLDER}/{path.name}", sha256_of(content), len(content), None, True))

    def lines(self, name: str) -> LineCapture:
        """Open a capture of many rows; use it as a context manager, or close it. The hash is journaled on closing."""
        descriptor, path = self._create(name, ".jsonl")
        sync_folder(path.parent)
        return LineCapture(self, name, path, descriptor)

    def recover(self) -> tuple[CaptureRef, ...]:
        """Journal, as incomplete, every file that a dead writer left without an entry. Call it before sealing a run
        whose process died, never while a ``lines`` capture is open anywhere."""
        known = {str(entry.data["file"]) for entry in self._journal.entries if entry.kind is EntryKind.Capture}
        found = []
        for path in sorted((self._folder / FOLDER).iterdir()):
            file = f"{FOLDER}/{path.name}"
            parts = _PART.fullmatch(path.name)
            if file in known or parts is None:
                continue
            if path.suffix == ".jsonl":
                found.append(self.enter_rows(parts["name"], path, complete=False))
            else:
                ref = CaptureRef(parts["name"], file, sha256_of_file(path), path.stat().st_size, None, complete=False)
                found.append(self._enter(ref))
        return tuple(found)

    def enter_rows(self, name: str, path: Path, *, complete: bool) -> CaptureRef:
        """Journal a file of rows as it lies on disk: what an interrupted ``append`` left is in the hash as well."""
        running, size_bytes, rows, line = hashlib.sha256(), 0, 0, b"\n"
        with path.open("rb") as file:
            for line in file:
                running.update(line)
                size_bytes += len(line)
                rows += 1
        whole = complete and line.endswith(b"\n")
        return self._enter(
            CaptureRef(name, f"{FOLDER}/{path.name}", running.hexdigest(), size_bytes, rows, complete=whole)
        )

    def _create(self, name: str, suffix: str) -> tuple[int, Path]:
        if not _NAME.fullmatch(name):
            raise Fault(
                f"{name!r} cannot name a capture",
                remedy="Use lower-case words joined by - or _; a number after a hyphen marks a repeated capture.",
            )
        part = 1
        while True:
            path = self._folder / FOLDER / (f"{name}{suffix}" if part == 1 else f"{name}-{part}{suffix}")
            try:
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), path
            except FileExistsError:
                part += 1

    def _enter(self, ref: CaptureRef) -> CaptureRef:
        self._journal.append(
            EntryKind.Capture,
            name=ref.name,
            file=ref.file,
            sha256=ref.sha256,
            size_bytes=ref.size_bytes,
            rows=ref.rows,
            complete=ref.complete,
        )
        return ref


class LineCapture:
    """Rows in the order of ``append``; safe among threads. Each row reaches the operating system at once, so that
    a killed process loses none it had written; the disk is forced on closing."""

    def __init__(self, captures: Captures, name: str, path: Path, descriptor: int) -> None:
        self._captures = captures
        self._name = name
        self._path = path
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._mutex = threading.Lock()
        self._ref: CaptureRef | None = None

    def append(self, row: Mapping[str, Json] | BaseModel) -> None:
        """Add one row. Raises Fault if JSON cannot say it, or after closing."""
        line = self._captures._journal.redacted(encode(row)) + b"\n"
        with self._mutex:
            if self._file.closed:
                raise Fault(f"the capture {self._path.name} is closed", remedy="Open another with lines().")
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) or 0 :]

    def close(self) -> CaptureRef:
        """Force the rows to disk and journal their hash. Closing again returns the same reference."""
        with self._mutex:
            if not self._file.closed:
                os.fsync(self._file.fileno())
                self._file.close()
            if self._ref is None:
                self._ref = self._captures.enter_rows(self._name, self._path, complete=True)
            return self._ref

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Also when the body failed: the rows written until then are evidence of what happened.
        self.close()
