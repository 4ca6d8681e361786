"""What operators may do to a row: start, pause, resume, retry. There is no reset, rewind, release or forced completion.

Each action locks the row, decides from what it then reads, and commits the change, its audit record and the answer to
its request id together. Asking for what already holds converges: it is answered with the present state. The generation
is read under the lock, and every accepted change raises it, so that what was in flight meets another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import errors

from statlib.backfills.audit import recalled, record, remember
from statlib.backfills.batches import has_work
from statlib.backfills.definitions import EMPTY_BOUND, Definition
from statlib.backfills.interpretation import require_interpretable
from statlib.backfills.lifecycle import CONVERGED, SOURCES, Lifecycle, Operator
from statlib.backfills.read_model import state_of
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.registry import Registry
from statlib.backfills.rows import BackfillRow, as_json
from statlib.backfills.sizing import first_size
from statlib.backfills.sql import statement
from statlib.kernel.refusals import Refusal
from statlib.passes.actions import Action, Outcome
from statlib.postgres.connection import Postgres
from statlib.postgres.notifications import notify
from statlib.postgres.reasons import PostgresReason
from statlib.postgres.transactions import Limits, Session, transact

CHANNEL = "statlib_backfills"  # wakes workers; says nothing
State = Mapping[str, Any]


def control(
    postgres: Postgres, registry: Registry, operator: Operator, action: Action, *, generation: int | None = None
) -> State:
    """Carry out one of the four moving actions on ``action.target``; the state afterwards.

    ``generation``: what the caller last saw, if it wants to act on that alone. Refuses BackfillUnknown,
    BackfillConflict, GenerationConflict, DefinitionUnknown, StateUninterpretable, with the current state.
    """
    definition = next((one for one in registry if one.id == action.target), None)
    limits = Limits() if definition is None else _limits(definition)

    def body(session: Session) -> State:
        row, before = _locked(postgres, session, action.target)
        if (earlier := recalled(session, action)) is not None:  # a twin was accepted while this one waited for the lock
            return earlier
        if generation is not None and generation != row.generation:
            raise Refusal(BackfillReason.GenerationConflict, action.target, state=before)
        if row.lifecycle in CONVERGED[operator]:
            record(
                session,
                postgres.clock,
                action,
                Outcome.ACCEPTED,
                before=before,
                after=before,
                generation=row.generation,
            )
            remember(session, postgres.clock, action, before)
            return before
        if row.lifecycle not in SOURCES[operator]:
            raise Refusal(BackfillReason.BackfillConflict, f"{operator} of a {row.lifecycle} backfill", state=before)
        if definition is None and operator is not Operator.PAUSE:
            raise Refusal(BackfillReason.DefinitionUnknown, action.target, state=before)
        return _move(postgres, session, definition, operator, action, row, before)

    try:
        return transact(postgres, body, limits=limits)
    except (errors.LockNotAvailable, errors.QueryCanceled) as error:
        raise Refusal(PostgresReason.PostgresBusy, f"{operator} of {action.target[:80]}") from error


def start_required(postgres: Postgres, registry: Registry) -> list[str]:
    """Start every required row that is still pending, as this process: what automatic mode does, and all of it."""
    return [definition.id for definition in registry if definition.required and _started(postgres, definition)]


def _started(postgres: Postgres, definition: Definition) -> bool:
    reading = statement("lock", postgres.clock)
    found = transact(postgres, lambda session: session.one(reading, stable_id=definition.id))
    if found is None or found["lifecycle"] != Lifecycle.PENDING:
        return False
    action = Action(
        principal="job:automatic-backfills",
        authority="startup",
        action="start",
        target=definition.id,
        request_id=f"automatic:{definition.id}",
        payload={"automatic": True},
    )
    control(postgres, Registry((definition,)), Operator.START, action)
    return True


def _locked(postgres: Postgres, session: Session, stable_id: str) -> tuple[BackfillRow, dict[str, Any]]:
    found = session.one(statement("lock", postgres.clock), stable_id=stable_id)
    if found is None:
        raise Refusal(BackfillReason.BackfillUnknown, stable_id[:80])
    return BackfillRow.of(found), state_of(found)


def _move(  # noqa: PLR0917 - the parts of one decision
    postgres: Postgres,
    session: Session,
    definition: Definition | None,
    operator: Operator,
    action: Action,
    row: BackfillRow,
    before: dict[str, Any],
) -> State:
    values: dict[str, Any] = {"stable_id": row.stable_id, "generation": row.generation}
    if operator is not Operator.PAUSE:
        if definition is None:
            raise AssertionError("unreachable: only a pause needs no definition")
        values |= _where_to(session, definition, operator, row)
    after = dict(before) | {"lifecycle": values.pop("after", Lifecycle.PAUSED).value, "generation": row.generation + 1}
    audit_id = record(
        session, postgres.clock, action, Outcome.ACCEPTED, before=before, after=after, generation=row.generation + 1
    )
    if session.run(statement(operator.value, postgres.clock), **values, audit_id=audit_id) != 1:
        raise Refusal(BackfillReason.BackfillConflict, f"{operator} of {row.stable_id}", state=before)
    _, state = _locked(postgres, session, row.stable_id)
    remember(session, postgres.clock, action, state)
    notify(session, CHANNEL)
    return state


def _where_to(session: Session, definition: Definition, operator: Operator, row: BackfillRow) -> dict[str, Any]:
    if operator is Operator.START:
        found = session.one(definition.capture_statement())
        bound = EMPTY_BOUND if found is None else found["position"]
        return {"bound": as_json(bound), "batch_rows": first_size(definition.bound), "after": Lifecycle.RUNNING}
    require_interpretable(session, definition, row)
    lifecycle = Lifecycle.RUNNING if has_work(session, definition, row) else Lifecycle.VALIDATING
    values: dict[str, Any] = {"lifecycle": lifecycle, "after": lifecycle}
    return values | ({"batch_rows": first_size(definition.bound)} if operator is Operator.RETRY else {})


def _limits(definition: Definition) -> Limits:
    return Limits(statement_s=definition.bound.transaction_s, lock_s=definition.bound.lock_s)
