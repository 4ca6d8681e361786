"""JSON Web Tokens: signed by a known key, for this audience, by this issuer, and not out of date.

The algorithm is never the token's choice: it must be one of three asymmetric ones, and the one that the named key
is for. A key set that holds a secret (a symmetric or a private key) is refused whole; keys for anything else than
verifying these three are passed over, since issuers publish them side by side.
"""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import jwt

from statlib.admin.principals import NAME_PATTERN, Capability, Principal
from statlib.admin.reasons import AdminReason
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import JwtSettings

ALGORITHMS = ("RS256", "ES256", "EdDSA")
_REQUIRED_CLAIMS = ("exp", "iss", "aud", "sub")


class JsonWebTokens:
    """The provider that ``admin.jwt`` configures. Its key set is read again whenever the file has changed."""

    def __init__(self, settings: JwtSettings) -> None:
        if settings.jwks_file is None:
            raise ValueError("admin.jwt is not configured")
        self._settings = settings
        self._keys = _KeyFile(settings.jwks_file)

    def principal(self, token: str) -> Principal | None:
        """Who the token speaks for; None unless everything about it is right. Refuses AuthenticationUnavailable."""
        try:
            header = jwt.get_unverified_header(token)
            key = self._keys.find(header.get("kid"))
            if key is None or header.get("alg") != key.algorithm_name:
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                leeway=self._settings.leeway_s,
                options={"require": list(_REQUIRED_CLAIMS)},
            )
        except (jwt.InvalidTokenError, UnicodeError):
            return None
        subject = claims["sub"]
        if not re.fullmatch(NAME_PATTERN, subject):
            return None
        return Principal(f"jwt:{subject}", _capabilities(claims.get(self._settings.capabilities_claim)), "jwt")


class _KeyFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._read_as: tuple[int, int, int] | None = None
        self._keys: dict[str | None, jwt.PyJWK] = {}

    def find(self, kid: object) -> jwt.PyJWK | None:
        """The key of that id; a set of a single key needs no ids."""
        keys = self._current()
        if kid is None:
            return next(iter(keys.values())) if len(keys) == 1 else None
        return keys.get(kid) if isinstance(kid, str) else None

    def _current(self) -> dict[str | None, jwt.PyJWK]:
        with self._lock:
            try:
                stat = self._path.stat()
                version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
                if version != self._read_as:
                    self._keys = _parse(self._path.read_bytes())
                    self._read_as = version
            except (OSError, ValueError, TypeError, KeyError, AttributeError, jwt.PyJWTError) as error:
                raise Refusal(AdminReason.AuthenticationUnavailable, "the key set cannot be read") from error
            return self._keys


def _parse(text: bytes) -> dict[str | None, jwt.PyJWK]:
    keys: dict[str | None, jwt.PyJWK] = {}
    for described in json.loads(text)["keys"]:
        if described["kty"] == "oct" or "d" in described:
            raise ValueError("a secret among public keys")
        if described.get("use", "sig") == "sig" and described.get("alg", ALGORITHMS[0]) in ALGORITHMS:
            key = jwt.PyJWK(described)  # without "alg", its type and curve say what it is for
            if key.algorithm_name in ALGORITHMS:
                keys[described.get("kid")] = key
    return keys


def _capabilities(claimed: object) -> frozenset[Capability]:
    """What is claimed and known: a list, or a text with spaces between. Unknown names grant nothing."""
    names = claimed.split() if isinstance(claimed, str) else claimed
    known = {capability.value for capability in Capability}
    if not isinstance(names, list):
        return frozenset()
    return frozenset(Capability(name) for name in names if isinstance(name, str) and name in known)
