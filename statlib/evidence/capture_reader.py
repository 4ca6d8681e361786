"""Reads captures back, typed, in the way that gates rely on.

A capture may have been written more than once (``window.json``, ``window-2.json``): of a single value the last
written counts, of rows all parts count in the order in which they were journaled. What is missing, malformed or
incomplete is refused by reason and never stands for zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from statlib.evidence.entries import CaptureData, Entry, EntryKind
from statlib.evidence.reasons import EvidenceReason
from statlib.kernel.refusals import Refusal

Model = TypeVar("Model", bound=BaseModel)


class CaptureReader:
    """The captures below ``folder`` (the evidence folder) that ``entries`` journal; other files do not exist for it."""

    def __init__(self, folder: Path, entries: Iterable[Entry]) -> None:
        self._folder = folder
        self._parts: dict[str, list[CaptureData]] = {}
        for entry in entries:
            if entry.kind is EntryKind.Capture:
                data = CaptureData.model_validate(entry.data)
                suffix = Path(data.file).suffix
                self._parts.setdefault(data.name + suffix, []).append(data)

    def files(self, capture: str) -> tuple[str, ...]:
        """The files that ``window.json`` or ``reads.jsonl`` stands for, relative to the evidence folder."""
        return tuple(part.file for part in self._parts.get(capture, ()))

    def document(self, name: str, model: type[Model]) -> Model:
        """The last value written as ``name``. Refuses CaptureMissing, CaptureMalformed, CaptureIncomplete."""
        part = self._usable(f"{name}.json")[-1]
        try:
            return model.model_validate_json(self._path(part).read_bytes())
        except OSError as error:
            raise Refusal(EvidenceReason.CaptureMissing, f"{part.file} cannot be read") from error
        except ValidationError as error:
            raise Refusal(EvidenceReason.CaptureMalformed, f"{part.file}: {_first(error)}") from error

    def rows(self, name: str, model: type[Model]) -> Iterator[Model]:
        """Every row written as ``name``, read one at a time. Refuses as ``document`` does, naming the line."""
        for part in self._usable(f"{name}.jsonl"):
            yield from self._rows_of(part, model)

    def _rows_of(self, part: CaptureData, model: type[Model]) -> Iterator[Model]:
        line = 0
        try:
            with self._path(part).open("rb") as file:
                for text in file:
                    line += 1
                    yield model.model_validate_json(text)
        except OSError as error:
            raise Refusal(EvidenceReason.CaptureMissing, f"{part.file} cannot be read") from error
        except ValidationError as error:
            raise Refusal(EvidenceReason.CaptureMalformed, f"{part.file} line {line}: {_first(error)}") from error
        if part.rows != line:
            raise Refusal(EvidenceReason.CaptureMalformed, f"{part.file} has {line} rows, journaled {part.rows}")

    def _usable(self, capture: str) -> list[CaptureData]:
        parts = self._parts.get(capture)
        if not parts:
            raise Refusal(EvidenceReason.CaptureMissing, f"{capture} was not captured")
        for part in parts:
            if not part.complete:
                raise Refusal(EvidenceReason.CaptureIncomplete, f"{part.file} was cut short when its writer died")
        return parts

    def _path(self, part: CaptureData) -> Path:
        # A journal may come from anywhere; a capture is a plain name below its folder, or it does not exist.
        folder, _, name = part.file.partition("/")
        if folder != "captures" or not name or "/" in name or name in {".", ".."}:
            raise Refusal(EvidenceReason.CaptureMissing, f"{part.file} is outside the captures folder")
        return self._folder / folder / name


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'value'}: {first['msg']}"
