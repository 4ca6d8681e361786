"""JSON as evidence stores it: RFC 8785 bytes, so that equal meaning has equal hashes on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import rfc8785
from pydantic import BaseModel

from statlib.kernel.digests import canonical_json
from statlib.kernel.refusals import Fault

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What may be written. Numbers are finite; integers lie within ±(2⁵³ − 1), the range every JSON reader keeps."""

_CHUNK_BYTES = 1 << 20
_INTEGER_MAX = 2**53 - 1
_DIGITS_MAX = 40  # RFC 8785 writes an exponent from 1e21 on


def encode(value: Json | BaseModel) -> bytes:
    """Canonical bytes without a line end. Raises Fault for what JSON cannot say (NaN, a set, an object)."""
    plain: Any = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    try:
        return canonical_json(plain)
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise Fault(
            f"evidence takes JSON values with finite numbers only: {error}",
            remedy="Convert the value before it is written; evidence never rounds or drops on its own.",
        ) from error


def decode(text: bytes) -> Any:
    """The value of one JSON text. Raises ValueError on anything else, NaN and Infinity included.

    Whole numbers beyond ±(2⁵³ − 1) come back as floats, which is what they were: RFC 8785 writes 1e17 without an
    exponent, and only so does encoding a decoded value give the same bytes again.
    """
    try:
        return json.loads(text.decode("utf-8"), parse_constant=_refuse_constant, parse_int=_number)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """64 hexadecimal digits over the file's bytes, read in pieces: captures may be larger than memory."""
    running = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            running.update(chunk)
    return running.hexdigest()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _number(text: str) -> int | float:
    if len(text) > _DIGITS_MAX:
        raise ValueError("a number has too many digits")
    number = int(text)
    return number if abs(number) <= _INTEGER_MAX else float(text)
