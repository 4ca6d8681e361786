"""Small reviews for tests: a project under statistics with studies, hosts on it, and its truth by the naive oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from pymongo.read_concern import ReadConcern

from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo, connected
from statlib.passes.audit import Action
from statlib.review.catalogue import REVIEW
from statlib.review.documents import (
    PROJECTS,
    STUDIES,
    AgreementThreshold,
    Membership,
    Project,
    Question,
    Search,
    Stage,
    StageKind,
    Study,
)
from statlib.review.families.project_screening import NAME as PROJECT_SCREENING
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics import hosts, modes, storage
from statlib.statistics.backfill import backfill
from statlib.statistics.documents import (
    CONTROL,
    DELTA,
    GLOBAL_CONTROL,
    GUARD,
    RECEIPT,
    ROW,
    TOKEN_FIELDS,
    Mode,
    TrackingMode,
)
from statlib.statistics.reader import ALL, Bundle, read_bundle
from tests.oracles import families_annotation, families_screening
from tests.oracles.project_screening import project_screening

FAMILY = PROJECT_SCREENING
ALL_FAMILIES = tuple(REVIEW.families)
ORACLES: Mapping[str, Callable[..., dict[str, dict[str, int]]]] = {
    **families_screening.ORACLES,
    **families_annotation.ORACLES,
}
JOINED = datetime(2024, 1, 1, tzinfo=UTC)


def action(name: str = "test", **payload: Any) -> Action:
    return Action("tester", "test", name, "target", str(uuid4()), payload)


@dataclass(frozen=True)
class Review:
    """A project with studies, as one process sees it. ``members``, ``stages`` and ``searches``: as it began."""

    mongo: Mongo
    host: hosts.Host
    project: UUID
    studies: tuple[UUID, ...]
    members: tuple[UUID, ...] = ()
    stages: tuple[UUID, ...] = ()
    searches: tuple[UUID, ...] = ()

    @property
    def writer(self) -> ScreeningWriter:
        return ScreeningWriter(self.host, self.project)

    def read(self) -> Bundle:
        return read_bundle(self.host, REVIEW, self.project, [(FAMILY, "project")])

    def read_all(self) -> Bundle:
        """Every scope of every family, the host's families or not."""
        return read_bundle(self.host, REVIEW, self.project, [(family, ALL) for family in ALL_FAMILIES])

    def backfill(self, family: str = FAMILY) -> None:
        backfill(self.host, REVIEW, self.project, family)

    def backfill_all(self) -> None:
        """Every family of the host."""
        for family in ALL_FAMILIES:
            if family in self.host.families:
                self.backfill(family)

    def gate(self, *, enabled: bool) -> None:
        modes.set_narrow_gate(self.mongo, REVIEW, self.project, enabled=enabled, action=action())

    def fleet(self, mode: Mode) -> None:
        modes.set_fleet_mode(self.mongo, REVIEW, mode, action())

    def study(self, study: UUID) -> dict[str, Any]:
        """As applied: a majority read may lag behind a write whose majority nobody waited for."""
        found = self.mongo.collection(STUDIES).with_options(read_concern=ReadConcern("local")).find_one({"_id": study})
        assert found is not None
        return found

    def decisions(self, study: UUID) -> dict[UUID, bool]:
        return {s["InvestigatorId"]: s["Included"] for s in self.study(study)["Screenings"]}

    def stored_project(self) -> dict[str, Any]:
        found = self.mongo.collection(PROJECTS).find_one({"_id": self.project})
        assert found is not None
        return found

    def stored_studies(self) -> list[dict[str, Any]]:
        return list(self.mongo.collection(STUDIES).find({"ProjectId": self.project}))

    def truth(self) -> dict[str, int]:
        """The naive count of what is stored in the studies now."""
        counted = project_screening(self.stored_studies(), self.stored_project()["AgreementThreshold"])
        return {key: value for key, value in counted.items() if value}

    def truth_of(self, family: str) -> dict[str, dict[str, int]]:
        """The naive count of each scope that the stored project declares now. Zeros are absent."""
        return ORACLES[family](self.stored_studies(), self.stored_project(), self.tracked)

    def whole_truth(self) -> dict[str, dict[str, dict[str, int]]]:
        """``truth_of`` every family, from one reading of what is stored."""
        studies, project, tracked = self.stored_studies(), self.stored_project(), self.tracked
        return {family: count(studies, project, tracked) for family, count in ORACLES.items()}

    def source_is_hidden(self) -> bool:
        control = self.control()
        return any(control.get(field) is not None for field in TOKEN_FIELDS.values())

    @property
    def tracked(self) -> bool:
        """Whether reservations count towards allocation now."""
        fleet = self.mongo.collection(GLOBAL_CONTROL).find_one({})
        assert fleet is not None
        return bool(fleet["ReviewerTrackingMode"] == TrackingMode.TRACKED)

    def receipts(self) -> list[dict[str, Any]]:
        receipts = self.mongo.collection(RECEIPT).with_options(read_concern=ReadConcern("local"))
        return list(receipts.find({"ProjectId": self.project}))

    def deltas(self) -> list[dict[str, Any]]:
        return list(self.mongo.collection(DELTA).find({"ProjectId": self.project}))

    def control(self) -> dict[str, Any]:
        found = self.mongo.collection(CONTROL).find_one({"_id": self.project})
        assert found is not None
        return found

    def guard(self) -> dict[str, Any]:
        found = self.mongo.collection(GUARD).find_one({"_id.ProjectId": self.project})
        assert found is not None
        return found

    def row(self) -> dict[str, Any]:
        found = self.mongo.collection(ROW).find_one({"ProjectId": self.project, "IsPublished": True})
        assert found is not None
        return found

    def snapshot_of_statistics(self) -> dict[str, list[dict[str, Any]]]:
        """Everything that a refused or killed save must not have touched."""
        return {
            name: sorted(self.mongo.collection(name).find(), key=lambda d: str(d["_id"]))
            for name in (*storage.COLLECTIONS, STUDIES)
            if name != "pmProjectStatisticsFleetMember"
        }


def settings_for(
    base: Settings,
    *projects: UUID,
    writes: bool = True,
    families: tuple[str, ...] = (FAMILY,),
    fold: bool = False,
) -> Settings:
    """``base`` for a host that has these projects under statistics."""
    chosen = base.statistics.model_copy(
        update={"allowlist": frozenset(projects), "writes": writes, "families": frozenset(families), "fold": fold}
    )
    return base.model_copy(update={"statistics": chosen})


@contextmanager
def host_of(settings: Settings, role: hosts.Role = hosts.Role.API) -> Iterator[hosts.Host]:
    """A host with a client of its own, as another process would have."""
    with connected(settings, app_name=f"statlib-tests-{role}") as mongo, hosts.registered(mongo, role) as host:
        yield host


def stage(name: str = "stage", *, kind: StageKind = StageKind.ANNOTATION, target: int = 2) -> Stage:
    return Stage(id=uuid4(), name=name, kind=kind, session_count_target=target)


@contextmanager
def review(
    base: Settings,
    *,
    studies: int = 3,
    under_statistics: bool = True,
    included: bool = True,
    min_screenings: int = 2,
    families: tuple[str, ...] = (FAMILY,),
    members: int = 0,
    stages: Sequence[Stage] = (),
    questions: Sequence[Question] = (),
    searches: int = 0,
    fold: bool = False,
) -> Iterator[Review]:
    """A fresh review. ``under_statistics``: created with an open control, fleet open; ``included``: by this host.

    ``families`` are the host's. Studies come from the searches in turn. ``fold``: the host may leave pending entries;
    the project does not fold yet.
    """
    project_id = uuid4()
    settings = settings_for(base, project_id, families=families, fold=fold) if included else base
    project = Project(
        id=project_id,
        name="test",
        agreement_threshold=AgreementThreshold(min_screenings=min_screenings),
        stages=tuple(stages),
        memberships=tuple(
            Membership(investigator_id=uuid4(), joined_at_utc=JOINED, name=f"reviewer {n}") for n in range(members)
        ),
        questions=tuple(questions),
        searches=tuple(Search(id=uuid4(), name=f"search {n}") for n in range(searches)),
    )
    with host_of(settings) as host:
        mongo = host.mongo
        storage.initialise(mongo, REVIEW)
        mongo.collection(PROJECTS).insert_one(project.to_bson())
        if under_statistics:
            modes.set_fleet_mode(mongo, REVIEW, Mode.ENABLED, action())
            mongo.clock.advance(mongo.settings.statistics.opening_grace_s)  # nobody wrote before the fleet was opened
            modes.create_under_statistics(mongo, REVIEW, project_id)
        ids = tuple(uuid4() for _ in range(studies))
        found_by: list[UUID | None] = [search.id for search in project.searches] or [None]
        documents = [
            Study(id=id_, project_id=project_id, search_id=found_by[n % len(found_by)], title=f"study {n}").to_bson()
            for n, id_ in enumerate(ids)
        ]
        if documents:
            mongo.collection(STUDIES).insert_many(documents)
        yield Review(
            mongo,
            host,
            project_id,
            ids,
            members=tuple(membership.investigator_id for membership in project.memberships),
            stages=tuple(stage.id for stage in project.stages),
            searches=tuple(search.id for search in project.searches),
        )
