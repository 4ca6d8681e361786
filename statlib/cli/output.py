"""How commands answer: text for people, or one JSON document for programs."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click

_JSON = "statlib.json"
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    """Give a command ``--json``. ``answer`` and the handling of refusals find it; the function does not see it."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_remember,
        help="Answer with one JSON document on standard output.",
    )(command)


def wants_json(context: click.Context) -> bool:
    return bool(context.meta.get(_JSON))


def answer(value: Any, text: str | Sequence[str]) -> None:
    """Print ``value`` (a dataclass, mapping or sequence) as JSON if asked to, else ``text``, line by line.

    Names are what people typed: none of them may steer the reader's terminal.
    """
    if wants_json(click.get_current_context()):
        click.echo(json.dumps(plain(value), ensure_ascii=False))
        return
    for line in [text] if isinstance(text, str) else text:
        click.echo(_STEERING.sub("\N{REPLACEMENT CHARACTER}", line))


def counted(count: int, singular: str, several: str = "") -> str:
    """``1 row``, ``1,234 rows``; ``several`` where an s does not make the plural."""
    return f"{count:,} {singular if count == 1 else several or f'{singular}s'}"


def plain(value: Any) -> Any:
    """JSON values only: dataclasses become objects; enums, times, ids and paths become text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, datetime | UUID | Path):
        return value.isoformat() if isinstance(value, datetime) else str(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return value


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    del parameter
    if value:
        context.meta[_JSON] = True
