"""What a credential looks like, so that none is stored with a report.

These are rules of thumb: they know shapes and names, not meanings. The credentials that this process itself
holds are recognised exactly, whatever their shape.
"""

from __future__ import annotations

import json
import re
from typing import Any, get_args

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

KNOWN_LENGTH_MIN = 6  # a shorter credential would be found inside ordinary words

_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|credential|bearer|api_?key|access_?key|private_?key|auth_?key"
    r"|(^|_)(pwd|token|jwt|cookie)($|_)",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"[a-z][a-z0-9+.-]*://[^\s/@:]*:[^\s/@]+@"  # a URI with a password in it
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON web token
    r"|\b(bearer|basic)\s+[\w+/=.~-]{16,}"
    r"|\b(AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\b(gh[oprsu]_|github_pat_|glpat-|xox[abprs]-|sk-|pypi-)[\w-]{16,}"
    r"|\b(password|passwd|pwd|secret|token|api_?key)\s*[=:]\s*\S+",
    re.IGNORECASE,
)


def names_credential(name: str) -> bool:
    """True if a field of this name would be expected to hold one."""
    return bool(_NAME.search(name))


def types_credential(annotation: Any) -> bool:
    """True if the annotation has one of pydantic's secret types in it."""
    return annotation in (SecretStr, SecretBytes) or any(types_credential(part) for part in get_args(annotation))


def carries_credential(value: object, known: tuple[str, ...] = ()) -> bool:
    """True if the value, or a text anywhere in it, has such a shape or contains one of ``known``."""
    text = value if isinstance(value, str) else json.dumps(to_jsonable_python(value, fallback=str))
    return bool(_VALUE.search(text)) or any(len(secret) >= KNOWN_LENGTH_MIN and secret in text for secret in known)


def credentials_in(settings: BaseModel) -> tuple[str, ...]:
    """Every non-empty secret of a settings tree, in clear: to compare with, never to show."""
    found: list[str] = []
    for value in dict(settings).values():
        if isinstance(value, SecretStr) and value.get_secret_value():
            found.append(value.get_secret_value())
        elif isinstance(value, BaseModel):
            found.extend(credentials_in(value))
    return tuple(found)
