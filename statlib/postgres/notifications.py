"""Wake-ups over LISTEN/NOTIFY. They carry no authority: a lost, doubled or late one changes nothing but the delay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from statlib.kernel.settings import Settings
from statlib.postgres.connection import PostgresRole, address_of
from statlib.postgres.transactions import Session


def notify(session: Session, channel: str) -> None:
    """Wake every listener once the transaction commits."""
    session.one("SELECT pg_notify(%(channel)s, '')", channel=channel)


class Listener:
    """A connection of its own that waits for a channel. Where it is broken, waiting is all that it still does."""

    def __init__(self, settings: Settings, channel: str) -> None:
        self._settings = settings
        self._channel = channel
        self._connection: psycopg.Connection | None = None

    def wait(self, seconds: float) -> bool:
        """Wait for a wake-up, at most so long; whether one came. False at once if the server cannot be reached."""
        try:
            return any(True for _ in self._listening().notifies(timeout=seconds, stop_after=1))
        except psycopg.Error:
            self.close()
            return False

    @property
    def healthy(self) -> bool:
        """Whether the connection stands: then waiting took its time."""
        return self._connection is not None and not self._connection.closed

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _listening(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            address = address_of(self._settings, PostgresRole.RUNTIME)
            self._connection = psycopg.connect(
                address, autocommit=True, connect_timeout=5, application_name="statlib-listener"
            )
            self._connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        return self._connection


@contextmanager
def listening(settings: Settings, channel: str) -> Iterator[Listener]:
    """A listener for the length of a block; the server is reached when it first waits."""
    listener = Listener(settings, channel)
    try:
        yield listener
    finally:
        listener.close()
