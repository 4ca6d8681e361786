"""Digests: SHA-256 over RFC 8785 canonical JSON, so that equal meaning has equal bytes in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

import rfc8785


def canonical_json(value: Any) -> bytes:
    """RFC 8785 bytes. UUIDs become lower-case text, enums their value, times ISO 8601 in UTC."""
    return rfc8785.dumps(_plain(value))


def digest(value: Any) -> str:
    """64 lower-case hexadecimal digits over ``canonical_json(value)``."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value
