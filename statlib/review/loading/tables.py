"""CSV files, plain or gzipped, as rows with the number that a spreadsheet shows; damage is reported per row.

Invariant: every line of a file ends up in a yielded row, a reported problem, or is blank. After a record that is not
valid CSV, reading goes on at the line below its first, so that an unclosed quote costs its own row and no other.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from statlib.kernel.refusals import Refusal
from statlib.review.loading.review import LoadReason, RowProblem, RowRemark

DIGEST_DIGITS_SHOWN = 16
DELIMITERS = (",", ";", "\t")
ENDINGS = (".csv", ".csv.gz")
HEADER_BYTES_MAX = 1 << 20
_GZIP = 16  # zlib: expect gzip's header and trailer
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Row:
    """One record. ``number`` counts as spreadsheets do: the header is row 1."""

    number: int
    values: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.values[column]

    def get(self, column: str) -> str:
        """The value, or an empty text where the file has no such column."""
        return self.values.get(column, "")


@dataclass(slots=True)
class Table:
    """One CSV file in memory. ``problems`` grows while ``rows`` is consumed, and by ``report``."""

    name: str
    header: tuple[str, ...]
    digest: str
    problems: list[RowProblem] = field(default_factory=list)
    remarks: list[RowRemark] = field(default_factory=list)
    _records: Iterator[tuple[int, list[str] | csv.Error]] = field(default_factory=lambda: iter(()))

    @property
    def source(self) -> str:
        """The file as provenance names it."""
        return f"{self.name} (SHA-256 {self.digest[:DIGEST_DIGITS_SHOWN]}…)"

    def report(self, row: int, reason: str) -> None:
        self.problems.append(RowProblem(self.name, row, reason))

    def remark(self, row: int, what: str) -> None:
        """Say what is odd about a row that is loaded all the same."""
        self.remarks.append(RowRemark(self.name, row, what))

    def rows(self) -> Iterator[Row]:
        """Well-formed rows in file order, once. Values are stripped of surrounding white space."""
        for number, record in self._records:
            if isinstance(record, csv.Error):
                self.report(number, f"is not valid CSV ({record})")
            elif not any(value.strip() for value in record):
                continue
            elif (damage := self._damage(record)) is not None:
                self.report(number, damage)
            else:
                yield Row(number, dict(zip(self.header, (value.strip() for value in record), strict=True)))

    def keyed_rows(self, column: str) -> Iterator[tuple[str, Row]]:
        """(key, row) of the rows whose ``column`` is filled and new; the others are reported."""
        numbers: dict[str, int] = {}
        for row in self.rows():
            key = row[column]
            if not key:
                self.report(row.number, f"{column} is empty")
            elif key in numbers:
                self.report(row.number, f"{column} {key} occurs already in row {numbers[key]}")
            else:
                numbers[key] = row.number
                yield key, row

    def _damage(self, record: Sequence[str]) -> str | None:
        if len(record) != len(self.header):
            return f"has {len(record)} columns where the header has {len(self.header)}"
        text = "".join(record)
        if "\x00" in text:
            return "holds a NUL character"
        if any("\ud800" <= character <= "\udfff" for character in text):
            return "holds bytes that are not UTF-8"
        return None


def read_table(path: Path, required: Sequence[str] = ()) -> Table:
    """Read a CSV file: UTF-8 with or without a mark, any line ends, comma, semicolon or tab by its header.

    A name in ``.gz`` is read through gzip; the digest is of the file as it lies there. Refuses ExportUnreadable
    (missing, not a file, UTF-16, no gzip, no header) and FormatUnknown (a ``required`` column that the header lacks or
    has twice).
    """
    content = _bytes(path)
    names, records = _parsed(path, _unpacked(path, content))
    if not names:
        raise Refusal(LoadReason.ExportUnreadable, f"{path.name} has no header line")
    for column in required:
        if (found := names.count(column)) != 1:
            raise Refusal(
                LoadReason.FormatUnknown,
                f"{path.name} has {'no column' if not found else f'{found} columns'} named {column!r}",
            )
    return Table(path.name, names, hashlib.sha256(content).hexdigest(), _records=records)


def headers(folder: Path) -> Mapping[Path, tuple[str, ...]]:
    """The header of each CSV file directly in ``folder``, by path in name order; empty where a file has none.

    Refuses ExportUnreadable for what is not a readable folder.
    """
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise Refusal(LoadReason.ExportUnreadable, f"{folder} {what}")
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.lower().endswith(ENDINGS) and path.is_file())
    except OSError as error:
        raise Refusal(LoadReason.ExportUnreadable, f"{folder}: {error.strerror}") from error
    return {path: _header(path) for path in paths}


def only(folder: Path, what: str, fitting: Sequence[Path], expected: str) -> Path:
    """The one file that fits. Refuses FormatUnknown without one, FormatAmbiguous if there are more."""
    if not fitting:
        raise Refusal(LoadReason.FormatUnknown, f"{folder} holds no {what}; expected {expected}")
    if len(fitting) > 1:
        names = ", ".join(path.name for path in fitting)
        raise Refusal(LoadReason.FormatAmbiguous, f"{folder} holds more than one {what}: {names}")
    return fitting[0]


def others(found: Mapping[Path, tuple[str, ...]], *read: str) -> tuple[str, ...]:
    """The names among ``found`` that are not among those ``read``."""
    return tuple(path.name for path in found if path.name not in read)


def _header(path: Path) -> tuple[str, ...]:
    """Read from the start of the file alone: every loader is shown every header."""
    return _parsed(path, _unpacked(path, _bytes(path, HEADER_BYTES_MAX), whole=False))[0]


def _parsed(path: Path, content: bytes) -> tuple[tuple[str, ...], Iterator[tuple[int, list[str] | csv.Error]]]:
    """(the header, empty if there is none; the records below it)"""
    if content.startswith(_UTF16_MARKS):
        raise Refusal(LoadReason.ExportUnreadable, f"{path.name} is UTF-16, expected UTF-8")
    # newline="" keeps line breaks inside quotes as they are; undecodable bytes come back as lone surrogates,
    # so that they cost a row and not the file.
    text = content.decode("utf-8-sig", errors="surrogateescape")
    lines = list(io.StringIO(text, newline=""))
    records = _records(lines, _delimiter(lines))
    _, header = next(records, (1, []))
    if isinstance(header, csv.Error) or not any(header):
        return (), records
    return tuple(name.strip() for name in header), records


def _bytes(path: Path, limit: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise Refusal(LoadReason.ExportUnreadable, f"{path}: {error.strerror}") from error


def _unpacked(path: Path, content: bytes, *, whole: bool = True) -> bytes:
    """``content`` without its gzip wrapping. ``whole``: refuse a file that ends too early."""
    if path.suffix.lower() != ".gz":
        return content
    try:
        if whole:
            return gzip.decompress(content)
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | _GZIP).decompress(content, HEADER_BYTES_MAX)
    except (OSError, EOFError, zlib.error) as error:
        raise Refusal(LoadReason.ExportUnreadable, f"{path.name} is not a whole gzip file ({error})") from error


def _delimiter(lines: Sequence[str]) -> str:
    header = lines[0] if lines else ""
    return max(DELIMITERS, key=header.count)


@dataclass(slots=True)
class _Lines:
    """Lines that can be read again from an earlier one, even after their end."""

    lines: Sequence[str]
    at: int = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.at >= len(self.lines):
            raise StopIteration
        line = self.lines[self.at]
        self.at += 1
        return line


def _records(lines: Sequence[str], delimiter: str) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """(row number, values or what is wrong) for each record, the header included; blank lines are empty records."""
    source = _Lines(lines)
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    number = 0
    while True:
        number += 1
        first = source.at
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            source.at = first + 1
            yield number, error
        else:
            yield number, record
