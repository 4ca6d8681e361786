"""Long operations of this process: claimed, kept alive, and told to stop when somebody asks.

A thread renews the claim while the operation runs, and at each renewal looks whether another process was asked to
cancel it. Asked in this process, it is told at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pymongo.errors import PyMongoError

from statlib.admin.reasons import AdminReason
from statlib.kernel.cancellation import CancelCause, Cancellation
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease
from statlib.mongo.reasons import MongoReason
from statlib.passes import operations as stored
from statlib.passes.audit import Action
from statlib.passes.bounds import OPERATION_RENEWAL_S

TWIN_PATIENCE_S = 20.0  # how long a repeated request waits for its twin; longer than a dead one's claim lasts
CANCEL_PATIENCE_S = 10.0  # how long a cancel waits for the operation to give back what it holds
_POLL_S = 0.1


class Operations:
    """Every long operation that this process carries out."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._lock = threading.Lock()
        self._running: list[tuple[Action, Cancellation]] = []

    @contextmanager
    def claimed(self, action: Action, connection: Cancellation) -> Iterator[None]:
        """Carry out ``action`` inside the block; ``connection`` is what tells it to stop.

        A twin under way is waited for. Refuses RequestInProgress, and Cancelled while waiting.
        """
        lease = self._claim(action, connection)
        ended = threading.Event()
        keeper = threading.Thread(
            target=self._keep, args=(lease, connection, ended), name="statlib-operation", daemon=True
        )
        own = (action, connection)
        with self._lock:
            self._running.append(own)
        keeper.start()
        try:
            yield
        finally:
            ended.set()
            keeper.join()
            with self._lock:
                self._running = [known for known in self._running if known is not own]
            with suppress(PyMongoError):  # a claim that cannot be given up runs out
                stored.end(self._mongo, lease)

    def cancel(self, request_id: str, *, of: str | None = None) -> None:
        """Tell operations of this process under that request id (of one principal, if given) to stop."""
        with self._lock:
            for action, connection in self._running:
                if action.request_id == request_id and of in {None, action.principal}:
                    connection.cancel(CancelCause.ASKED)

    def cancel_all(self) -> None:
        """Tell every operation to stop, because the process does."""
        with self._lock:
            for _, connection in self._running:
                connection.cancel(CancelCause.STOPPING)

    def wait_until_ended(self, request_id: str, connection: Cancellation) -> bool:
        """Wait for every operation under that request id to end, at most ``CANCEL_PATIENCE_S``; whether it did."""
        deadline = time.monotonic() + CANCEL_PATIENCE_S
        while stored.under_way(self._mongo, request_id=request_id):
            if time.monotonic() > deadline or connection.wait(_POLL_S):
                return False
        return True

    def _claim(self, action: Action, connection: Cancellation) -> Lease:
        deadline = time.monotonic() + TWIN_PATIENCE_S
        while True:
            try:
                return stored.claim(self._mongo, action)
            except Refusal as refusal:
                if refusal.reason is not MongoReason.LeaseHeld:
                    raise
                if time.monotonic() > deadline:
                    raise Refusal(AdminReason.RequestInProgress, action.request_id, state=refusal.state) from refusal
            connection.wait(_POLL_S)
            connection.require_not_cancelled()

    def _keep(self, lease: Lease, connection: Cancellation, ended: threading.Event) -> None:
        while not ended.wait(OPERATION_RENEWAL_S):
            try:
                if stored.keep(self._mongo, lease):
                    connection.cancel(CancelCause.ASKED)
            except (PyMongoError, Refusal):  # an unrenewed claim lets a repetition in, which the outcome's key settles
                continue
