"""Carrying out a mutating request: recalled if it was accepted before, audited whether it is accepted or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pymongo.errors import DuplicateKeyError

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import transact
from statlib.passes.audit import Action, accept, begin, recall, reject, server_time

Wire = Mapping[str, Any]


def in_one_transaction(mongo: Mongo, action: Action, operation: Callable[[], Wire]) -> Wire:
    """For an operation that records ``action`` in its own transaction and returns what it recorded."""
    return _once(mongo, action, operation)


def in_several_transactions(mongo: Mongo, action: Action, operation: Callable[[], Wire]) -> Wire:
    """For work that spans transactions: the intent is recorded first, the outcome after the last of them.

    The operation must be safe to repeat: a process that dies in between leaves the intent, and a repeat does it again.
    """

    def audited() -> Wire:
        begin(mongo, action, now=server_time(mongo))
        outcome = operation()
        now = server_time(mongo)
        transact(mongo, lambda session: accept(mongo, session, action, before={}, after=outcome, now=now))
        return outcome

    return _once(mongo, action, audited)


def _once(mongo: Mongo, action: Action, operation: Callable[[], Wire]) -> Wire:
    if (earlier := recall(mongo, action)) is not None:
        return earlier
    try:
        return operation()
    except DuplicateKeyError:
        earlier = recall(mongo, action)  # the same request at the same time: its twin's outcome is this one's
        if earlier is None:
            raise
        return earlier
    except Refusal as refusal:
        reject(mongo, action, refusal, now=server_time(mongo))
        raise
