"""``statlib settings``: every setting, its value, and where that comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
from pydantic import BaseModel, SecretStr
from pydantic_settings import EnvSettingsSource, TomlConfigSettingsSource

from statlib.cli.output import answer, json_option
from statlib.kernel.settings import Settings, config_file, load_settings

HIDDEN = "(set, not shown)"


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting. ``origin``: ``default``, an environment variable, or the settings file."""

    name: str
    variable: str
    value: Any
    origin: str
    description: str


@click.command()
@json_option
def settings() -> None:
    """List every setting with its value, where that comes from, and what it means. Secrets are not shown."""
    found = tuple(described(load_settings()))
    width = max(len(one.name) for one in found)
    lines = []
    for one in found:
        lines.append(f"{one.name:<{width}}  {_text(one.value)}  [{one.origin}]")
        if one.description:
            lines.append(f"{'':<{width}}  {one.description}")
    answer({"file": config_file(), "settings": found}, lines)


def described(tree: Settings) -> Iterator[Shown]:
    """Every leaf of the tree, in declared order; a variable wins over the file, and the file over the default."""
    file = config_file()
    from_environment: Mapping[str, Any] = EnvSettingsSource(Settings)()
    from_file: Mapping[str, Any] = TomlConfigSettingsSource(Settings, file)() if file else {}
    for path, value, description in _leaves(tree, ()):
        variable = f"STATLIB__{'__'.join(path).upper()}"
        if _holds(from_environment, path):
            origin = f"environment, {variable}"
        elif _holds(from_file, path):
            origin = str(file)
        else:
            origin = "default"
        yield Shown(".".join(path), variable, _plain(value), origin, description)


def _leaves(tree: BaseModel, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    for name, field in type(tree).model_fields.items():
        value = getattr(tree, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value, field.description or ""


def _holds(given: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(given, Mapping) or name not in given:
            return False
        given = given[name]
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return HIDDEN if value.get_secret_value() else ""
    return sorted(value, key=str) if isinstance(value, frozenset) else value


def _text(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value) if str(value) else "empty"
