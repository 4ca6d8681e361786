"""Carrying out a mutating request exactly once: a repeated one is answered with its first outcome.

The outcome is kept in the same transaction as the change (or, for work of several transactions, with its last
record), under a key of principal, route, target and request id. So it survives a process that dies before it could
reply, and of two that race one is carried out and both are told the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

import pymongo
from psycopg import Error as PostgresError
from psycopg.errors import UniqueViolation
from pymongo.errors import DuplicateKeyError, PyMongoError

from statlib.admin.operations import Operations
from statlib.kernel.cancellation import Cancellation, cancellable_by
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import transact
from statlib.passes.actions import Action, Records
from statlib.passes.audit import MongoRecords, accept, begin, server_time
from statlib.postgres.reasons import PostgresReason

Wire = Mapping[str, Any]

_UNKNOWN = frozenset({MongoReason.CommitOutcomeUnknown, PostgresReason.PostgresCommitUnknown})
SETTLE_S = 12.0  # a driver may take ten seconds to find a server again that it lost sight of


def in_one_transaction(mongo: Mongo, action: Action, operation: Callable[[], Wire]) -> Wire:
    """For an operation that records ``action`` in its own transaction and returns what it recorded."""
    return once(MongoRecords(mongo), action, operation)


def once(records: Records, action: Action, operation: Callable[[], Wire]) -> Wire:
    """The same, for a system that keeps its records anywhere."""
    if (earlier := _replayed(records, action)) is not None:
        return earlier
    return _first_or_twin(records, action, operation)


def in_several_transactions(
    mongo: Mongo,
    operations: Operations,
    action: Action,
    connection: Cancellation,
    operation: Callable[[], Wire],
) -> Wire:
    """For work that spans transactions: the intent is recorded first, the outcome after the last of them.

    The operation must be safe to repeat: a process that dies in between leaves the intent, and a repeat does it again.
    It stops between two steps when ``connection`` says so.
    """
    records = MongoRecords(mongo)
    if (earlier := _replayed(records, action)) is not None:
        return earlier
    with operations.claimed(action, connection):
        if (earlier := _replayed(records, action)) is not None:  # a twin ended while this one waited for it
            return earlier
        begin(mongo, action, now=server_time(mongo))
        with cancellable_by(connection):
            outcome = operation()
        return _first_or_twin(records, action, lambda: _keep(mongo, action, outcome))


def _keep(mongo: Mongo, action: Action, outcome: Wire) -> Wire:
    now = server_time(mongo)
    transact(mongo, lambda session: accept(mongo, session, action, before={}, after=outcome, now=now))
    return outcome


def _first_or_twin(records: Records, action: Action, operation: Callable[[], Wire]) -> Wire:
    try:
        return operation()
    except (DuplicateKeyError, UniqueViolation) as error:  # the same request at the same time
        if (earlier := _replayed(records, action)) is not None:
            return earlier
        raise Refusal(MongoReason.Contended, "another came first") from error
    except Refusal as refusal:
        if refusal.reason in _UNKNOWN and (settled := _settled(records, action)) is not None:
            return settled  # it is stored, so it was committed
        raise


def _settled(records: Records, action: Action) -> Wire | None:
    """What became of an unknown commit, if that can be seen now. The commit may have used the request's own deadline
    up, so this looks outside of it, for a moment of its own."""

    def look() -> Wire | None:
        with pymongo.timeout(SETTLE_S):
            return records.recall(action)

    try:
        return Context().run(look)
    except (PyMongoError, PostgresError):
        return None


def _replayed(records: Records, action: Action) -> Wire | None:
    if (earlier := records.recall(action)) is not None:
        records.note_replay(action, earlier)
    return earlier
