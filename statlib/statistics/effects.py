"""What one change of a source document leaves in statistics: rows, guards, ledger, clocks and outbox slots.

For any transaction that writes source documents, or that folds what earlier writes left in them, in the order from the
most contended document to the least: one that will lose loses early. Nothing is skipped: what may not move is staled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pymongo import UpdateOne

from statlib.kernel import telemetry
from statlib.statistics import queries
from statlib.statistics.arms import gate_open
from statlib.statistics.catalogue import AnyCatalogue, Document, Effect
from statlib.statistics.counters import to_stored
from statlib.statistics.derivation import NO_EFFECT, together
from statlib.statistics.documents import ROW, Delta, DeltaKind, Guard, Row, State
from statlib.statistics.hosts import Host
from statlib.statistics.ledger import is_full
from statlib.statistics.moves import FamilyMoves, StaleCause, plan
from statlib.statistics.outcomes import FurtherOperation
from statlib.statistics.state import ProjectState
from statlib.statistics.unit import Unit

MISSING_BASELINE = "MissingBaseline"
MISSING_BASELINE_UNDECLARED = "MissingBaselineUndeclared"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a write, as receipts and ledger entries name it."""

    namespace: str
    operation_id: str


@dataclass(frozen=True, slots=True)
class Operations:
    """All operations of one write: ``own`` takes the families that no further one does."""

    own: Operation
    further: Sequence[FurtherOperation] = ()

    @property
    def all(self) -> tuple[Operation, ...]:
        return (self.own, *(Operation(one.namespace, one.operation_id) for one in self.further))

    def of(self, family: str) -> Operation:
        taken = (Operation(one.namespace, one.operation_id) for one in self.further if family in one.families)
        return next(taken, self.own)


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one operation does to each family."""

    operation: Operation
    effects: Mapping[str, Effect]


@dataclass(frozen=True, slots=True)
class Planned:
    """One touched family: what becomes of its rows by all contributions together, and the rows as they were read."""

    moves: FamilyMoves
    guard: Guard | None
    rows: Mapping[str, Row]


def record_change(
    unit: Unit, host: Host, catalogue: AnyCatalogue, operations: Operations, *, before: Document, after: Document
) -> None:
    """Write what statistics keep of this change; nothing where it changes nothing that is counted."""
    was, is_ = catalogue.domain.evidence(before), catalogue.domain.evidence(after)
    if was == is_:
        return
    effects = {name: family.derive(was, is_, unit.state.context) for name, family in catalogue.families.items()}
    record_effects(
        unit,
        host,
        catalogue,
        [
            Contribution(operation, {f: effect for f, effect in effects.items() if operations.of(f) == operation})
            for operation in operations.all
        ],
    )


def record_effects(
    unit: Unit,
    host: Host,
    catalogue: AnyCatalogue,
    contributions: Sequence[Contribution],
    staled: Mapping[str, StaleCause] = MappingProxyType({}),
) -> Mapping[str, Planned]:
    """Write what these operations do together, at one revision: each row moves once, by the sum of them.

    ``staled``: families that go stale whatever the contributions say, and why. The source and client clocks move also
    where no family is touched. Returns what became of each touched family. Raises Overtaken.
    """
    plans = _plan(unit, host, catalogue, _summed(contributions, staled), staled)
    _write(unit, contributions, plans)
    return plans


def _summed(contributions: Sequence[Contribution], staled: Mapping[str, StaleCause]) -> dict[str, Effect]:
    """Per touched family what all contributions do to it, one after the other."""
    total: dict[str, Effect] = {family: Effect(stale_family=True) for family in staled}
    for contribution in contributions:
        for family, effect in contribution.effects.items():
            if effect.touches:
                total[family] = together(total.get(family, NO_EFFECT), effect)
    return total


def _plan(
    unit: Unit,
    host: Host,
    catalogue: AnyCatalogue,
    touched: Mapping[str, Effect],
    staled: Mapping[str, StaleCause],
) -> dict[str, Planned]:
    state = unit.state
    rows = _visible_rows(unit, touched)
    plans = {
        family: Planned(
            moves=plan(
                effect,
                state.guards.get(family),
                rows.get(family, {}),
                state.stamp,
                _blocked(host, state, family) or staled.get(family),
                signed=_is_overlaid(catalogue, state, family),
            ),
            guard=state.guards.get(family),
            rows=rows.get(family, {}),
        )
        for family, effect in touched.items()
    }
    occupied = _occupied(unit, plans)
    return {
        family: replace(planned, moves=FamilyMoves(stale_family=StaleCause.KEY_OCCUPIED))
        if family in occupied
        else planned
        for family, planned in plans.items()
    }


def _is_overlaid(catalogue: AnyCatalogue, state: ProjectState, family: str) -> bool:
    """Whether a row of this family may be waiting for pending entries: an operation that moves it directly may then
    undo what an earlier one, still pending, has yet to do to it."""
    return state.control.fold_ever_enabled and family in catalogue.folding


def _occupied(unit: Unit, plans: Mapping[str, Planned]) -> set[str]:
    """Families of which a placeholder's key is taken by a row that is not published: one that another release left,
    since this one publishes every row as it inserts it."""
    keys = [
        queries.row_key(unit.control.id, family, scope, planned.guard)
        for family, planned in plans.items()
        if planned.guard is not None
        for scope in planned.moves.placeholders
    ]
    if not keys:
        return set()
    found = unit.mongo.collection(ROW).find({"$or": keys}, {"Family": 1}, session=unit.session)
    return {document["Family"] for document in found}


def _blocked(host: Host, state: ProjectState, family: str) -> StaleCause | None:
    """Why no row of this family may move in this save; the family is staled instead, so that nothing is skipped."""
    control = state.control
    if not gate_open(state.fleet, control) or not state.versions_match:
        return StaleCause.GATE_CLOSED
    if family not in host.families:
        return StaleCause.FAMILY_DISABLED
    if control.inclusion_recalculation_token is not None or control.definition_rewrite_token is not None:
        return StaleCause.FENCED
    if is_full(control, state.oldest_delta_at, state.now, host.ledger):
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


def _write(unit: Unit, contributions: Sequence[Contribution], plans: Mapping[str, Planned]) -> None:
    """Also for a change that touches no family: the clocks move whenever anything counted might."""
    writing = [contribution for contribution in contributions if _applied(contribution, plans)]
    revision = unit.advance(source=True, records=len(writing), client=True)
    unit.update_guards(_guard_updates(plans))
    unit.update_rows(_row_updates(unit.state, plans, revision))
    unit.insert(ROW, _placeholders(unit.state, plans, revision))
    unit.record(_deltas(unit.state, writing, plans, revision))
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
            last_failure_reason=MISSING_BASELINE if scope in declared else MISSING_BASELINE_UNDECLARED,
        ).to_bson()
        for family, planned in plans.items()
        if planned.guard is not None and planned.moves.placeholders
        for declared in [state.configuration.families[family].declared_scopes(state.context)]
        for scope in planned.moves.placeholders
    ]


def _deltas(
    state: ProjectState, writing: Sequence[Contribution], plans: Mapping[str, Planned], revision: int
) -> list[Delta]:
    """One for each operation of which anything was applied, numbered from 0 at their one revision."""
    return [
        Delta(
            project_id=state.control.id,
            revision=revision,
            record=record,
            kind=DeltaKind.OPERATION,
            operation_namespace=contribution.operation.namespace,
            operation_id=contribution.operation.operation_id,
            moves=[
                {"Family": family, "Scope": scope, "Counters": to_stored(effect.moves[scope])}
                for family, effect in contribution.effects.items()
                if family in plans
                for scope in plans[family].moves.new_counters
                if scope in effect.moves
            ],
            observed_at_utc=state.now,
        )
        for record, contribution in enumerate(writing)
    ]


def _applied(contribution: Contribution, plans: Mapping[str, Planned]) -> bool:
    """Whether any row was written for its sake."""
    return any(
        not plans[family].moves.written.isdisjoint({*effect.moves, *effect.stale_scopes})
        for family, effect in contribution.effects.items()
        if family in plans
    )
