"""The append-only journal of one run, as a file of hash-chained JSON lines.

Invariant: an ``append`` that returned is on disk, whole, at the end of an unbroken chain. Every append holds an
exclusive lock on the file and first reads what others appended, so that the process that executes a notebook
and the kernel inside it may share one journal. A crash leaves at most one torn last line; whoever appends next
cuts it off and says so in a ``Recovered`` entry, because a line that never returned never counted.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from statlib.evidence.entries import Chain, Damage, Entry, EntryKind, compose, scan
from statlib.evidence.json_values import Json, encode, sha256_of
from statlib.evidence.reasons import EvidenceReason
from statlib.kernel.clock import Clock
from statlib.kernel.refusals import Fault, Refusal

__all__ = ["Entry", "EntryKind", "Journal", "read_journal"]


class Journal:
    """Opens or continues the journal at ``path``. Refuses JournalDamaged if what is there is no whole chain.

    Safe among threads and among processes on one machine, and against KeyboardInterrupt; not to be used in a signal
    handler. ``clock`` gives the label ``at`` only. ``redact`` masks what must not be stored, in the text of an entry
    here and of a row in the captures beside it.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None, redact: Callable[[str], str] | None = None) -> None:
        self.path = path
        self._redact = redact
        self._clock = clock or Clock()
        self._mutex = threading.Lock()
        self._chain = Chain()
        self._end = 0
        self._settled = True
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            sync_folder(path.parent)
            with self._alone():
                pass
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def head(self) -> str:
        """The hash of the last entry, others' included; 64 zeros if there is none."""
        with self._alone():
            return self._chain.head

    @property
    def clock_offset_ms(self) -> int:
        """By how much the clock that labels its entries is advanced now."""
        return self._clock.offset_ms

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every entry so far, others' included."""
        with self._alone():
            return tuple(self._chain.entries)

    def append(self, kind: EntryKind, /, **data: Json) -> Entry:
        """Write one entry and return once it is on disk. An append that was interrupted may be there or not.

        Refuses RunIsClosed after RunClosed. Raises Fault if ``data`` lacks what the kind must say, or if the disk
        refuses; the journal then ends with the entry before.
        """
        with self._alone():
            if self._closed:
                raise Refusal(EvidenceReason.RunIsClosed, f"{self.path} is closed; {kind} was not appended")
            return self._write(kind, json.loads(self.redacted(encode(data))) if self._redact else data)

    def redacted(self, content: bytes) -> bytes:
        """Encoded JSON with what must not be stored masked."""
        return self._redact(content.decode()).encode() if self._redact else content

    def close(self) -> None:
        """Give the file back. The run stays open: only a RunClosed entry ends it."""
        with self._mutex:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _closed(self) -> bool:
        return bool(self._chain.entries) and self._chain.entries[-1].kind is EntryKind.RunClosed

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the file, and know everything in it."""
        with self._mutex:
            if self._descriptor < 0:
                raise Fault(f"the journal {self.path} was closed in this process", remedy="Open it again.")
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                if not self._settled:  # an interrupt may have struck between the file's state and ours
                    self._chain, self._end = Chain(), 0
                self._settled = False
                self._catch_up()
                yield
                self._settled = True
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size == self._end:
            return
        if size < self._end:
            raise Refusal(EvidenceReason.JournalDamaged, f"{self.path} lost {self._end - size} bytes while in use")
        content = self._read(self._end, size)
        *lines, torn = content.split(b"\n")
        for text in lines:
            self._chain.read(text)
        if self._chain.damage:
            raise Refusal(EvidenceReason.JournalDamaged, _describe(self.path, self._chain.damage[0]))
        self._end = size - len(torn)
        if torn:
            self._cut(torn)

    def _cut(self, torn: bytes) -> None:
        if self._closed:
            raise Refusal(EvidenceReason.JournalDamaged, f"{self.path} has {len(torn)} bytes after its closing entry")
        os.ftruncate(self._descriptor, self._end)
        os.fsync(self._descriptor)
        self._write(EntryKind.Recovered, {"cut_bytes": len(torn), "cut_sha256": sha256_of(torn)})

    def _read(self, start: int, end: int) -> bytes:
        pieces = []
        while start < end and (piece := os.pread(self._descriptor, end - start, start)):
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)

    def _write(self, kind: EntryKind, data: dict[str, Json]) -> Entry:
        entry, line = compose(
            kind, data, at=self._clock.local_utc(), seq=self._chain.seq + 1, previous=self._chain.head
        )
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except OSError as error:
            # Without the cut, a half-written line would be taken for a crash's; with it the chain ends where it ended.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            raise Fault(
                f"the journal {self.path} could not be written: {error.strerror}",
                remedy="Free space or mend the disk; what was appended before is whole.",
            ) from error
        self._end += len(line)
        self._chain.read(line[:-1])
        return entry


def read_journal(path: Path) -> tuple[Entry, ...]:
    """Every entry of a journal nobody writes to. Refuses JournalDamaged, naming the first line that is wrong."""
    try:
        chain, torn = scan(path.read_bytes())
    except OSError as error:
        raise Refusal(EvidenceReason.JournalDamaged, f"{path} cannot be read: {error.strerror}") from error
    if torn:
        chain.damage.append(Damage(chain.line + 1, "is torn: it has no line end"))
    if chain.damage:
        raise Refusal(EvidenceReason.JournalDamaged, _describe(path, chain.damage[0]))
    return tuple(chain.entries)


def sync_folder(folder: Path) -> None:
    """Make names created or renamed in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _describe(path: Path, damage: Damage) -> str:
    return f"{path} line {damage.line} {damage.what}"
