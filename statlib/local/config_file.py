"""The data folder's ``statlib.toml``: written by ``statlib up`` and ``statlib load``, edited by operators.

Invariant: an edit keeps every key, comment and order that it does not concern, and a reader meets the old file
or the new one, never a part.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import Any
from uuid import UUID

import tomlkit
from tomlkit.exceptions import TOMLKitError

from statlib.kernel.refusals import Refusal, SettingsReason
from statlib.local.reasons import LocalReason

FILE_NAME = "statlib.toml"
_HEAD = "Kept by `statlib up` and `statlib load`; other keys may be added, and stay."


def write_embedded(data_dir: Path, *, uri: str, database: str, families: Iterable[str]) -> Path:
    """Point the folder's settings at its own server, and return the file.

    The address and the folder are always set. The database, the clock's offset file, ``statistics.writes``,
    ``statistics.fold`` and ``statistics.ledger_maintenance`` (true) and the families are set only where the file does
    not say yet, so that an operator's choice stays.

    Refuses SettingsInvalid if the existing file is not TOML.
    """
    document = _read(data_dir / FILE_NAME)
    document["data_dir"] = str(data_dir)
    mongo = _section(document, "mongo")
    mongo["uri"] = uri
    mongo.setdefault("database", database)
    _section(document, "clock").setdefault("offset_file", str(data_dir / "clock_offset_ms"))
    statistics = _section(document, "statistics")
    statistics.setdefault("writes", True)
    statistics.setdefault("fold", True)
    statistics.setdefault("ledger_maintenance", True)
    statistics.setdefault("families", sorted(families))
    statistics.setdefault("allowlist", [])
    _replace(data_dir / FILE_NAME, document)
    return data_dir / FILE_NAME


def write_postgres(data_dir: Path, *, url: str, admin_url: str) -> Path:
    """Point the folder's settings at its own PostgreSQL, in both roles, and return the file."""
    document = _read(data_dir / FILE_NAME)
    document.setdefault("data_dir", str(data_dir))
    section = _section(document, "postgres")
    section["url"], section["admin_url"] = url, admin_url
    _replace(data_dir / FILE_NAME, document)
    return data_dir / FILE_NAME


def add_to_allowlist(data_dir: Path, project_id: UUID) -> bool:
    """Put one project under statistics. True if it was not yet there; refuses NotEmbedded without a file."""
    path = data_dir / FILE_NAME
    if not path.is_file():
        raise Refusal(LocalReason.NotEmbedded, f"{path} does not exist")
    document = _read(path)
    statistics = _section(document, "statistics")
    try:
        allowed = {UUID(str(entry)) for entry in statistics.get("allowlist", [])}
    except ValueError as error:
        raise Refusal(SettingsReason.SettingsInvalid, f"{path}: statistics.allowlist holds what is no id") from error
    if project_id in allowed:
        return False
    statistics["allowlist"] = sorted(str(entry) for entry in {*allowed, project_id})
    _replace(path, document)
    return True


def _read(path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        document = tomlkit.document()
        document.add(tomlkit.comment(_HEAD))
        return document
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise Refusal(SettingsReason.SettingsInvalid, f"{path} is not TOML: {error}") from error


def _section(document: tomlkit.TOMLDocument, name: str) -> MutableMapping[str, Any]:
    section = document.setdefault(name, tomlkit.table())
    if not isinstance(section, MutableMapping):
        raise Refusal(SettingsReason.SettingsInvalid, f"{name} is not a table")
    return section


def _replace(path: Path, document: tomlkit.TOMLDocument) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(tomlkit.dumps(document))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise
