"""The one way to run a PostgreSQL transaction.

``transact`` runs a body at READ COMMITTED with bounded statements and lock waits. What ends it is one of three:

* the commit is known to have happened: the body's value is returned;
* it is known not to have happened: a serialisation failure or deadlock reruns the body as often as the caller allows,
  then ``PostgresContended`` is refused; any other error is raised once the transaction is rolled back;
* the connection was lost under the commit: ``PostgresCommitUnknown`` is refused. The caller resolves it from what the
  transaction would have left, read ``FOR UPDATE``: a commit still under way holds its row locks, so that read waits.

A body has no effect outside its session.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow

from statlib.kernel.refusals import Fault, Refusal
from statlib.postgres.connection import Postgres
from statlib.postgres.reasons import PostgresReason

T = TypeVar("T")
Row = Mapping[str, Any]

STATEMENT_S = 10.0  # of a statement whose caller names no bound
LOCK_S = 5.0  # of a wait for a lock whose caller names no bound
RERUNS_MAX = 5
_ABORTED = (errors.SerializationFailure, errors.DeadlockDetected)
_LOCAL = """
SELECT set_config('statement_timeout', %(statement_ms)s, true), set_config('lock_timeout', %(lock_ms)s, true),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s, true)
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a statement, a wait for a lock, and the client's silence within the transaction may last, in seconds."""

    statement_s: float = STATEMENT_S
    lock_s: float = LOCK_S
    idle_s: float = 30.0


class Session:
    """What a body works with: statements in one open transaction."""

    __slots__ = ("_connection",)

    def __init__(self, connection: psycopg.Connection[DictRow]) -> None:
        self._connection = connection

    def one(self, statement: str, /, **values: Any) -> Row | None:
        """The first row of the answer, or None."""
        return self._connection.execute(statement.encode(), values).fetchone()

    def all(self, statement: str, /, **values: Any) -> list[DictRow]:
        """Every row of the answer."""
        return self._connection.execute(statement.encode(), values).fetchall()

    def run(self, statement: str, /, **values: Any) -> int:
        """How many rows the statement touched."""
        return self._connection.execute(statement.encode(), values).rowcount

    def required(self, statement: str, /, **values: Any) -> Row:
        """The one row that must be there. Fault otherwise."""
        row = self.one(statement, **values)
        if row is None:
            raise Fault("a statement that always answers with a row gave none")
        return row


def transact(
    postgres: Postgres,
    body: Callable[[Session], T],
    *,
    limits: Limits = Limits(),
    read_only: bool = False,
    reruns_max: int = RERUNS_MAX,
) -> T:
    """Run ``body`` to a known end.

    ``read_only``: the server refuses every write of it. Raises Refusal PostgresUnreachable, PostgresContended or
    PostgresCommitUnknown, and whatever the body raises, psycopg's errors included, after the rollback.
    """
    for rerun in range(reruns_max + 1):
        try:
            with postgres.lend() as connection:
                return _once(connection, body, limits, read_only=read_only)
        except _ABORTED as error:
            if rerun == reruns_max:
                raise Refusal(PostgresReason.PostgresContended, f"given up after {rerun + 1} aborts") from error
            time.sleep(random.uniform(0, 0.002 * 2 ** min(rerun, 5)))  # noqa: S311 - spreads rivals
    raise AssertionError("unreachable: the last rerun returns or raises")


def _once(
    connection: psycopg.Connection[DictRow], body: Callable[[Session], T], limits: Limits, *, read_only: bool
) -> T:
    connection.read_only = read_only
    try:
        session = Session(connection)
        session.one(
            _LOCAL,
            statement_ms=_milliseconds(limits.statement_s),
            lock_ms=_milliseconds(limits.lock_s),
            idle_ms=_milliseconds(limits.idle_s),
        )
        value = body(session)
    except psycopg.OperationalError as error:
        _roll_back(connection)
        if connection.closed and not isinstance(error, errors.IdleInTransactionSessionTimeout):
            raise Refusal(PostgresReason.PostgresUnreachable, "the connection was lost") from error
        raise
    except BaseException:
        _roll_back(connection)
        raise
    _commit(connection)
    return value


def _commit(connection: psycopg.Connection[DictRow]) -> None:
    """Only an answer of the server is proof of an abort; a connection that broke under the commit proves nothing."""
    try:
        connection.commit()
    except psycopg.Error as error:
        if connection.info.transaction_status is TransactionStatus.UNKNOWN or connection.broken:
            raise Refusal(PostgresReason.PostgresCommitUnknown, "the connection was lost") from error
        _roll_back(connection)
        raise
    except BaseException as error:  # interrupted while the server was committing
        connection.close()
        raise Refusal(PostgresReason.PostgresCommitUnknown, "interrupted during the commit") from error


def _roll_back(connection: psycopg.Connection[DictRow]) -> None:
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()  # the server ends the transaction with its connection


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
