"""Identifiers that must come out the same wherever they are made."""

from __future__ import annotations

import secrets
from uuid import UUID, uuid4, uuid5

_LOADED = UUID("6d0ab0e0-6f0b-5a59-9d0c-5a1d3c1f7a44")  # namespace of everything that a loader names


def loaded_id(*parts: str) -> UUID:
    """UUIDv5 of a source and a name: a loaded project keeps its id, so that an allowlist can precede the load."""
    return uuid5(_LOADED, "\x1f".join(parts))


def new_id() -> UUID:
    return uuid4()


def new_token() -> str:
    """128 random bits as text: names an owner, a candidate or a run; never a secret."""
    return secrets.token_hex(16)
