"""Bearer tokens: kept hashed, compared in constant time, and resolved to a principal with capabilities."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from statlib.kernel.refusals import Fault

TOKEN_FILE = "tokens.json"  # noqa: S105 - a file's name
OPERATOR_TOKEN_FILE = "operator.token"  # noqa: S105


class Capability(StrEnum):
    """What a principal may do. Membership of a project grants none of them."""

    APPLICATION_ADMINISTRATOR = "application-administrator"
    AUDITOR = "auditor"


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    capabilities: frozenset[Capability]


class _StoredToken(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    sha256: str
    capabilities: frozenset[Capability]


class _TokenFile(BaseModel):
    tokens: tuple[_StoredToken, ...] = ()


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one file, re-read at each look-up, so that rotation needs no restart."""

    path: Path

    def principal(self, token: str) -> Principal | None:
        """Whose token it is; None if nobody's."""
        presented = _hash(token)
        found = None
        for stored in self._read().tokens:  # every one is compared: the time taken says nothing about a match
            if hmac.compare_digest(stored.sha256, presented):
                found = Principal(stored.name, stored.capabilities)
        return found

    def mint(self, name: str, capabilities: frozenset[Capability]) -> str:
        """A new token for ``name``, replacing the one it had. The plain text is returned once and kept nowhere."""
        token = secrets.token_urlsafe(32)
        others = tuple(stored for stored in self._read().tokens if stored.name != name)
        minted = _StoredToken(name=name, sha256=_hash(token), capabilities=capabilities)
        write_private(self.path, _TokenFile(tokens=(*others, minted)).model_dump_json(indent=1))
        return token

    def _read(self) -> _TokenFile:
        try:
            return _TokenFile.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return _TokenFile()
        except (ValidationError, json.JSONDecodeError) as error:
            raise Fault(f"the token file {self.path} is damaged", remedy="Delete it and mint new tokens.") from error


def embedded_token(data_dir: Path) -> str:
    """The operator token of a data folder, minted on first use; readable by its owner alone."""
    kept = data_dir / OPERATOR_TOKEN_FILE
    tokens = Tokens(data_dir / TOKEN_FILE)
    if kept.is_file():
        token = kept.read_text(encoding="ascii").strip()
        if tokens.principal(token) is not None:
            return token
    token = tokens.mint("operator", frozenset(Capability))
    write_private(kept, token)
    return token


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step, mode 600."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
