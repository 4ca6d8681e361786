"""The data folder's own PostgreSQL: started, migrated, written into its settings, and stopped again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import PostgresSettings, Settings
from statlib.local import config_file
from statlib.local.postgres import ADMINISTRATIVE_ROLE, RUNTIME_ROLE, require_folder, server_of
from statlib.local.reasons import LocalReason
from statlib.postgres.migrations import Migrated, migrate


@dataclass(frozen=True, slots=True)
class PostgresUp:
    """A server that takes writes. Its addresses hold passwords, so they are in the settings file alone."""

    outcome: str
    home: Path
    pid: int
    major: int
    config: Path
    migrated: Migrated

    def __str__(self) -> str:
        return f"PostgreSQL {self.major} {self.outcome} (process {self.pid}); its data are in {self.home}"


def up(settings: Settings, schema: Sequence[Path]) -> PostgresUp:
    """Make the folder's PostgreSQL run with its schema, and return once it takes writes; it outlives this process.

    Refuses as ``find_postgres`` and ``migrate`` do, and FolderUnusable.
    """
    require_folder(settings)
    server = server_of(settings)
    outcome = "reused" if server.process() is not None else "started"
    server.start()
    own = postgres_settings(settings)
    migrated = migrate(settings.model_copy(update={"postgres": own}), schema)
    config = config_file.write_postgres(
        settings.data_dir.resolve(), url=own.url.get_secret_value(), admin_url=own.admin_url.get_secret_value()
    )
    found = server.process()
    return PostgresUp(outcome, server.home, found.pid if found else 0, server.binaries.major, config, migrated)


def down(settings: Settings) -> bool:
    """Stop the folder's PostgreSQL; False if none ran, or if this machine has no PostgreSQL at all."""
    try:
        return server_of(settings).stop()
    except Refusal as refusal:
        if refusal.reason in {LocalReason.PostgresMissing, LocalReason.AccountMissing}:
            return False
        raise


def postgres_settings(settings: Settings) -> PostgresSettings:
    """Settings that reach the folder's server in both roles."""
    server = server_of(settings)
    return settings.postgres.model_copy(
        update={
            "url": SecretStr(server.address(RUNTIME_ROLE)),
            "admin_url": SecretStr(server.address(ADMINISTRATIVE_ROLE)),
        }
    )
