"""A bundle is served from storage in one command, or counted from the source whole and says why."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.statistics.catalogue import Catalogue
from statlib.statistics.documents import GUARD, MEMBER, ROW, Mode, State, TrackingMode
from statlib.statistics.hosts import Role
from statlib.statistics.parity import compare
from statlib.statistics.reader import ALL, Request, Source, read_bundle
from statlib.statistics.reasons import OperateReason, ServeReason
from statlib.statistics.status import project_status
from tests.domain import (
    FAMILIES,
    LIBRARY,
    LOANS,
    SHELVES,
    VISITS,
    BookFamily,
    Library,
    library,
    library_settings,
    served_library,
)
from tests.reviews import host_of

# Stored rows are made to differ from the source, so that the source of a value shows in the value.
FALSE = [{"k": "Lent", "v": 41}]


@pytest.fixture
def served(emptied: Settings) -> Iterator[Library]:
    with served_library(emptied) as opened:
        opened.lend(opened.books[0])
        yield opened


def all_of(catalogue: Catalogue[Any, Any] = LIBRARY) -> list[Request]:
    return [(family, ALL) for family in catalogue.families]


# --- one command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requests", [[(LOANS, "project")], all_of()], ids=["one scope", "three families"])
def test_a_served_bundle_is_one_command(served: Library, requests: list[Request]) -> None:
    with counting(served.mongo.client) as count:
        bundle = served.read(*requests)
    assert bundle.source is Source.MATERIALISED
    assert count.names == ("aggregate",)


def test_a_bundle_of_more_scopes_than_a_servers_default_batch_is_one_command(emptied: Settings) -> None:
    with served_library(emptied, shelves=172) as many:
        with counting(many.mongo.client) as count:
            bundle = many.read((SHELVES, ALL))
        assert bundle.source is Source.MATERIALISED
        assert len(bundle.values[SHELVES]) == 172
        assert count.names == ("aggregate",)


def test_a_bundle_that_is_counted_costs_one_command_more_per_family(served: Library) -> None:
    served.fleet(Mode.DISABLED)
    with counting(served.mongo.client) as count:
        assert served.read().source is Source.AUTHORITATIVE
    assert count.names == ("aggregate",) * (1 + len(FAMILIES))


def test_a_served_bundle_is_what_is_stored_and_names_its_moment(served: Library) -> None:
    served.set_row("shelf/1", Counters=FALSE)
    bundle = served.read((SHELVES, "shelf/1"), (LOANS, "project"))
    control = served.control()
    assert bundle.reason is None
    assert bundle.counters(SHELVES, "shelf/1") == {"Lent": 41}
    assert bundle.counters(LOANS) == {"Lent": 1}
    assert set(bundle.values[SHELVES]) == {"shelf/1"}
    assert bundle.watermarks.checkpoint_identity == (
        f"{control['SourceInvalidationRevision']}.{control['CommittedProjectionRevision']}"
        f".{served.global_control()['ModeEpoch']}"
    )
    assert bundle.watermarks.client == control["ClientInvalidationRevision"]


# --- gates -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Closing:
    """How one gate is closed and nothing else. ``reader``: settings under which the bundle is then read."""

    reason: ServeReason
    name: str
    stored: Callable[[Library], object] = lambda served: None
    reader: Mapping[str, Any] = field(default_factory=dict)
    projects: bool = True
    beside: bool = False

    def __str__(self) -> str:
        return f"{self.reason.name}-{self.name}"


def _epochs(**changed: int) -> Callable[[Library], object]:
    fields: dict[str, Any] = {f"WriteEpochs.{name}": to for name, to in changed.items()}
    return lambda served: served.set_row("shelf/1", **fields)


def _everywhere(**version: int) -> Callable[[Library], object]:
    """Fleet and project agree, on what is not this release's."""

    def stored(served: Library) -> None:
        served.set_fleet(**version)
        served.set_control(**version)

    return stored


CLOSINGS = [
    Closing(ServeReason.FleetDisabled, "closed", lambda s: s.fleet(Mode.DISABLED)),
    Closing(ServeReason.ProjectDisabled, "closed", lambda s: s.gate(enabled=False)),
    Closing(ServeReason.NotAllowlisted, "another project", projects=False),
    Closing(ServeReason.NotAllowlisted, "writes off", reader={"writes": False}),
    Closing(ServeReason.AllowlistInconsistent, "another host", beside=True),
    Closing(ServeReason.VersionIncompatible, "control storage", lambda s: s.set_control(StorageVersion=2)),
    Closing(ServeReason.VersionIncompatible, "control source", lambda s: s.set_control(SourceVersion=2)),
    Closing(ServeReason.VersionIncompatible, "control catalogue", lambda s: s.set_control(CatalogueVersion=2)),
    Closing(ServeReason.VersionIncompatible, "fleet storage", lambda s: s.set_fleet(StorageVersion=2)),
    Closing(ServeReason.VersionIncompatible, "fleet source", lambda s: s.set_fleet(SourceVersion=2)),
    Closing(ServeReason.VersionIncompatible, "fleet catalogue", lambda s: s.set_fleet(CatalogueVersion=2)),
    Closing(ServeReason.VersionIncompatible, "another storage everywhere", _everywhere(StorageVersion=2)),
    Closing(ServeReason.VersionIncompatible, "another source everywhere", _everywhere(SourceVersion=2)),
    Closing(ServeReason.VersionIncompatible, "another catalogue everywhere", _everywhere(CatalogueVersion=2)),
    Closing(ServeReason.FamilyDisabled, "flag off", reader={"families": (LOANS, VISITS)}),
    Closing(ServeReason.GuardNotFresh, "stale", lambda s: s.set_guard(State=State.STALE.value)),
    Closing(ServeReason.GuardNotFresh, "rebuilding", lambda s: s.set_guard(State=State.REBUILDING.value)),
    Closing(
        ServeReason.GuardNotFresh, "missing", lambda s: s.mongo.collection(GUARD).delete_many({"_id.Family": SHELVES})
    ),
    Closing(ServeReason.FenceActive, "fenced", lambda s: s.set_guard(ActiveFenceCount=1)),
    Closing(ServeReason.RowMissing, "one scope", lambda s: s.mongo.collection(ROW).delete_one({"Scope": "shelf/1"})),
    Closing(ServeReason.RowMissing, "unpublished", lambda s: s.set_row("shelf/1", IsPublished=False)),
    Closing(ServeReason.RowNotFresh, "stale", lambda s: s.set_row("shelf/1", State=State.STALE.value)),
    Closing(ServeReason.RowEpochOutdated, "fleet", _epochs(Fleet=0)),
    Closing(ServeReason.RowEpochOutdated, "project", _epochs(Project=7)),
    Closing(ServeReason.RowEpochOutdated, "family", _epochs(Family=7)),
    Closing(ServeReason.RowEpochOutdated, "an epoch of a later release", _epochs(Shelf=0)),
    Closing(ServeReason.RowEpochOutdated, "fleet opened since", lambda s: s.set_fleet(ModeEpoch=9)),
    Closing(ServeReason.RowEpochOutdated, "project opened since", lambda s: s.set_control(OpeningCount=9)),
    Closing(ServeReason.RowEpochOutdated, "family staled since", lambda s: s.set_guard(FamilyWriteEpoch=9)),
    Closing(ServeReason.RowVersionIncompatible, "source", lambda s: s.set_row("shelf/1", SourceVersion=2)),
    Closing(ServeReason.RowVersionIncompatible, "catalogue", lambda s: s.set_row("shelf/1", CatalogueVersion=2)),
    Closing(ServeReason.ConfigurationChanged, "row of before", lambda s: s.set_row("shelf/1", ConfigurationDigest="x")),
    Closing(ServeReason.ConfigurationChanged, "setting edited", lambda s: s.set_context(Entitled=11)),
    Closing(ServeReason.TrackingModeChanged, "row of before", _epochs(Tracking=7)),
    Closing(
        ServeReason.TrackingModeChanged,
        "switched and back",
        lambda s: s.set_fleet(ReviewerTrackingMode=TrackingMode.TRACKED.value, ReviewerTrackingEpoch=2),
    ),
]


def test_every_reason_has_its_gate_closed_alone() -> None:
    elsewhere = {ServeReason.SourceVisibilityFenced, ServeReason.PendingOverlayUnavailable}
    assert {closing.reason for closing in CLOSINGS} | elsewhere == set(ServeReason)


@pytest.mark.parametrize("closing", CLOSINGS, ids=str)
def test_each_gate_closed_alone_gives_the_counted_value_and_its_reason(
    served: Library, emptied: Settings, closing: Closing
) -> None:
    for scope in served.rows(SHELVES):
        served.set_row(scope, Counters=FALSE)
    assert served.read().reason is None
    closing.stored(served)
    projects = [served.project] if closing.projects else []
    served.mongo.collection(MEMBER).delete_many({})  # this host's own record, so that no other host disagrees
    with host_of(library_settings(emptied, *projects, **closing.reader)) as reading:
        if closing.beside:
            with host_of(library_settings(emptied)):
                bundle = read_bundle(reading, LIBRARY, served.project, all_of())
        else:
            bundle = read_bundle(reading, LIBRARY, served.project, all_of())
    assert (bundle.source, bundle.reason) == (Source.AUTHORITATIVE, closing.reason)
    assert bundle.values == {family: served.truth(family) for family in FAMILIES}


@pytest.mark.parametrize("token", ["InclusionRecalculationToken", "DefinitionRewriteToken"])
@pytest.mark.parametrize(
    "also",
    [
        lambda s: None,
        lambda s: s.fleet(Mode.DISABLED),
        lambda s: s.gate(enabled=False),
        lambda s: s.set_guard(State=State.STALE.value),
    ],
    ids=["alone", "fleet closed", "project closed", "stale"],
)
def test_a_source_under_rewriting_is_not_read_at_all_whatever_else_is_closed(
    served: Library, token: str, also: Callable[[Library], object]
) -> None:
    also(served)
    served.set_control(**{token: "t"})
    with pytest.raises(Refusal) as refused:
        served.read()
    assert refused.value.reason is ServeReason.SourceVisibilityFenced
    assert refused.value.reason.http_status == 503


def test_a_project_without_a_control_is_counted(emptied: Settings) -> None:
    with library(emptied, under_statistics=False) as opened:
        bundle = opened.read()
        assert bundle.reason is ServeReason.ProjectDisabled
        assert bundle.values[SHELVES] == opened.truth(SHELVES)
        assert bundle.watermarks.checkpoint_identity == f"0.0.{opened.global_control()['ModeEpoch']}"


def test_a_database_that_nothing_was_ever_written_to_knows_no_project(emptied: Settings) -> None:
    with host_of(library_settings(emptied)) as host, pytest.raises(Refusal) as refused:
        read_bundle(host, LIBRARY, uuid4(), all_of())
    assert refused.value.reason is OperateReason.ProjectNotFound


def test_one_failing_scope_sends_every_family_of_the_bundle_to_the_source(served: Library) -> None:
    for family in FAMILIES:
        for scope in served.rows(family):
            served.set_row(scope, family, Counters=FALSE)
    served.set_row("visitor/bob", VISITS, State=State.STALE.value)
    whole = served.read()
    assert whole.reason is ServeReason.RowNotFresh
    assert whole.values == {family: served.truth(family) for family in FAMILIES}
    without = served.read((SHELVES, ALL), (LOANS, ALL), (VISITS, "visitor/ann"))
    assert without.reason is None
    assert without.counters(VISITS, "visitor/ann") == {"Lent": 41}


def test_status_and_parity_name_the_closed_gate_of_each_family_alone(served: Library) -> None:
    served.set_row("visitor/bob", VISITS, State=State.STALE.value)
    served.set_row("shelf/0", Counters=FALSE)
    status = {of.family: of for of in project_status(served.host, LIBRARY, served.project).families}
    assert {name: (of.served, of.reason, of.current, of.scopes) for name, of in status.items()} == {
        SHELVES: (True, None, 3, 3),
        LOANS: (True, None, 1, 1),
        VISITS: (False, ServeReason.RowNotFresh, 1, 2),
    }
    parity = {of.family: of for of in compare(served.host, LIBRARY, served.project, FAMILIES)}
    assert {name: (of.compared, of.exact, of.reason) for name, of in parity.items()} == {
        SHELVES: (True, False, None),
        LOANS: (True, True, None),
        VISITS: (False, False, ServeReason.RowNotFresh),
    }
    assert [(d.scope, d.counter, d.stored, d.authoritative) for d in parity[SHELVES].differences] == [
        ("shelf/0", "Books", 0, 2),
        ("shelf/0", "Lent", 41, 1),
    ]


# --- what is asked for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ([], OperateReason.FamilyUnknown),
        ([("Nothing", "project")], OperateReason.FamilyUnknown),
        ([(SHELVES, "shelf/9")], OperateReason.ScopeUnknown),
        ([(SHELVES, "shelf/0"), (LOANS, "shelf/0")], OperateReason.ScopeUnknown),
        ([(SHELVES, ALL), (SHELVES, "shelf/9")], OperateReason.ScopeUnknown),
        ([(SHELVES, "shelf/9"), (SHELVES, ALL)], OperateReason.ScopeUnknown),
    ],
    ids=str,
)
def test_what_is_not_declared_is_refused_by_name(
    served: Library, requests: list[Request], reason: OperateReason
) -> None:
    with pytest.raises(Refusal) as refused:
        read_bundle(served.host, LIBRARY, served.project, requests)
    assert refused.value.reason is reason


def test_an_unknown_project_is_refused(served: Library) -> None:
    with pytest.raises(Refusal) as refused:
        read_bundle(served.host, LIBRARY, uuid4(), all_of())
    assert refused.value.reason is OperateReason.ProjectNotFound


def test_asking_twice_and_asking_for_all_beside_one_gives_each_scope_once(served: Library) -> None:
    bundle = served.read((SHELVES, "shelf/1"), (SHELVES, "shelf/1"), (VISITS, "visitor/ann"), (VISITS, ALL))
    assert list(bundle.values[SHELVES]) == ["shelf/1"]
    assert list(bundle.values[VISITS]) == ["visitor/ann", "visitor/bob"]


def test_all_means_what_the_project_declares_at_the_moment_of_the_read(served: Library) -> None:
    served.set_context(Visitors=["ann", "bob", "eve"])
    joined = served.read((VISITS, ALL))
    assert joined.reason is ServeReason.RowMissing
    assert list(joined.values[VISITS]) == ["visitor/ann", "visitor/bob", "visitor/eve"]
    served.set_context(Visitors=["ann"])
    left = served.read((VISITS, ALL))
    assert left.reason is None
    assert list(left.values[VISITS]) == ["visitor/ann"]


def test_a_closed_host_reads_nothing(emptied: Settings) -> None:
    with served_library(emptied) as opened:
        pass
    for reading in (
        opened.read,
        lambda: project_status(opened.host, LIBRARY, opened.project),
        lambda: compare(opened.host, LIBRARY, opened.project, FAMILIES),
        opened.rebuild,
        opened.backfill,
    ):
        with pytest.raises(Refusal, match="HostNotRegistered"):
            reading()


# --- hosts that disagree ---------------------------------------------------------------------------------------------

DISAGREEING: dict[str, tuple[bool, dict[str, Any]]] = {
    "another allowlist": (False, {}),
    "writes off": (True, {"writes": False}),
    "fewer families": (True, {"families": (LOANS,)}),
}


@pytest.mark.req("MEMBER-11", "GATE-27")
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("name", DISAGREEING)
def test_a_live_host_with_other_settings_stops_serving_and_its_end_resumes_it(
    served: Library, emptied: Settings, name: str, role: Role
) -> None:
    same_project, chosen = DISAGREEING[name]
    projects = [served.project] if same_project else []
    with host_of(library_settings(emptied, *projects, **chosen), role):
        bundle = served.read((SHELVES, ALL))
        assert bundle.reason is ServeReason.AllowlistInconsistent
        assert bundle.values[SHELVES] == served.truth(SHELVES)
    assert served.read((SHELVES, ALL)).reason is None


def test_a_host_that_lacks_another_family_is_no_reason_to_refuse_this_one(served: Library, emptied: Settings) -> None:
    with host_of(library_settings(emptied, served.project, families=(SHELVES,))):
        assert served.read((SHELVES, ALL)).reason is None
        assert served.read((SHELVES, ALL), (LOANS, ALL)).reason is ServeReason.AllowlistInconsistent


def test_a_host_that_agrees_on_this_project_and_knows_others_changes_nothing(
    served: Library, emptied: Settings
) -> None:
    with host_of(library_settings(emptied, served.project, uuid4())):
        assert served.read().reason is None


@pytest.mark.req("MEMBER-01")
def test_a_record_of_no_known_deployment_is_ignored(served: Library, emptied: Settings) -> None:
    with host_of(library_settings(emptied)) as other:
        assert served.read().reason is ServeReason.AllowlistInconsistent
        served.mongo.collection(MEMBER).update_one({"_id": other.member_id}, {"$set": {"Deployment": "web"}})
        assert served.read().reason is None


# --- one moment ------------------------------------------------------------------------------------------------------


def hooked(before_counting: Callable[[str], object]) -> Catalogue[Any, Any]:
    """The catalogue with families that call ``before_counting`` (with their name) ahead of their aggregation."""

    class Hooked(BookFamily):
        def aggregation(self, project: Any, context: Any) -> Any:
            before_counting(self.name)
            return super().aggregation(project, context)

    return Catalogue(
        source_collection=LIBRARY.source_collection,
        context_collection=LIBRARY.context_collection,
        version=LIBRARY.version,
        families={name: Hooked(name) for name in FAMILIES},
        domain=LIBRARY.domain,
    )


def test_saves_between_a_readers_commands_are_not_in_the_bundle(served: Library) -> None:
    served.gate(enabled=False)
    before = {family: served.truth(family) for family in FAMILIES}
    watermarks = served.read().watermarks
    shelf_of = iter(served.books[1:])
    bundle = read_bundle(served.host, hooked(lambda _: served.lend(next(shelf_of), "bob")), served.project, all_of())
    assert {family: dict(values) for family, values in bundle.values.items()} == before
    assert bundle.watermarks == watermarks
    assert served.truth(LOANS) == {"project": {"Lent": 1 + len(FAMILIES)}}


def test_a_comparison_counts_the_moment_of_its_rows(served: Library) -> None:
    shelf_of = iter(served.books[1:])
    catalogue = hooked(lambda _: served.lend(next(shelf_of), "bob"))
    for comparison in compare(served.host, catalogue, served.project, FAMILIES):
        assert comparison.exact, comparison
    assert served.truth(LOANS) == {"project": {"Lent": 1 + len(FAMILIES)}}


def test_families_of_a_bundle_agree_with_each_other_while_saves_run(emptied: Settings) -> None:
    with served_library(emptied, books=12) as served:
        stop = threading.Event()

        def lend_and_return() -> None:
            turn = 0
            while not stop.is_set():
                book = served.books[turn % len(served.books)]
                served.lend(book, None if (turn // len(served.books)) % 2 else "ann")
                turn += 1

        saving = threading.Thread(target=lend_and_return)
        saving.start()
        try:
            seen = set()
            for _ in range(150):
                bundle = served.read()
                assert bundle.reason is None
                lent = bundle.counters(LOANS).get("Lent", 0)
                assert sum(shelf.get("Lent", 0) for shelf in bundle.values[SHELVES].values()) == lent
                assert sum(visitor.get("Lent", 0) for visitor in bundle.values[VISITS].values()) == lent
                seen.add(lent)
        finally:
            stop.set()
            saving.join(timeout=30)
        assert not saving.is_alive()
        assert len(seen) > 2, "the reads did not overlap the saves"
