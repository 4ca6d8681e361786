"""The transactional arm: a save and everything that statistics keep of it commit together, or not at all.

One transaction holds the guarded source write, a receipt, the moved and staled rows with their guards, a ledger
entry, the clocks and the outbox slots. Whatever else depends on the same state (publication, openings, fences)
writes one of these documents too, so the server makes one of any two rivals start over.

The writes are ordered from the most contended document to the least: a save that will lose loses early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from statlib.kernel import telemetry
from statlib.statistics import queries
from statlib.statistics.arms import gate_open
from statlib.statistics.bounds import DELTA_LEDGER_ROWS_MAX
from statlib.statistics.catalogue import AnyCatalogue, Document, Effect
from statlib.statistics.counters import to_stored
from statlib.statistics.documents import RECEIPT, ROW, Delta, DeltaKind, Guard, Receipt, Row, State
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.moves import FamilyMoves, StaleCause, plan
from statlib.statistics.outcomes import Cause, Committed, SourceChange
from statlib.statistics.state import ProjectState, read_state
from statlib.statistics.unit import Overtaken, Unit


@dataclass
class Progress:
    """Which document the transaction was at: names the cause when it is aborted."""

    cause: Cause = Cause.STATISTICS


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one submission: the source as it was loaded, and what is to become of it."""

    envelope: Envelope
    change: SourceChange
    source: Document
    digest: str

    @property
    def before_revision(self) -> int:
        return int(self.source["Audit"]["Version"])


@dataclass(frozen=True, slots=True)
class Planned:
    """One touched family: what its change does, what becomes of its rows, and the rows as they were read."""

    effect: Effect
    moves: FamilyMoves
    guard: Guard | None
    rows: Mapping[str, Row]


def commit(
    host: Host, catalogue: AnyCatalogue, session: ClientSession, attempt: Attempt, progress: Progress
) -> Committed:
    """The body of the transaction. Raises Overtaken where a rival got there first."""
    envelope = attempt.envelope
    state = read_state(host.mongo, catalogue, session, envelope.project, tuple(catalogue.families))
    if state is None:
        raise Overtaken
    if attempt.before_revision != envelope.expected and state.opening != envelope.opening:
        raise Overtaken  # this rebase was decided under an opening that has ended since

    unit = Unit(host.mongo, session, state)
    write = attempt.change.apply(attempt.source, state.context_document, envelope)
    before = catalogue.domain.evidence(attempt.source)
    after = catalogue.domain.evidence({**attempt.source, **write.fields})
    if before != after:
        effects = {name: family.derive(before, after, state.context) for name, family in catalogue.families.items()}
        _write_statistics(unit, attempt, _plan(unit, host, effects))
    progress.cause = Cause.SOURCE
    _write_source(unit, catalogue, attempt, write.fields)
    progress.cause = Cause.STATISTICS
    unit.insert(RECEIPT, [_receipt(attempt, state).to_bson()])
    return Committed(revision_after=attempt.before_revision + 1)


def _plan(unit: Unit, host: Host, effects: Mapping[str, Effect]) -> dict[str, Planned]:
    state = unit.state
    touched = {family: effect for family, effect in effects.items() if effect.touches}
    rows = _visible_rows(unit, touched)
    return {
        family: Planned(
            effect=effect,
            moves=plan(
                effect, state.guards.get(family), rows.get(family, {}), state.stamp, _blocked(host, state, family)
            ),
            guard=state.guards.get(family),
            rows=rows.get(family, {}),
        )
        for family, effect in touched.items()
    }


def _blocked(host: Host, state: ProjectState, family: str) -> StaleCause | None:
    """Why no row of this family may move in this save; the family is staled instead, so that nothing is skipped."""
    control = state.control
    if not gate_open(state.fleet, control) or not state.versions_match:
        return StaleCause.GATE_CLOSED
    if family not in host.families:
        return StaleCause.FAMILY_DISABLED
    if control.inclusion_recalculation_token is not None or control.definition_rewrite_token is not None:
        return StaleCause.FENCED
    if control.committed_projection_revision - control.replay_floor_revision >= DELTA_LEDGER_ROWS_MAX:
        return StaleCause.LEDGER_CAPACITY
    return None


def _visible_rows(unit: Unit, effects: Mapping[str, Effect]) -> dict[str, dict[str, Row]]:
    """Rows of the touched scopes of families that are served at all."""
    scopes = {
        family: sorted({*effect.moves, *effect.stale_scopes})
        for family, effect in effects.items()
        if (guard := unit.state.guards.get(family)) is not None and guard.state is State.FRESH
    }
    rows: dict[str, dict[str, Row]] = {}
    if any(scopes.values()):
        wanted = queries.visible_rows(unit.control.id, {family: names for family, names in scopes.items() if names})
        for document in unit.mongo.collection(ROW).find(wanted, session=unit.session):
            row = Row.from_bson(document)
            rows.setdefault(row.family, {})[row.scope] = row
    return rows


def _write_statistics(unit: Unit, attempt: Attempt, plans: Mapping[str, Planned]) -> None:
    """Also for a change that touches no family: the clocks move whenever anything counted might."""
    rows_change = any(planned.moves.writes_rows for planned in plans.values())
    revision = unit.advance(source=True, projection=rows_change, client=True)
    unit.update_guards(_guard_updates(plans))
    unit.update_rows(_row_updates(unit.state, plans, revision))
    unit.insert(ROW, _placeholders(unit.state, plans, revision))
    if rows_change:
        unit.record([_delta(unit.state, attempt, plans, revision)])
    unit.notify(plans)


def _guard_updates(plans: Mapping[str, Planned]) -> dict[str, dict[str, Any]]:
    """Of moved and staled families: writing the guard is what a rival fence or publication conflicts with."""
    updates: dict[str, dict[str, Any]] = {}
    for family, planned in plans.items():
        if planned.moves.stale_family is not None:
            telemetry.count("families.staled", cause=planned.moves.stale_family)
            updates[family] = queries.stale_family()
        elif planned.moves.writes_rows:
            updates[family] = {"$inc": {"Version": 1}}
    return updates


def _row_updates(state: ProjectState, plans: Mapping[str, Planned], revision: int) -> list[UpdateOne]:
    updates: list[UpdateOne] = []
    for planned in plans.values():
        for scope, counters in planned.moves.new_counters.items():
            row = planned.rows[scope]
            moved = {
                "Counters": to_stored(counters),
                "DynamicKeyCount": max(row.dynamic_key_count, len(counters)),
                "LastChangedRevision": revision,
                "WriteEpochs": state.stamp.epochs(row.write_epochs.family).to_bson(),
            }
            updates.append(UpdateOne(queries.row_as_read(row), {"$set": moved}))
        for scope in planned.moves.stale_scopes:
            staled = {"State": State.STALE.value, "LastChangedRevision": revision, "LastFailureReason": "Invalidated"}
            updates.append(UpdateOne(queries.row_as_read(planned.rows[scope]), {"$set": staled}))
    return updates


def _placeholders(state: ProjectState, plans: Mapping[str, Planned], revision: int) -> list[dict[str, Any]]:
    """Published rows that are never served: nobody may start a scope from zero over a move that found no row."""
    return [
        Row(
            project_id=state.control.id,
            family=family,
            scope=scope,
            generation=planned.guard.visible_generation,
            token=planned.guard.visible_token,
            state=State.STALE,
            is_published=True,
            last_changed_revision=revision,
            write_epochs=state.stamp.epochs(planned.guard.family_write_epoch),
            catalogue_version=state.catalogue_version,
            configuration_digest=state.configuration.digest(family, scope),
            last_failure_reason="MissingBaseline",
        ).to_bson()
        for family, planned in plans.items()
        if planned.guard is not None
        for scope in planned.moves.placeholders
    ]


def _delta(state: ProjectState, attempt: Attempt, plans: Mapping[str, Planned], revision: int) -> Delta:
    return Delta(
        project_id=state.control.id,
        revision=revision,
        record=0,
        kind=DeltaKind.OPERATION,
        operation_namespace=attempt.envelope.namespace,
        operation_id=attempt.envelope.operation_id,
        moves=[
            {"Family": family, "Scope": scope, "Counters": to_stored(planned.effect.moves[scope])}
            for family, planned in plans.items()
            for scope in planned.moves.new_counters
        ],
        observed_at_utc=state.now,
    )


def _write_source(unit: Unit, catalogue: AnyCatalogue, attempt: Attempt, fields: Mapping[str, Any]) -> None:
    written = unit.mongo.collection(catalogue.source_collection).update_one(
        queries.source_guard(attempt.envelope, attempt.before_revision),
        queries.source_update(fields, unit.mongo.clock.mongo_now()),
        session=unit.session,
    )
    if written.matched_count != 1:
        raise Overtaken


def _receipt(attempt: Attempt, state: ProjectState) -> Receipt:
    """One for every committed save, whether it moved anything or not: what a repeat is recognised by."""
    envelope = attempt.envelope
    return Receipt(
        project_id=envelope.project,
        operation_namespace=envelope.namespace,
        operation_id=envelope.operation_id,
        expected_source_revision=envelope.expected,
        committed_source_before_revision=attempt.before_revision,
        committed_source_after_revision=attempt.before_revision + 1,
        source_digest=attempt.digest,
        source_aggregate_id=envelope.aggregate,
        has_trusted_source_identity=True,
        created_at_utc=envelope.created_at,
        observed_at_utc=state.now,
    )
