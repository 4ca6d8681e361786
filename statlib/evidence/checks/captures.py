"""Captures against the journal: each journaled one is there unchanged, and each one there is journaled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from statlib.evidence.bundle import Bundle
from statlib.evidence.captures import FOLDER
from statlib.evidence.entries import CaptureData, Entry, EntryKind
from statlib.evidence.findings import Check, Finding
from statlib.evidence.json_values import sha256_of_file


def check_captures(bundle: Bundle, entries: Sequence[Entry]) -> Iterator[Finding]:
    root = bundle.name_of(bundle.evidence)
    journaled: dict[str, CaptureData] = {}
    for entry in entries:
        if entry.kind is EntryKind.Capture:
            data = CaptureData.model_validate(entry.data)
            if data.file in journaled:
                yield Finding(Check.CAPTURES, f"{root}/{data.file}", f"is journaled again in line {entry.seq}")
            journaled[data.file] = data
    present = {
        path.relative_to(bundle.evidence).as_posix(): path
        for path in bundle.files()
        if path.is_relative_to(bundle.captures) and path.is_file() and not path.is_symlink()
    }
    for file in sorted(journaled.keys() - present.keys()):
        yield Finding(Check.CAPTURES, f"{root}/{file}", f"is journaled and missing from {root}/{FOLDER}")
    for file in sorted(present.keys() - journaled.keys()):
        yield Finding(Check.CAPTURES, f"{root}/{file}", "is no capture that the journal knows")
    for file in sorted(journaled.keys() & present.keys()):
        try:
            if sha256_of_file(present[file]) != journaled[file].sha256:
                yield Finding(Check.CAPTURES, f"{root}/{file}", "does not have the SHA-256 that the journal gives")
        except OSError as error:
            yield Finding(Check.CAPTURES, f"{root}/{file}", f"cannot be read: {error.strerror}")
