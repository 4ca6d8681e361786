"""A dry run: what a start would meet, measured in a transaction that is always rolled back.

The first window is really selected and really mutated, with its declared bounds, so that the numbers are no guess; the
rollback leaves nothing. Rows' contents never leave: counts do, and the plan without its values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statlib.backfills.batches import select
from statlib.backfills.definitions import Definition
from statlib.backfills.rows import as_json
from statlib.backfills.sql import statement
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import Limits, Session, transact

SAMPLE_ROWS_MAX = 500  # rows that a preview mutates and rolls back
PLAN_LINES_MAX = 40


@dataclass(frozen=True, slots=True)
class Preview:
    stable_id: str
    source: str
    rows_estimated: int | None
    bytes_total: int | None
    index: str | None
    waiting_locks: int
    sample_rows: int
    sample_changed: int
    plan: tuple[str, ...]
    prerequisite_met: bool


class _RolledBack(Exception):
    def __init__(self, found: Preview) -> None:
        super().__init__()
        self.found = found


def preview(postgres: Postgres, definition: Definition) -> Preview:
    """Measure, and roll back. Raises what the definition's SQL raises."""
    limits = Limits(statement_s=definition.bound.transaction_s, lock_s=definition.bound.lock_s)
    try:
        transact(postgres, lambda session: _measure(session, definition), limits=limits, reruns_max=0)
    except _RolledBack as measured:
        return measured.found
    raise AssertionError("unreachable: a preview never commits")


def _measure(session: Session, definition: Definition) -> None:
    met = definition.requires == "" or bool(session.required(f"SELECT ({definition.requires}) AS met")["met"])
    about = session.required(statement("preview_source"), source=definition.source)
    names = [column.name for column in definition.key.columns]
    index = session.one(statement("preview_index"), source=definition.source, names=names)
    waiting = session.required("SELECT count(*) AS n FROM pg_locks WHERE NOT granted")["n"]
    bound = session.one(definition.capture_statement())
    selected, changed, plan = _try(session, definition, bound["position"]) if bound and met else (0, 0, ())
    raise _RolledBack(
        Preview(
            definition.id,
            definition.source,
            about["rows"],
            about["bytes"],
            index["name"] if index else None,
            waiting,
            selected,
            changed,
            plan,
            met,
        )
    )


def _try(session: Session, definition: Definition, bound: Any) -> tuple[int, int, tuple[str, ...]]:
    limit = min(SAMPLE_ROWS_MAX, definition.bound.rows_max)
    explained = session.all(
        f"EXPLAIN (COSTS OFF) {definition.select_statement(after=False)}", upto=as_json(bound), limit=limit
    )
    plan = tuple(str(next(iter(line.values()))) for line in explained[:PLAN_LINES_MAX])
    window = select(session, definition, definition.select_statement, after=None, upto=bound, limit=limit)
    if window.last is None:
        return 0, 0, plan
    before = session.required(statement("changes"))["changes"]
    session.run(definition.mutate_statement(after=False), upto=as_json(window.last))
    return window.selected, session.required(statement("changes"))["changes"] - before, plan
