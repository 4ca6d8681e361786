"""The one way to run a MongoDB transaction, and the one way to read a pinned snapshot.

``transact`` runs a body at snapshot read concern with a majority commit. What ends it is always one of three:

* the commit is known to have happened: the body's value is returned;
* it is known *not* to have happened (a definite abort): the body is run again, as often as the caller allows,
  then ``Contended`` is refused, with the last conflict as its cause;
* it cannot be known: the commit is repeated on the same session a bounded number of times, and then
  ``CommitOutcomeUnknown`` is refused. Nobody may take that for a no.

A body has no effect outside its session: it may be run more than once, and may be undone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import TypeVar

import pymongo
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason

T = TypeVar("T")
Body = Callable[[ClientSession], T]

COMMIT_RETRIES_MAX = 3
CLEAN_UP_S = 2.0  # for ending a transaction that will not be committed, on top of the caller's deadline
_TRANSIENT = "TransientTransactionError"
_NO_SUCH_TRANSACTION = 251
_MAJORITY = WriteConcern("majority")
_SNAPSHOT = ReadConcern("snapshot")


def transact(mongo: Mongo, body: Body[T], *, reruns_max: int = 20) -> T:
    """Run ``body`` to a known end. ``reruns_max`` is how many definite aborts are retried (0: none).

    Raises Refusal Contended or CommitOutcomeUnknown, and whatever the body raises after its transaction was aborted.
    """
    for rerun in range(reruns_max + 1):
        try:
            return _once(mongo, body)
        except PyMongoError as error:
            if not error.has_error_label(_TRANSIENT):
                raise
            if rerun == reruns_max:
                raise Refusal(MongoReason.Contended, f"given up after {rerun + 1} aborted transactions") from error
            back_off(rerun)
    raise AssertionError("unreachable: the last rerun returns or raises")


def back_off(attempt: int) -> None:
    """Wait a random time, at most 2, 4, 8 … 64 ms, so that rivals do not meet again in step."""
    time.sleep(random.uniform(0, 0.002 * 2 ** min(attempt, 5)))  # noqa: S311 - spreads rivals, keeps no secret


def _once(mongo: Mongo, body: Body[T]) -> T:
    with mongo.client.start_session() as session:
        session.start_transaction(_SNAPSHOT, _MAJORITY, ReadPreference.PRIMARY)
        try:
            value = body(session)
        except BaseException:
            if session.in_transaction:
                _beyond_the_deadline(session.abort_transaction)
            raise
        _commit(session)
        return value


def _commit(session: ClientSession) -> None:
    """Whatever is no definite abort is unknown: a commit that was interrupted, say, may have been applied before.

    Repeating a commit is safe: the server answers what became of the first.
    """
    unknown: PyMongoError | None = None
    for retry in range(COMMIT_RETRIES_MAX + 1):
        try:
            session.commit_transaction()
        except PyMongoError as error:
            if _definitely_not_committed(error, repeated=unknown is not None):
                raise
            unknown = error
            back_off(retry + 3)
        else:
            return
    _end_on_server(session)
    raise Refusal(
        MongoReason.CommitOutcomeUnknown, f"no answer after {COMMIT_RETRIES_MAX + 1} commit attempts"
    ) from unknown


def _end_on_server(session: ClientSession) -> None:
    """Abort the transaction if it is still open: it would block plain writes until its lifetime ran out.

    A committed one is not affected. Failing to reach the server leaves that to the lifetime limit.
    """
    with suppress(PyMongoError):
        _beyond_the_deadline(lambda: session.client.admin.command("killSessions", [session.session_id]))


def _beyond_the_deadline(clean_up: Callable[[], object]) -> None:
    """Run a clean-up that must reach the server even if the caller's own time is over, within ``CLEAN_UP_S``.

    An inner ``pymongo.timeout`` cannot outlast an outer one, so it needs a context of its own.
    """

    def bounded() -> None:
        with pymongo.timeout(CLEAN_UP_S):
            clean_up()

    Context().run(bounded)


def _definitely_not_committed(error: PyMongoError, *, repeated: bool) -> bool:
    """Whether the answer to a commit proves an abort: to a *repeated* one only that the server knows no transaction."""
    aborted = error.has_error_label(_TRANSIENT)
    return aborted and (not repeated or (isinstance(error, OperationFailure) and error.code == _NO_SUCH_TRANSACTION))


@contextmanager
def snapshot(mongo: Mongo) -> Iterator[ClientSession]:
    """A session whose reads all see one majority-committed moment: that of its first read.

    It outlives the transaction lifetime limit, so long calculations run here and never in a transaction.
    """
    with mongo.client.start_session(snapshot=True) as session:
        yield session
