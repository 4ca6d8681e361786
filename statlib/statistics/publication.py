"""From candidate to visible row, in bounded transactions of one snapshot's values.

Each transaction *writes* every document that its right to publish rests on: the leases, the control with its clocks,
and the guard with its candidate. Whoever changed one of them since the snapshot makes it start over or lose.
Rows carry the epochs of the snapshot they were counted in, never those of the moment of publication.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.kernel.cancellation import require_not_cancelled
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease, fence
from statlib.mongo.transactions import transact
from statlib.statistics.bounds import PUBLICATION_SCOPES_MAX
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.counters import Counters, to_stored
from statlib.statistics.documents import ROW, Candidate, Delta, DeltaKind, Guard, Row, State
from statlib.statistics.lifecycle import require
from statlib.statistics.reasons import OperateReason
from statlib.statistics.state import ProjectState, require_state
from statlib.statistics.unit import Overtaken, Unit


@dataclass(frozen=True, slots=True)
class Publication:
    """What one rebuild publishes of one family. ``at``: the snapshot that ``values`` were counted in. ``fold_lease``:
    the project's, which keeps what they leave out pending; None where nothing ever was."""

    project: UUID
    family: str
    candidate: Candidate
    at: ProjectState
    values: Mapping[str, Counters]
    lease: Lease
    fold_lease: Lease | None = None

    @property
    def leases(self) -> tuple[Lease, ...]:
        return (self.lease,) if self.fold_lease is None else (self.lease, self.fold_lease)


def publish(mongo: Mongo, catalogue: AnyCatalogue, publication: Publication) -> None:
    """Publish all, at most ``PUBLICATION_SCOPES_MAX`` scopes at a time. Refuses PublicationRaceLost, LeaseLost.

    A loss between two transactions leaves the scopes of the first published, which is right: they were exact at B,
    and the save that overtook the second moved them. A family without any scope becomes Fresh.
    """
    batches = _batches(sorted(publication.values))
    for batch in batches:
        require_not_cancelled()

        def body(session: ClientSession, scopes: tuple[str, ...] = batch) -> None:
            fence(mongo, session, *publication.leases)
            state = require_state(mongo, catalogue, session, publication.project, [publication.family])
            _require_unmoved(state, publication)
            _write(Unit(mongo, session, state), publication, scopes, last=scopes is batches[-1])

        try:
            transact(mongo, body)
        except Overtaken as overtaken:
            raise _lost(publication) from overtaken


def _require_unmoved(now: ProjectState, publication: Publication) -> None:
    """Nothing that the values depend on has moved since B."""
    at, guard = publication.at, now.guards.get(publication.family)
    at_guard = at.guards[publication.family]
    unmoved = (
        guard is not None
        and guard.candidate is not None
        and guard.candidate.token == publication.candidate.token
        and guard.active_fence_count == 0
        and guard.family_write_epoch == at_guard.family_write_epoch
        and now.control.source_invalidation_revision == at.control.source_invalidation_revision
        and now.control.mode is at.control.mode
        and now.opening == at.opening
        and now.stamp == at.stamp
        and now.control.inclusion_recalculation_token is None
        and now.control.definition_rewrite_token is None
    )
    if not unmoved:
        raise _lost(publication)


def _write(unit: Unit, publication: Publication, scopes: tuple[str, ...], *, last: bool) -> None:
    guard = unit.state.guards[publication.family]
    fields = _guard_fields(guard, publication, moves=bool(scopes), last=last)
    unit.update_guards({publication.family: {"$set": fields, "$inc": {"Version": 1}}})
    if not scopes:
        return
    revision = unit.advance(source=False, records=len(scopes), client=True)
    unit.mongo.collection(ROW).delete_many(
        {
            "ProjectId": publication.project,
            "Family": publication.family,
            "Scope": {"$in": list(scopes)},
            "IsPublished": True,
        },
        session=unit.session,
    )
    rows = [_row(publication, scope, revision) for scope in scopes]
    unit.insert(ROW, [row.to_bson() for row in rows])
    unit.record(
        Delta(
            project_id=publication.project,
            revision=revision,
            record=number,
            kind=DeltaKind.PUBLICATION,
            moves=[{"Family": row.family, "Scope": row.scope, "Generation": row.generation}],
            observed_at_utc=unit.state.now,
        )
        for number, row in enumerate(rows)
    )
    unit.notify([publication.family])


def _guard_fields(guard: Guard, publication: Publication, *, moves: bool, last: bool) -> dict[str, object]:
    """Fresh with the first published scope; the candidate stays until the run's last one."""
    fields: dict[str, object] = {"State": require(guard.state, State.FRESH).value}
    if moves:
        fields |= {
            "VisibleGeneration": publication.candidate.generation,
            "VisibleToken": publication.candidate.token,
        }
    if last:
        fields["Candidate"] = None
    return fields


def _row(publication: Publication, scope: str, revision: int) -> Row:
    counters, at = publication.values[scope], publication.at
    return Row(
        project_id=publication.project,
        family=publication.family,
        scope=scope,
        generation=publication.candidate.generation,
        token=publication.candidate.token,
        state=State.FRESH,
        is_published=True,
        counters=to_stored(counters),
        dynamic_key_count=len(counters),
        last_changed_revision=revision,
        write_epochs=at.stamp.epochs(at.guards[publication.family].family_write_epoch),
        catalogue_version=at.catalogue_version,
        configuration_digest=at.configuration.digest(publication.family, scope),
    )


def _lost(publication: Publication) -> Refusal:
    return Refusal(OperateReason.PublicationRaceLost, f"{publication.family} of project {publication.project}")


def _batches(scopes: list[str]) -> list[tuple[str, ...]]:
    """At least one, be it empty: the guard is written in any case."""
    starts = range(0, max(len(scopes), 1), PUBLICATION_SCOPES_MAX)
    return [tuple(scopes[start : start + PUBLICATION_SCOPES_MAX]) for start in starts]
