"""Definitions: application code that says what a backfill repairs. None ever comes from a request.

A definition's SQL is set-based and runs in the engine's transactions. ``{window}`` in it stands for the rows strictly
after one position and no later than another, compared in the key's own types; ``%(limit)s`` for the rows of a batch.
What it declares as bounds the engine enforces on what was selected and on what PostgreSQL counted as changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from statlib.backfills.bounds import (
    ATTEMPTS_MAX,
    CHANGES_PER_ROW_MAX,
    FLOOR_ROWS,
    KEY_COLUMNS_MAX,
    ROWS_MAX,
    TRANSACTION_S_MAX,
)
from statlib.backfills.reasons import BackfillReason
from statlib.kernel.refusals import Refusal

EMPTY_BOUND: tuple[()] = ()  # the bound of an empty source set: the empty position, which admits nothing
_STABLE_ID = re.compile(r"[a-z][a-z0-9-]{0,62}")
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_TYPE = re.compile(r"[a-z][a-z0-9 _]*(\([0-9, ]+\))?")


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of an ordering key. ``collation`` of a text column, where it is not the database's."""

    name: str
    type: str
    collation: str = ""

    @property
    def ordered(self) -> str:
        return f'{self.name} COLLATE "{self.collation}"' if self.collation else self.name

    def value(self, position: str, place: int) -> str:
        """The SQL for this column's part of a position, a JSON array."""
        cast = f"({position}->>{place})::{self.type}"
        return f'{cast} COLLATE "{self.collation}"' if self.collation else cast


@dataclass(frozen=True, slots=True)
class OrderingKey:
    """A total, stable order: one column, or several where the first has ties. The last must make it unique."""

    columns: tuple[KeyColumn, ...]

    @property
    def names(self) -> str:
        return ", ".join(column.name for column in self.columns)

    @property
    def ascending(self) -> str:
        return ", ".join(column.ordered for column in self.columns)

    @property
    def descending(self) -> str:
        return ", ".join(f"{column.ordered} DESC" for column in self.columns)

    @property
    def as_json(self) -> str:
        return f"jsonb_build_array({self.names})"

    def position(self, stored: str) -> str:
        """The SQL row of a position: of a column that holds it, or of a parameter."""
        return f"ROW({', '.join(column.value(stored, place) for place, column in enumerate(self.columns))})"

    def window(self, *, after: bool) -> str:
        """The SQL predicate of a window; without ``after`` it begins before every row."""
        row = f"ROW({self.ascending})"
        upto = f"{row} <= {self.position('%(upto)s::jsonb')}"
        return f"({row} > {self.position('%(after)s::jsonb')} AND {upto})" if after else f"({upto})"


def key(*columns: str | tuple[str, ...]) -> OrderingKey:
    """``key(("project_id", "uuid"), ("study_id", "uuid"))``: names with types, and a collation where one is needed."""
    return OrderingKey(tuple(KeyColumn(*((c, "bigint") if isinstance(c, str) else c)) for c in columns))


@dataclass(frozen=True, slots=True)
class BatchBound:
    """The most that one batch may be: rows selected, rows changed for each of them, seconds of its transaction and of
    a wait for a lock. ``target_s`` is what the worker steers for inside of that, ``floor_rows`` the least it goes to.
    """

    rows_max: int
    transaction_s: float = 5.0
    lock_s: float = 1.0
    changes_per_row: int = 1
    target_s: float = 0.25
    floor_rows: int = FLOOR_ROWS
    validation_rows_max: int = 10_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Tries without progress before a human is wanted, and the wait between them: doubled each time up to a cap."""

    attempts_max: int = 6
    backoff_s: float = 1.0
    backoff_max_s: float = 60.0

    def delay_s(self, attempts: int) -> float:
        return min(self.backoff_max_s, self.backoff_s * 2.0 ** min(attempts - 1, 30))


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One backfill.

    ``source`` is the relation of the source set, ``admits`` a condition on it ("true" by default). ``select`` gives the
    key columns of at most ``%(limit)s`` rows of ``{window}``, in order; left out, the engine's own does. ``mutate``
    repairs the rows of ``{window}``. ``validate`` gives the key columns of rows of ``{window}`` that lack the
    postcondition, a missing target row included. ``requires`` answers one boolean: whether the backfill can be done at
    all. The bound of an empty source set is ``EMPTY_BOUND``. Construction refuses DefinitionInvalid.
    """

    id: str
    title: str
    key: OrderingKey
    source: str
    mutate: str
    validate: str
    bound: BatchBound
    admits: str = "true"
    select: str = ""
    requires: str = ""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    required: bool = False

    def __post_init__(self) -> None:
        if wrong := _first_wrong(self):
            raise Refusal(BackfillReason.DefinitionInvalid, f"{self.id[:80]}: {wrong}")

    @property
    def metadata(self) -> dict[str, Any]:
        """What registration stores for people; nothing is decided by it."""
        return {
            "title": self.title,
            "source": self.source,
            "key": [{"name": column.name, "type": column.type} for column in self.key.columns],
            "rowsMax": self.bound.rows_max,
            "transactionSeconds": self.bound.transaction_s,
            "attemptsMax": self.retry.attempts_max,
            "required": self.required,
        }

    def capture_statement(self) -> str:
        """The greatest position of the source set, in a statement that gives no row for an empty one."""
        return (
            f"SELECT {self.key.as_json} AS position FROM {self.source} WHERE {self.admits}"
            f" ORDER BY {self.key.descending} LIMIT 1"
        )

    def select_statement(self, *, after: bool) -> str:
        if self.select:
            return self.select.replace("{window}", self.key.window(after=after))
        return self.own_select(after=after)

    def own_select(self, *, after: bool) -> str:
        """The engine's own selection over the source set; it takes no locks, so validation steps by it too."""
        return (
            f"SELECT {self.key.names} FROM {self.source} WHERE {self.key.window(after=after)} AND {self.admits}"
            f" ORDER BY {self.key.ascending} LIMIT %(limit)s"
        )

    def mutate_statement(self, *, after: bool) -> str:
        return self.mutate.replace("{window}", self.key.window(after=after))

    def validate_statement(self, *, after: bool) -> str:
        return self.validate.replace("{window}", self.key.window(after=after))


def _first_wrong(it: Definition) -> str:
    columns, bound, retry = it.key.columns, it.bound, it.retry
    checks = {
        "the id is lower-case letters, digits and hyphens, at most 63": _STABLE_ID.fullmatch(it.id),
        "the title is 1 to 200 characters": 0 < len(it.title) <= 200,
        f"a key has 1 to {KEY_COLUMNS_MAX} columns": 0 < len(columns) <= KEY_COLUMNS_MAX,
        "a key's columns and types are plain names": all(
            _NAME.fullmatch(c.name) and _TYPE.fullmatch(c.type) and '"' not in c.collation for c in columns
        ),
        f"rows_max is 1 to {ROWS_MAX:,}": 0 < bound.rows_max <= ROWS_MAX,
        f"validation_rows_max is 1 to {ROWS_MAX:,}": 0 < bound.validation_rows_max <= ROWS_MAX,
        "floor_rows is 1 to rows_max": min(bound.floor_rows, bound.rows_max) > 0,
        f"changes_per_row is 1 to {CHANGES_PER_ROW_MAX}": 0 < bound.changes_per_row <= CHANGES_PER_ROW_MAX,
        f"0 < lock_s <= transaction_s <= {TRANSACTION_S_MAX:.0f}": 0
        < bound.lock_s
        <= bound.transaction_s
        <= TRANSACTION_S_MAX,
        "0 < target_s <= transaction_s": 0 < bound.target_s <= bound.transaction_s,
        f"attempts_max is 1 to {ATTEMPTS_MAX}": 0 < retry.attempts_max <= ATTEMPTS_MAX,
        "0 < backoff_s <= backoff_max_s": 0 < retry.backoff_s <= retry.backoff_max_s,
        "mutate names {window}": "{window}" in it.mutate,
        "validate names {window}": "{window}" in it.validate,
        "select names {window} and %(limit)s": not it.select or ("{window}" in it.select and "%(limit)s" in it.select),
    }
    return next((told for told, held in checks.items() if not held), "")
