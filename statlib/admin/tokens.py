"""Bearer tokens of one file: kept hashed, compared in constant time, rotated without a restart.

A name has at most two live tokens, so that a new one can be handed out before the old one is withdrawn; a third
replaces the oldest. Every change is made under a lock of the file and replaces it in one step: readers meet the old
file or the new one, and two minters at once lose nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from statlib.admin.principals import NAME_PATTERN, Capability, Principal
from statlib.admin.reasons import AdminReason, TokenReason
from statlib.kernel.refusals import Fault, Refusal

TOKEN_FILE = "tokens.json"  # noqa: S105 - a file's name
OPERATOR_TOKEN_FILE = "operator.token"  # noqa: S105
LIVE_PER_NAME_MAX = 2
LOCK_PATIENCE_S = 10.0


class StoredToken(BaseModel):
    """One token as it is kept. ``id`` names it in listings; it says nothing about the secret."""

    model_config = ConfigDict(frozen=True)

    id: str = ""
    name: str
    sha256: str
    capabilities: frozenset[Capability]
    created_at_utc: datetime = datetime.fromtimestamp(0, UTC)


class _TokenFile(BaseModel):
    tokens: tuple[StoredToken, ...] = ()


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one file, which is re-read at each look-up."""

    path: Path

    def principal(self, token: str) -> Principal | None:
        """Whose token it is; None if nobody's. Refuses AuthenticationUnavailable if the file cannot be read."""
        presented = _hash(token)
        found = None
        try:
            known = self.listed()
        except (Fault, OSError) as error:
            raise Refusal(AdminReason.AuthenticationUnavailable, "the token file cannot be read") from error
        for stored in known:  # every one is compared: the time taken says nothing about a match
            if hmac.compare_digest(stored.sha256, presented):
                found = Principal(stored.name, stored.capabilities)
        return found

    def listed(self) -> tuple[StoredToken, ...]:
        """Every live token, oldest first. Fault if the file is damaged."""
        try:
            return _TokenFile.model_validate_json(self.path.read_bytes()).tokens
        except FileNotFoundError:
            return ()
        except (ValidationError, json.JSONDecodeError) as error:
            raise Fault(f"the token file {self.path} is damaged", remedy="Delete it and mint new tokens.") from error

    def mint(self, name: str, capabilities: frozenset[Capability]) -> str:
        """A new token for ``name``, beside the newest one it had. The plain text is returned once and kept nowhere.

        Refuses TokenInvalid for an impossible name or no capability, TokenFileBusy.
        """
        if not re.fullmatch(NAME_PATTERN, name):
            raise Refusal(TokenReason.TokenInvalid, "a name is at most 80 letters, digits and . _ @ -")
        if not capabilities:
            raise Refusal(TokenReason.TokenInvalid, "a token has at least one capability")
        token = secrets.token_urlsafe(32)
        minted = StoredToken(
            id=secrets.token_hex(4),
            name=name,
            sha256=_hash(token),
            capabilities=capabilities,
            created_at_utc=datetime.now(UTC),
        )
        with self._locked():
            known = self.listed()
            own = [stored for stored in known if stored.name == name]
            gone = own[: max(0, len(own) - LIVE_PER_NAME_MAX + 1)]
            self._write((*(stored for stored in known if stored not in gone), minted))
        return token

    def revoke(self, name: str, *, id_: str | None = None) -> tuple[StoredToken, ...]:
        """Withdraw every token of ``name``, or the one called ``id_``; what was withdrawn. Refuses TokenUnknown."""
        with self._locked():
            known = self.listed()
            gone = tuple(t for t in known if t.name == name and id_ in {None, t.id})
            if not gone:
                raise Refusal(TokenReason.TokenUnknown, name if id_ is None else f"{name}, id {id_}")
            self._write(tuple(stored for stored in known if stored not in gone))
        return gone

    def _write(self, tokens: tuple[StoredToken, ...]) -> None:
        write_private(self.path, _TokenFile(tokens=tokens).model_dump_json(indent=1))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with FileLock(self.path.with_name(f"{self.path.name}.lock"), timeout=LOCK_PATIENCE_S, mode=0o600):
                yield
        except Timeout as error:
            raise Refusal(TokenReason.TokenFileBusy, f"not free within {LOCK_PATIENCE_S:.0f} s") from error


def embedded_token(data_dir: Path) -> str:
    """The operator token of a data folder, minted on first use; readable by its owner alone."""
    kept = data_dir / OPERATOR_TOKEN_FILE
    tokens = Tokens(data_dir / TOKEN_FILE)
    everything = frozenset(Capability)
    if kept.is_file():
        token = kept.read_text(encoding="ascii").strip()
        found = tokens.principal(token)
        if found is not None and found.capabilities == everything:
            return token
    token = tokens.mint("operator", everything)
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
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
