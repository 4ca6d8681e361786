"""An operator's own validation: the definition's proof, run now, and answered with exactly one typed outcome.

It needs no claim and makes none. Only where the row is validating does its result move it, under the lifecycle and
generation that were read before it ran; everywhere else it leaves an outcome, a correlation and an audit record. One
runs at a time for a stable id, worker's or operator's; whoever asks meanwhile is told the current state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import psycopg

from statlib.backfills.audit import recalled, record, remember
from statlib.backfills.definitions import Definition
from statlib.backfills.failures import BLOCKING, FailureKind, bounded, classify
from statlib.backfills.interpretation import require_interpretable, require_prerequisite
from statlib.backfills.lifecycle import Lifecycle
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.registry import Registry
from statlib.backfills.rows import BackfillRow, Position
from statlib.backfills.sql import statement
from statlib.backfills.validation import examine, hold, let_go
from statlib.kernel.cancellation import require_not_cancelled
from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Refusal
from statlib.passes.actions import Action, Outcome
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import Session, transact


class ValidationOutcome(StrEnum):
    SUCCESS = "success"  # it ran, and the postcondition held
    FAILURE = "failure"  # it ran, and did not accept the state
    CURRENT_STATE = "current-state"  # it did not run, or has no result yet


class Disposition(StrEnum):
    """What became of the request itself."""

    COMPLETED = "completed"
    COALESCED = "coalesced"  # another validation was running
    NOT_RUN = "not-run"


@dataclass(frozen=True, slots=True)
class Validated:
    """The bounded answer to one request."""

    outcome: ValidationOutcome
    disposition: Disposition
    lifecycle: str
    generation: int
    reason: str
    diagnostic: str | None
    request_id: str

    def as_outcome(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome.value,
            "disposition": self.disposition.value,
            "lifecycle": self.lifecycle,
            "generation": self.generation,
            "reason": self.reason,
            "diagnostic": self.diagnostic,
            "requestId": self.request_id,
        }


@dataclass(frozen=True, slots=True)
class _Finding:
    """``kind`` is NONE for a success; None: it has no result."""

    kind: FailureKind | None
    diagnostic: str


def validate(postgres: Postgres, registry: Registry, action: Action) -> dict[str, Any]:
    """Answer one request to validate ``action.target``. Refuses BackfillUnknown and RequestConflict."""
    row, earlier = _read(postgres, action)
    if earlier is not None:
        return earlier
    if row.lifecycle is Lifecycle.PENDING:
        return _without_result(postgres, action, row, Disposition.NOT_RUN, "it was not started")
    definition = next((one for one in registry if one.id == row.stable_id), None)
    if definition is None:
        return _without_result(postgres, action, row, Disposition.NOT_RUN, "this process does not know the definition")
    holder = new_token()
    if not hold(postgres, row.stable_id, holder):
        return _without_result(postgres, action, row, Disposition.COALESCED, "a validation is running")
    try:
        _note(postgres, action, Outcome.ACCEPTED, row, {})
        finding = _find(postgres, definition, row, holder)
        if finding.kind is None:
            return _without_result(postgres, action, row, Disposition.NOT_RUN, finding.diagnostic)
        return _conclude(postgres, action, row, holder, finding)
    finally:
        let_go(postgres, row.stable_id, holder)


def _read(postgres: Postgres, action: Action) -> tuple[BackfillRow, dict[str, Any] | None]:
    reading = statement("read", postgres.clock)

    def body(session: Session) -> tuple[BackfillRow, dict[str, Any] | None]:
        found = session.one(reading, stable_id=action.target, limit=1)
        if found is None:
            raise Refusal(BackfillReason.BackfillUnknown, action.target[:80])
        earlier = recalled(session, action)
        return BackfillRow.of(found), None if earlier is None else dict(earlier)

    return transact(postgres, body, read_only=True)


def _find(postgres: Postgres, definition: Definition, row: BackfillRow, holder: str) -> _Finding:
    after: Position | None = None
    try:
        transact(postgres, lambda session: require_interpretable(session, definition, row), read_only=True)
        require_prerequisite(postgres, definition)
        while True:
            require_not_cancelled()
            examined = examine(postgres, definition, row, after=after)
            if examined.problem:
                return _Finding(FailureKind.VALIDATION, examined.problem)
            if examined.done:
                return _Finding(FailureKind.NONE, "")
            after = examined.upto
            if not hold(postgres, row.stable_id, holder):
                return _Finding(None, "it took so long that another validation began")
    except (Refusal, psycopg.Error) as error:
        failure = classify(error, "validating")
        known = failure.kind in BLOCKING
        return _Finding(failure.kind if known else None, failure.diagnostic)


def _conclude(postgres: Postgres, action: Action, row: BackfillRow, holder: str, finding: _Finding) -> dict[str, Any]:
    """The outcome, its audit record, its correlation and, of a validating row, the transition: all or nothing."""
    success = finding.kind is FailureKind.NONE
    outcome = ValidationOutcome.SUCCESS if success else ValidationOutcome.FAILURE

    def body(session: Session) -> dict[str, Any]:
        now = BackfillRow.of(session.required(statement("lock", postgres.clock), stable_id=row.stable_id))
        if row.lifecycle is Lifecycle.VALIDATING:
            now = _move(postgres, session, row, now, finding)
        answer = Validated(
            outcome,
            Disposition.COMPLETED,
            now.lifecycle.value,
            now.generation,
            "it ran",
            finding.diagnostic or None,
            action.request_id,
        ).as_outcome()
        kept = session.run(
            statement("keep_outcome", postgres.clock),
            stable_id=row.stable_id,
            holder=holder,
            disposition=Disposition.COMPLETED,
            outcome=outcome,
            diagnostic=finding.diagnostic or None,
            lifecycle=row.lifecycle,
            request_id=action.request_id,
        )
        if kept != 1:
            raise Refusal(BackfillReason.BackfillConflict, "the validation lost its place", state=answer)
        before = {"lifecycle": row.lifecycle.value, "generation": row.generation}
        record(
            session, postgres.clock, action, Outcome.COMPLETED, before=before, after=answer, generation=now.generation
        )
        remember(session, postgres.clock, action, answer)
        return answer

    return transact(postgres, body)


def _move(postgres: Postgres, session: Session, seen: BackfillRow, now: BackfillRow, finding: _Finding) -> BackfillRow:
    """Complete or fail a row that is still what was validated; leave one that moved on as it is."""
    guard = {"stable_id": seen.stable_id, "generation": seen.generation}
    if finding.kind is FailureKind.NONE:
        session.run(statement("complete_asked", postgres.clock), **guard)
    elif finding.kind is not None:
        lifecycle = Lifecycle.BLOCKED if finding.kind in BLOCKING else Lifecycle.FAILED
        session.run(
            statement("fail_asked", postgres.clock),
            **guard,
            lifecycle=lifecycle,
            kind=finding.kind,
            diagnostic=bounded(finding.diagnostic),
        )
    return BackfillRow.of(session.required(statement("lock", postgres.clock), stable_id=now.stable_id))


def _without_result(
    postgres: Postgres, action: Action, row: BackfillRow, disposition: Disposition, reason: str
) -> dict[str, Any]:
    answer = Validated(
        ValidationOutcome.CURRENT_STATE,
        disposition,
        row.lifecycle.value,
        row.generation,
        reason,
        None,
        action.request_id,
    ).as_outcome()
    outcome = Outcome.COALESCED if disposition is Disposition.COALESCED else Outcome.COMPLETED
    _note(postgres, action, outcome, row, answer)
    return answer


def _note(postgres: Postgres, action: Action, outcome: Outcome, row: BackfillRow, answer: dict[str, Any]) -> None:
    before = {"lifecycle": row.lifecycle.value, "generation": row.generation}
    transact(
        postgres,
        lambda session: record(
            session, postgres.clock, action, outcome, before=before, after=answer, generation=row.generation
        ),
    )
