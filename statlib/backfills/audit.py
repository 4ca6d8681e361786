"""Audit and remembered requests of backfills, in PostgreSQL: an accepted change commits with both, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from statlib.backfills.sql import statement
from statlib.kernel.clock import Clock
from statlib.kernel.refusals import Refusal, RefusalKind
from statlib.passes.actions import Action, Outcome, RequestReason
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import Session, transact

TARGET_CHARS_MAX = 128  # of an unknown stable id, as the table's CHECK says


def record(
    session: Session,
    clock: Clock,
    action: Action,
    outcome: Outcome,
    *,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    reason: str | None = None,
    generation: int | None = None,
) -> int:
    """Insert one audit record in the caller's transaction; its number."""
    row = session.required(
        statement("record_audit", clock),
        principal=action.principal,
        authority=action.authority,
        action=action.action,
        stable_id=action.target[:TARGET_CHARS_MAX],
        request_id=action.request_id,
        run_id=action.run,
        payload=Jsonb(dict(action.payload)),
        outcome=outcome,
        reason=reason,
        before=Jsonb(dict(before)),
        after=Jsonb(dict(after)),
        generation=generation,
    )
    return int(row["audit_id"])


def remember(session: Session, clock: Clock, action: Action, outcome: Mapping[str, Any]) -> None:
    """Keep the outcome under the request id. UniqueViolation: the same request is being accepted at the same time."""
    session.run(statement("remember", clock), **_key(action), digest=action.digest, outcome=Jsonb(dict(outcome)))


def recalled(session: Session, action: Action) -> Mapping[str, Any] | None:
    """The outcome that this request had. Refuses RequestConflict if it then said something else."""
    found = session.one(statement("recall"), **_key(action))
    if found is None:
        return None
    if found["digest"] != action.digest:
        raise Refusal(RequestReason.RequestConflict, action.request_id)
    outcome: Mapping[str, Any] = found["outcome"]
    return outcome


@dataclass(frozen=True, slots=True)
class BackfillRecords:
    """The records of backfills, as the boundary uses them."""

    postgres: Postgres

    def recall(self, action: Action) -> Mapping[str, Any] | None:
        return transact(self.postgres, lambda session: recalled(session, action), read_only=True)

    def note_replay(self, action: Action, earlier: Mapping[str, Any]) -> None:
        self._alone(action, Outcome.REPLAYED, after=earlier)

    def reject(self, action: Action, refusal: Refusal) -> None:
        unresolved = refusal.reason.kind is RefusalKind.UNRESOLVED
        outcome = Outcome.UNRESOLVED if unresolved else Outcome.REJECTED
        self._alone(action, outcome, after=refusal.state, reason=refusal.reason.name)

    def note_failure(self, action: Action, correlation: str) -> None:
        self._alone(action, Outcome.FAILED, after={"correlation": correlation})

    def _alone(self, action: Action, outcome: Outcome, *, after: Mapping[str, Any], reason: str | None = None) -> None:
        clock = self.postgres.clock
        transact(
            self.postgres,
            lambda session: record(session, clock, action, outcome, before={}, after=after, reason=reason),
        )


def _key(action: Action) -> dict[str, str]:
    return {
        "principal": action.principal,
        "route": action.route or action.action,
        "stable_id": action.target[:TARGET_CHARS_MAX],
        "request_id": action.request_id,
    }
