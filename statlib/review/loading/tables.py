"""CSV files as rows with the number that a spreadsheet shows; damage is reported per row.

Invariant: every line of a file ends up in a yielded row, a reported problem, or is blank. After a record that is not
valid CSV, reading goes on at the line below its first, so that an unclosed quote costs its own row and no other.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from statlib.kernel.refusals import Refusal
from statlib.review.loading.review import LoadReason, RowProblem

DIGEST_DIGITS_SHOWN = 16
DELIMITERS = (",", ";", "\t")
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
    _records: Iterator[tuple[int, list[str] | csv.Error]] = field(default_factory=lambda: iter(()))

    @property
    def source(self) -> str:
        """The file as provenance names it."""
        return f"{self.name} (SHA-256 {self.digest[:DIGEST_DIGITS_SHOWN]}…)"

    def report(self, row: int, reason: str) -> None:
        self.problems.append(RowProblem(self.name, row, reason))

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

    Refuses ExportUnreadable (missing, not a file, UTF-16, no header) and FormatUnknown (a ``required`` column that the
    header lacks or has twice).
    """
    content = _content(path)
    # newline="" keeps line breaks inside quotes as they are; undecodable bytes come back as lone surrogates,
    # so that they cost a row and not the file.
    text = content.decode("utf-8-sig", errors="surrogateescape")
    lines = list(io.StringIO(text, newline=""))
    records = _records(lines, _delimiter(lines))
    _, header = next(records, (1, []))
    if isinstance(header, csv.Error) or not any(header):
        raise Refusal(LoadReason.ExportUnreadable, f"{path.name} has no header line")
    names = tuple(name.strip() for name in header)
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
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".csv" and path.is_file())
    except OSError as error:
        raise Refusal(LoadReason.ExportUnreadable, f"{folder}: {error.strerror}") from error
    return {path: _header(path) for path in paths}


def _header(path: Path) -> tuple[str, ...]:
    try:
        return read_table(path).header
    except Refusal as refusal:
        if refusal.detail.endswith("no header line"):
            return ()
        raise


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Refusal(LoadReason.ExportUnreadable, f"{path}: {error.strerror}") from error
    if content.startswith(_UTF16_MARKS):
        raise Refusal(LoadReason.ExportUnreadable, f"{path.name} is UTF-16, expected UTF-8")
    return content


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
