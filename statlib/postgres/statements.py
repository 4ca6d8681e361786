"""SQL that lives in files: each statement named, described, and written once.

A file holds statements that each begin with ``-- name: what_it_does`` and a comment that says why it is as it is.
``{now}`` in a statement stands for the clock's expression of the present.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from statlib.kernel.clock import Clock

_HEAD = re.compile(r"^-- name: (?P<name>\w+)$", re.MULTILINE)


@cache
def statements(package: str, file: str) -> Mapping[str, str]:
    """Every statement of ``file`` in ``package``, by name. ValueError if a name comes twice."""
    text = files(package).joinpath(file).read_text(encoding="utf-8")
    parts = _HEAD.split(text)[1:]
    found: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise ValueError(f"{file}: {name} comes twice")
        found[name] = body.strip()
    return found


def at(clock: Clock, statement: str) -> str:
    """The statement with the present put in."""
    return statement.replace("{now}", clock.postgres_now())
