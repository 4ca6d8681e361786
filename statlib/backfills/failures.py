"""What went wrong in a batch or a validation: told by type and SQLSTATE, never by a message, which may quote rows.

The table says what becomes of the row: tried again within the definition's bounds, or put before an operator at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import psycopg
from psycopg import errors

from statlib.backfills.bounds import DIAGNOSTIC_CHARS_MAX
from statlib.backfills.reasons import BackfillReason
from statlib.kernel.refusals import Refusal
from statlib.postgres.reasons import PostgresReason


class FailureKind(StrEnum):
    NONE = "none"
    TIMEOUT = "timeout"  # a statement, a lock or the transaction took longer than it may
    BOUND = "bound"  # more was selected or changed than is declared
    CONTENTION = "contention"  # others were in the way
    CONNECTION = "connection"  # the database went away
    PREREQUISITE = "prerequisite"  # what the definition needs is not there
    INVARIANT = "invariant"  # the data forbid the change
    VALIDATION = "validation"  # the postcondition does not hold
    ABANDONED = "abandoned"  # claims ran out time and again without progress
    UNEXPECTED = "unexpected"


BLOCKING = frozenset({FailureKind.PREREQUISITE, FailureKind.INVARIANT})
SHRINKING = frozenset({FailureKind.TIMEOUT})


@dataclass(frozen=True, slots=True)
class Failure:
    """``diagnostic``: bounded, redacted, one line."""

    kind: FailureKind
    diagnostic: str


def classify(error: BaseException, doing: str) -> Failure:
    """``doing`` names the step, such as "selecting the next rows"."""
    match error:
        case Refusal():
            return _of_refusal(error, doing)
        case errors.QueryCanceled() | errors.LockNotAvailable() | errors.IdleInTransactionSessionTimeout():
            return _told(FailureKind.TIMEOUT, error, doing)
        case errors.SerializationFailure() | errors.DeadlockDetected():
            return _told(FailureKind.CONTENTION, error, doing)
        case (
            errors.UndefinedTable()
            | errors.UndefinedColumn()
            | errors.UndefinedFunction()
            | errors.InsufficientPrivilege()
        ):
            return _told(FailureKind.PREREQUISITE, error, doing)
        case psycopg.IntegrityError() | psycopg.DataError():
            return _told(FailureKind.INVARIANT, error, doing)
        case psycopg.OperationalError() if error.sqlstate is None or error.sqlstate[:2] in {"08", "57"}:
            return _told(FailureKind.CONNECTION, error, doing)
        case _:
            return _told(FailureKind.UNEXPECTED, error, doing)


def bounded(text: str) -> str:
    """One line of at most as many characters as the row holds."""
    return " ".join(text.split())[:DIAGNOSTIC_CHARS_MAX]


def _of_refusal(refusal: Refusal, doing: str) -> Failure:
    kinds = {
        BackfillReason.BoundExceeded: FailureKind.BOUND,
        BackfillReason.PrerequisiteUnmet: FailureKind.PREREQUISITE,
        BackfillReason.StateUninterpretable: FailureKind.PREREQUISITE,
        PostgresReason.PostgresContended: FailureKind.CONTENTION,
        PostgresReason.PostgresUnreachable: FailureKind.CONNECTION,
        PostgresReason.PostgresCommitUnknown: FailureKind.CONNECTION,
    }
    kind = next((kind for reason, kind in kinds.items() if reason is refusal.reason), FailureKind.UNEXPECTED)
    return Failure(kind, bounded(f"{doing}: {refusal.reason.name}, {refusal.detail}"))


def _told(kind: FailureKind, error: BaseException, doing: str) -> Failure:
    state = getattr(error, "sqlstate", None)
    diagnostic = getattr(error, "diag", None)
    place = getattr(diagnostic, "constraint_name", None) or getattr(diagnostic, "table_name", None) or ""
    told = f"{doing}: {type(error).__name__}" + (f" ({state})" if state else "") + (f" at {place}" if place else "")
    return Failure(kind, bounded(told))
