"""The one way in to PostgreSQL. The pool stays inside: whoever wants the database runs a transaction.

Invariant: what the restricted role is used for and what the administrative role is used for never share a pool.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import psycopg
from psycopg import conninfo, errors
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from statlib.kernel.clock import Clock
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.postgres.reasons import PostgresReason

OLDEST_VERSION = 140_000  # the oldest release whose xid functions and row comparisons are relied on
_CREDENTIALS = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification, errors.InvalidCatalogName)

logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # each failed reconnect would be told, and callers tell it


class PostgresRole(StrEnum):
    """As whom a process works."""

    RUNTIME = "runtime"
    ADMINISTRATIVE = "administrative"


@dataclass(frozen=True, slots=True)
class Postgres:
    """A connected database."""

    clock: Clock
    settings: Settings
    role: PostgresRole
    _pool: ConnectionPool[psycopg.Connection[DictRow]] = field(repr=False)

    @contextmanager
    def lend(self) -> Iterator[psycopg.Connection[DictRow]]:
        """A connection for ``statlib.postgres`` alone. Refuses PostgresUnreachable if none can be had in time."""
        try:
            connection = self._pool.getconn()
        except (PoolTimeout, PoolClosed) as error:
            raise Refusal(PostgresReason.PostgresUnreachable, "no connection in time") from error
        try:
            yield connection
        finally:
            self._pool.putconn(connection)


@contextmanager
def connected(
    settings: Settings, *, role: PostgresRole = PostgresRole.RUNTIME, app_name: str = "statlib"
) -> Iterator[Postgres]:
    """A ``Postgres`` for the length of a block; its connections are closed afterwards.

    Refuses PostgresNotConfigured, PostgresAddressInvalid, PostgresUnreachable, PostgresCredentialsRefused and
    PostgresTooOld before the block begins.
    """
    address = address_of(settings, role)
    options = {
        "autocommit": False,
        "row_factory": dict_row,
        "application_name": app_name,
        "connect_timeout": max(2, round(settings.postgres.connect_timeout_s)),
    }
    with _first(address, options) as first:
        if first.info.server_version < OLDEST_VERSION:
            raise Refusal(PostgresReason.PostgresTooOld, f"version {first.info.server_version // 10_000}")
    pool: ConnectionPool[psycopg.Connection[DictRow]] = ConnectionPool(
        address,
        min_size=1,
        max_size=settings.postgres.connections_max,
        kwargs=options,
        configure=_configure,
        check=ConnectionPool.check_connection,
        timeout=settings.postgres.connect_timeout_s,
        reconnect_timeout=5.0,
        name=app_name,
        open=True,
    )
    try:
        yield Postgres(settings.time, settings, role, pool)
    finally:
        pool.close()


def address_of(settings: Settings, role: PostgresRole) -> str:
    """The address for a role. Refuses PostgresNotConfigured, PostgresAddressInvalid."""
    chosen = settings.postgres.url if role is PostgresRole.RUNTIME else settings.postgres.admin_url
    address = chosen.get_secret_value()
    if not address:
        name = "postgres.url" if role is PostgresRole.RUNTIME else "postgres.admin_url"
        raise Refusal(PostgresReason.PostgresNotConfigured, f"{name} is empty")
    try:
        conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError as error:
        raise Refusal(PostgresReason.PostgresAddressInvalid, "it cannot be read") from error
    return address


@contextmanager
def _first(address: str, options: dict[str, Any]) -> Iterator[psycopg.Connection[DictRow]]:
    """One connection ahead of the pool, which would retry a wrong password until it gave up without a reason."""
    try:
        connection = psycopg.connect(address, **options)
    except psycopg.OperationalError as error:
        # libpq reports what was wrong with a login as text only
        text = str(error)
        denied = isinstance(error, _CREDENTIALS) or "authentication failed" in text or "does not exist" in text
        reason = PostgresReason.PostgresCredentialsRefused if denied else PostgresReason.PostgresUnreachable
        raise Refusal(reason, "at the first connection") from error
    try:
        yield connection
    finally:
        connection.close()


def _configure(connection: psycopg.Connection[DictRow]) -> None:
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.prepare_threshold = None  # plans for a window depend on its values
