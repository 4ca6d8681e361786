"""A real PostgreSQL for tests: one server for the session, one migrated database for each test that asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from pydantic import SecretStr

from statlib.backfills import SCHEMA
from statlib.kernel.identifiers import new_token
from statlib.kernel.settings import BackfillSettings, ClockSettings, PostgresSettings, Settings
from statlib.local.postgres import (
    ADMINISTRATIVE_ROLE,
    RUNTIME_ROLE,
    SUPERUSER,
    PostgresServer,
    create_database,
)
from statlib.postgres.migrations import migrate


@dataclass(frozen=True)
class Database:
    """One database of the test's own. ``settings`` reach it in both roles; ``admin`` runs a statement as its owner."""

    server: PostgresServer
    name: str
    settings: Settings

    def admin(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.address(ADMINISTRATIVE_ROLE, self.name), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def session(self, role: str = ADMINISTRATIVE_ROLE) -> Iterator[psycopg.Connection]:
        """A connection of the test's own, for barriers; rolled back at the end."""
        with psycopg.connect(self.server.address(role, self.name)) as connection:
            try:
                yield connection
            finally:
                connection.rollback()


def settings_in(
    server: PostgresServer, name: str, folder: Path, *, base: Settings | None = None, **backfills: Any
) -> Settings:
    values: dict[str, Any] = {"claim_ttl_s": 30.0, "poll_s": 0.1, "turn_s": 30.0} | backfills
    return (base or Settings(data_dir=folder / "data")).model_copy(
        update={
            "postgres": PostgresSettings(
                url=SecretStr(server.address(RUNTIME_ROLE, name)),
                admin_url=SecretStr(server.address(ADMINISTRATIVE_ROLE, name)),
            ),
            "backfills": BackfillSettings(**values),
            "clock": ClockSettings(offset_file=folder / "clock_offset_ms"),
        }
    )


@dataclass
class Databases:
    """Makes migrated databases quickly, from a template."""

    server: PostgresServer
    template: str = "statlib_template"
    made: list[str] = field(default_factory=list)

    def prepare(self, folder: Path) -> None:
        self._create(self.template, "template1")
        migrate(settings_in(self.server, self.template, folder), [SCHEMA])

    def new(self, folder: Path, *, migrated: bool = True, **backfills: Any) -> Database:
        name = f"t{new_token()}"
        self._create(name, self.template if migrated else "template1")
        return Database(self.server, name, settings_in(self.server, name, folder, **backfills))

    def drop(self, name: str) -> None:
        with psycopg.connect(self.server.address(SUPERUSER, "postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _create(self, name: str, template: str) -> None:
        with psycopg.connect(self.server.address(SUPERUSER, "postgres"), autocommit=True) as connection:
            create_database(connection, name, template=template)
