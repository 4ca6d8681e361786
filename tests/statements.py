"""Doing something right before an exact statement of a backfill's batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

BATCH_BEGINS = b"track_counts"  # in the text of a batch's first own statement, and of no other
STATEMENTS_OF_A_BATCH = 6  # counters, select, mutate, counters and lock, checkpoint, commit


@contextmanager
def interrupted(number: int, action: Callable[[psycopg.Connection], None]) -> Iterator[list[int]]:
    """Call ``action`` before the ``number``-th statement (from 1) counted from the beginning of the first batch.

    0: never. The list holds how many statements there were.
    """
    execute, commit = psycopg.Connection.execute, psycopg.Connection.commit
    sent = [0]

    def before(connection: Any, begins: bool) -> None:
        if not sent[0] and not begins:
            return
        sent[0] += 1
        if sent[0] == number:
            action(connection)

    def executing(connection: Any, statement: Any, *arguments: Any, **options: Any) -> Any:
        before(connection, BATCH_BEGINS in statement if isinstance(statement, bytes) else False)
        return execute(connection, statement, *arguments, **options)

    def committing(connection: Any) -> None:
        before(connection, False)
        commit(connection)

    for name, replaced in (("execute", executing), ("commit", committing)):
        setattr(psycopg.Connection, name, replaced)
    try:
        yield sent
    finally:
        for name, original in (("execute", execute), ("commit", commit)):
            setattr(psycopg.Connection, name, original)
