"""Migrations: numbered .sql files, applied once each by the administrative role, and never edited afterwards.

yoyo orders, locks and applies them. The checksum of a file is written in the transaction that applies it, so a crash
leaves a migration applied with its checksum, or not applied. Invariant: a file that differs from what was applied is
refused before anything else happens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from yoyo import get_backend, read_migrations
from yoyo.migrations import MigrationStep

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.postgres.connection import Postgres, PostgresRole, address_of
from statlib.postgres.reasons import PostgresReason
from statlib.postgres.transactions import Session, transact

RUNTIME_ROLE = "statlib_runtime"
CHECKSUMS = "statlib_migration"
_CREATE = f"""
CREATE TABLE IF NOT EXISTS {CHECKSUMS} (
  migration text PRIMARY KEY, sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a run of ``migrate`` did: the migrations that it applied, and those that were there."""

    applied: tuple[str, ...]
    present: tuple[str, ...]


def migrate(settings: Settings, folders: Sequence[Path]) -> Migrated:
    """Apply what is outstanding, in order. Safe to repeat, also by several processes at once.

    Refuses MigrationEdited, MigrationUnknown, RuntimeRoleMissing, and as ``address_of`` does.
    """
    address = address_of(settings, PostgresRole.ADMINISTRATIVE)
    present = _prepare(address)
    files = _files(folders)
    _require_unedited(files, present)
    backend = get_backend(_for_yoyo(address))
    try:
        with backend.lock():
            backend.ensure_internal_schema_updated()
            done = _recorded(address)  # anew: another process may have held the lock until now
            applied = []
            for migration in backend.to_apply(read_migrations(*map(str, folders))):
                if migration.id in done:  # applied by a process that died before yoyo noted it
                    backend.mark_migrations([migration])
                    continue
                _record_within(migration, files[migration.id])
                backend.apply_one(migration)
                applied.append(migration.id)
    finally:
        backend.connection.close()
    return Migrated(tuple(applied), tuple(sorted(set(files) - set(applied))))


def require_schema(postgres: Postgres, folders: Sequence[Path]) -> None:
    """Refuses SchemaIncompatible if a migration of this release is outstanding, MigrationEdited if one differs.

    Reads only: the restricted role may ask. A database that is ahead is compatible, since schemas only grow.
    """
    files = _files(folders)

    def body(session: Session) -> dict[str, str]:
        there = session.required("SELECT to_regclass(%(table)s) IS NOT NULL AS there", table=CHECKSUMS)["there"]
        rows = session.all(f"SELECT migration, sha256 FROM {CHECKSUMS}") if there else []
        return {row["migration"]: row["sha256"] for row in rows}

    present = transact(postgres, body, read_only=True)
    missing = sorted(set(files) - set(present))
    if missing:
        raise Refusal(PostgresReason.SchemaIncompatible, f"outstanding: {', '.join(missing)}")
    _require_same(files, present)


def _files(folders: Sequence[Path]) -> dict[str, str]:
    """Checksum by migration."""
    return {
        path.stem: hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in sorted(folder.glob("*.sql"))
    }


def _prepare(address: str) -> dict[str, str]:
    with psycopg.connect(address, connect_timeout=10) as connection:
        role = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (RUNTIME_ROLE,)).fetchone()
        if role is None:
            raise Refusal(PostgresReason.RuntimeRoleMissing, RUNTIME_ROLE)
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('statlib_migration'))")
        connection.execute(_CREATE.encode())
        connection.execute(f"GRANT SELECT ON {CHECKSUMS} TO {RUNTIME_ROLE}".encode())
    return _recorded(address)


def _recorded(address: str) -> dict[str, str]:
    with psycopg.connect(address, connect_timeout=10) as connection:
        rows = connection.execute(f"SELECT migration, sha256 FROM {CHECKSUMS}".encode()).fetchall()
    return {str(name): str(checksum) for name, checksum in rows}


def _require_unedited(files: Mapping[str, str], present: Mapping[str, str]) -> None:
    unknown = sorted(set(present) - set(files))
    if unknown:
        raise Refusal(PostgresReason.MigrationUnknown, ", ".join(unknown))
    _require_same(files, present)


def _require_same(files: Mapping[str, str], present: Mapping[str, str]) -> None:
    edited = sorted(name for name, checksum in files.items() if present.get(name, checksum) != checksum)
    if edited:
        raise Refusal(PostgresReason.MigrationEdited, ", ".join(edited))


def _record_within(migration: Any, checksum: str) -> None:
    """Make writing the checksum the last step of the migration, in its own transaction."""
    migration.load()
    values = f"'{migration.id}', '{checksum}'"
    statement = f"INSERT INTO {CHECKSUMS} (migration, sha256) VALUES ({values})"
    migration.steps.append(MigrationStep(len(migration.steps), statement, None))


def _for_yoyo(address: str) -> str:
    scheme, _, rest = address.partition("://")
    return f"{scheme.partition('+')[0].replace('postgres', 'postgresql', scheme == 'postgres')}+psycopg://{rest}"
