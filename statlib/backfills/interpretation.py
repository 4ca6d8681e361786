"""Whether this process may touch a row: it knows the definition, the stored positions fit it, and it can be done.

A row that does not fit is left alone by this process, and by it alone: other rows go on, and so do other processes.
"""

from __future__ import annotations

import psycopg

from statlib.backfills.definitions import Definition
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.registry import Registry
from statlib.backfills.rows import BackfillRow, Position, as_json
from statlib.backfills.sql import statement
from statlib.kernel.refusals import Refusal
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import Limits, Session, transact


def interpretable(postgres: Postgres, registry: Registry) -> Registry:
    """The part of the registry whose rows this process may claim now."""
    reading = statement("read", postgres.clock)
    found = transact(postgres, lambda session: session.all(reading, stable_id=None, limit=None), read_only=True)
    rows = {row["stable_id"]: BackfillRow.of(row) for row in found}
    return Registry(tuple(one for one in registry if one.id in rows and _fits(postgres, one, rows[one.id])))


def require_interpretable(session: Session, definition: Definition, row: BackfillRow) -> None:
    """Refuses StateUninterpretable. After a refusal the transaction is aborted."""
    for position in (row.bound, row.checkpoint, row.validated):
        if position and not _readable(session, definition, position):
            raise Refusal(BackfillReason.StateUninterpretable, row.stable_id)


def require_prerequisite(postgres: Postgres, definition: Definition) -> None:
    """Refuses PrerequisiteUnmet. Also raises what the definition's SQL raises."""
    if not definition.requires:
        return
    limits = Limits(statement_s=definition.bound.transaction_s, lock_s=definition.bound.lock_s)
    asking = f"SELECT coalesce(({definition.requires}), false) AS met"
    if not transact(postgres, lambda session: session.required(asking)["met"], limits=limits, read_only=True):
        raise Refusal(BackfillReason.PrerequisiteUnmet, definition.id)


def _fits(postgres: Postgres, definition: Definition, row: BackfillRow) -> bool:
    try:
        transact(postgres, lambda session: require_interpretable(session, definition, row), read_only=True)
    except Refusal as refusal:
        if refusal.reason is BackfillReason.StateUninterpretable:
            return False
        raise
    return True


def _readable(session: Session, definition: Definition, position: Position) -> bool:
    if len(position) != len(definition.key.columns):
        return False
    try:
        cast = f"SELECT {definition.key.position('%(position)s::jsonb')} IS NOT NULL AS whole"
        return bool(session.required(cast, position=as_json(position))["whole"])
    except psycopg.DataError:
        return False
