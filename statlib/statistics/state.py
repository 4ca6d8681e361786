"""A project's statistics state at one moment: what transactions and rebuilds decide by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.statistics import queries
from statlib.statistics.catalogue import AnyCatalogue, Configuration, Document
from statlib.statistics.documents import CONTROL, GlobalControl, Guard, ProjectControl
from statlib.statistics.envelopes import Opening
from statlib.statistics.gates import Stamp, matches, stamp_of
from statlib.statistics.reasons import OperateReason
from statlib.statistics.sources import fleet_of


@dataclass(frozen=True, slots=True)
class ProjectState:
    """Control, fleet, guards and context of one snapshot; ``now`` is the server's time of the read.

    ``oldest_delta_at``: when the first row of the ledger was observed; None where it is empty.
    """

    control: ProjectControl
    fleet: GlobalControl
    guards: Mapping[str, Guard]
    context_document: Document
    context: Any
    configuration: Configuration[Any]
    catalogue_version: int
    now: datetime
    oldest_delta_at: datetime | None

    @property
    def opening(self) -> Opening:
        return Opening(self.fleet.mode_epoch, self.control.opening_count)

    @property
    def versions_match(self) -> bool:
        return matches(self.fleet, self.control, self.catalogue_version)

    @property
    def stamp(self) -> Stamp:
        return stamp_of(self.fleet, self.control, self.catalogue_version, self.configuration)


def read_state(
    mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession, project: UUID, families: Sequence[str]
) -> ProjectState | None:
    """One command in the caller's session. None: the project has no control. Refuses ProjectNotFound."""
    pipeline = queries.project_state(catalogue, project, families, mongo.clock.mongo_now())
    found = list(mongo.collection(CONTROL).aggregate(pipeline, session=session))
    if not found:
        return None
    document = found[0]
    if not document["Context"]:
        raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
    fleet = fleet_of(document)
    context = catalogue.domain.context(document["Context"][0], fleet.reviewer_tracking_mode)
    guards = [Guard.from_bson(guard) for guard in document["Guards"]]
    return ProjectState(
        control=ProjectControl.from_bson(document["Control"]),
        fleet=fleet,
        guards={guard.id.family: guard for guard in guards},
        context_document=document["Context"][0],
        context=context,
        configuration=catalogue.configuration(context),
        catalogue_version=catalogue.version,
        now=document["Now"],
        oldest_delta_at=document["Ledger"][0]["ObservedAtUtc"] if document["Ledger"] else None,
    )


def require_state(
    mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession, project: UUID, families: Sequence[str]
) -> ProjectState:
    """``read_state`` for operations that need a control. Refuses ControlMissing."""
    state = read_state(mongo, catalogue, session, project, families)
    if state is None:
        raise Refusal(OperateReason.ControlMissing, f"project {project}")
    return state
