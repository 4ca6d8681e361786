"""A backfill brings a family to Fresh with proof, or says within a bound why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any
from uuid import uuid4

import pytest

from statlib.kernel.refusals import Reason, Refusal, RefusalKind
from statlib.kernel.settings import Settings
from statlib.mongo.leases import acquire
from statlib.mongo.reasons import MongoReason
from statlib.statistics import backfill as backfill_module
from statlib.statistics import queries
from statlib.statistics.admission import lease_id
from statlib.statistics.backfill import backfill
from statlib.statistics.bounds import REBUILD_RETRIES_MAX
from statlib.statistics.documents import CONTROL, GUARD, LEASE, Mode, TrackingMode
from statlib.statistics.reader import ALL
from statlib.statistics.reasons import OperateReason, ServeReason
from statlib.statistics.rebuild import rebuild_together
from tests.domain import FAMILIES, LIBRARY, LOANS, SHELVES, VISITS, Library, library, library_settings, served_library
from tests.interruptions import Interrupter, When, host_with
from tests.reviews import host_of

COUNT = 3  # the aggregation that counts; see test_rebuild


@pytest.fixture
def stale(emptied: Settings) -> Iterator[Library]:
    with library(emptied) as opened:
        yield opened


@pytest.fixture
def served(emptied: Settings) -> Iterator[Library]:
    with served_library(emptied) as opened:
        yield opened


def bootstrap(of: Library) -> dict[str, dict[str, Any]]:
    points: dict[str, dict[str, Any]] = of.control().get("Bootstrap", {})
    return points


def test_a_first_backfill_publishes_every_scope_and_proves_the_family_served_and_exact(stale: Library) -> None:
    stale.lend(stale.books[0])
    for family in FAMILIES:
        done = stale.backfill(family)
        assert done.rebuilt.published == LIBRARY.family(family).declared_scopes(
            LIBRARY.domain.context(
                {"Shelves": [0, 1, 2], "Visitors": ["ann", "bob"], "Entitled": 10}, TrackingMode.TRACKED
            )
        )
        assert (done.races_lost, done.verified.exact, done.verified.scopes) == (0, True, len(done.rebuilt.published))
    bundle = stale.read()
    assert bundle.reason is None
    assert bundle.values == {family: stale.truth(family) for family in FAMILIES}


def test_the_bootstrap_point_is_the_identity_of_the_first_backfill_and_is_written_once(stale: Library) -> None:
    stale.lend(stale.books[0])
    before = stale.control()
    stale.backfill()
    point = bootstrap(stale)[SHELVES]
    assert (point["SourceRevision"], point["ProjectionRevision"], point["ModeEpoch"]) == (
        before["SourceInvalidationRevision"],
        before["CommittedProjectionRevision"],
        stale.global_control()["ModeEpoch"],
    )
    stale.lend(stale.books[1])
    stale.backfill(force=True)
    assert bootstrap(stale) == {SHELVES: point}
    stale.backfill(LOANS)
    assert set(bootstrap(stale)) == {SHELVES, LOANS}


def test_a_repeated_backfill_changes_nothing(served: Library) -> None:
    served.lend(served.books[0])
    volatile = (LEASE, "pmProjectStatisticsFleetMember")
    served.backfill()
    before = served.statistics(without=volatile)
    done = served.backfill()
    after = served.statistics(without=volatile)
    assert (done.rebuilt.published, done.verified.exact) == ((), True)
    # A candidate comes and goes, which the guard's version counts.
    versions = [{**guard, "Version": 0} for guard in before.pop(GUARD)]
    assert versions == [{**guard, "Version": 0} for guard in after.pop(GUARD)]
    assert after == before


def test_a_family_without_scopes_is_brought_to_fresh(emptied: Settings) -> None:
    with library(emptied, visitors=()) as nobody:
        done = nobody.backfill(VISITS)
        assert (done.rebuilt.published, done.verified.exact, done.verified.scopes) == ((), True, 0)
        assert nobody.read((VISITS, ALL)).reason is None


def test_a_project_without_sources_is_served_as_nothing(emptied: Settings) -> None:
    with served_library(emptied, books=0) as empty:
        assert empty.read().values[SHELVES] == {f"shelf/{shelf}": {} for shelf in range(3)}


# --- refusals --------------------------------------------------------------------------------------------------------


def open_again(of: Library) -> None:
    of.gate(enabled=False)
    of.gate(enabled=True)


REFUSALS: dict[str, tuple[Reason, Callable[[Library], object], dict[str, Any]]] = {
    "fleet closed": (OperateReason.GateClosed, lambda s: s.fleet(Mode.DISABLED), {}),
    "project closed": (OperateReason.GateClosed, lambda s: s.gate(enabled=False), {}),
    "another release": (ServeReason.VersionIncompatible, lambda s: s.set_control(CatalogueVersion=2), {}),
    "fence": (ServeReason.FenceActive, lambda s: s.mongo.collection(GUARD).insert_one(fenced(s)), {}),
    "token": (ServeReason.SourceVisibilityFenced, lambda s: s.set_control(DefinitionRewriteToken="t"), {}),
    "grace": (OperateReason.WriterGracePending, open_again, {}),
    "unknown family": (OperateReason.FamilyUnknown, lambda s: None, {"family": "Nothing"}),
    "family with a path": (OperateReason.FamilyUnknown, lambda s: None, {"family": "Shelves.Nested"}),
    "no control": (OperateReason.ControlMissing, lambda s: s.mongo.collection(CONTROL).delete_many({}), {}),
}


def fenced(of: Library) -> dict[str, Any]:
    return {"_id": queries.guard_id(of.project, SHELVES), "State": "Stale", "ActiveFenceCount": 1, "Version": 1}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_backfill_changed_nothing_and_left_no_bootstrap_point(stale: Library, name: str) -> None:
    reason, closing, options = REFUSALS[name]
    closing(stale)
    before = stale.statistics()
    with pytest.raises(Refusal) as refused:
        stale.backfill(**options)
    assert refused.value.reason is reason
    assert stale.statistics() == before


@pytest.mark.parametrize("excluded", ["project", "family", "writes"])
def test_a_host_whose_settings_exclude_the_family_does_not_backfill_it(stale: Library, excluded: str) -> None:
    chosen: dict[str, Any] = {"writes": False} if excluded == "writes" else {}
    if excluded == "family":
        chosen = {"families": (LOANS,)}
    project = uuid4() if excluded == "project" else stale.project
    before = stale.statistics()
    with (
        host_of(library_settings(stale.mongo.settings, project, **chosen)) as host,
        pytest.raises(Refusal, match="SettingsExclude"),
    ):
        backfill(host, LIBRARY, stale.project, SHELVES)
    assert stale.statistics() == before


def test_a_held_lease_is_refused_at_once_and_not_waited_for(stale: Library) -> None:
    acquire(stale.mongo, LEASE, lease_id(stale.project, SHELVES), 60)
    with pytest.raises(Refusal) as refused:
        stale.backfill()
    assert refused.value.reason is MongoReason.LeaseHeld


def test_a_family_that_hosts_disagree_about_is_published_and_said_not_to_be_served(stale: Library) -> None:
    with (
        host_of(library_settings(stale.mongo.settings)),
        pytest.raises(Refusal) as refused,
    ):
        stale.backfill()
    assert refused.value.reason is OperateReason.NotServedAfterwards
    assert refused.value.state == {"reason": "AllowlistInconsistent"}
    assert stale.read((SHELVES, ALL)).reason is None, "once the other host has gone it is served"


# --- races -----------------------------------------------------------------------------------------------------------


class Rival(Interrupter):
    """Lends a book after each of the first ``times`` counts: exactly what makes a publication lose its race."""

    def __init__(self, served: Library, times: int) -> None:
        super().__init__()
        self.times = times
        self.won = 0
        self._books = cycle(served.books)
        self._served = served

    def again(self) -> None:
        self.won += 1
        self._served.lend(next(self._books), f"visitor {self.won}")


@contextmanager
def raced(stale: Library, times: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Library, Rival]]:
    """The library on a host of its own, on which a rival saves between each count and its publication."""
    rival = Rival(stale, times)
    once = rebuild_together
    with host_with(library_settings(stale.mongo.settings, stale.project), rival, app_name="raced") as host:

        def rebuild_once(*arguments: Any, **options: Any) -> Any:
            if rival.won == rival.times:
                return once(*arguments, **options)
            with rival.armed(When.AFTER_REPLY, COUNT, rival.again, name="aggregate"):
                return once(*arguments, **options)

        monkeypatch.setattr(backfill_module, "rebuild_together", rebuild_once)
        yield Library(host.mongo, host, stale.project, stale.books), rival


@pytest.mark.parametrize("times", [1, 3])
def test_a_backfill_tries_again_after_a_lost_race_and_says_how_often(
    stale: Library, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    with raced(stale, times, monkeypatch) as (other, rival):
        done = other.backfill()
    assert (done.races_lost, rival.won, done.verified.exact) == (times, times, True)
    assert stale.read((SHELVES, ALL)).values[SHELVES] == stale.truth(SHELVES)


def test_a_backfill_at_its_last_retry_still_publishes(stale: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill_module, "back_off", lambda _: None)
    with raced(stale, REBUILD_RETRIES_MAX, monkeypatch) as (other, _):
        assert other.backfill().races_lost == REBUILD_RETRIES_MAX
    assert stale.read((SHELVES, ALL)).reason is None


def test_a_backfill_that_loses_every_race_is_starved_within_its_bound(
    stale: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill_module, "back_off", lambda _: None)
    with raced(stale, REBUILD_RETRIES_MAX + 2, monkeypatch) as (other, rival):
        with pytest.raises(Refusal) as refused:
            other.backfill()
        assert rival.won == REBUILD_RETRIES_MAX + 1
    assert refused.value.reason is OperateReason.RebuildStarved
    assert refused.value.reason.kind is RefusalKind.CONTENTION
    assert isinstance(refused.value.__cause__, Refusal)
    assert stale.rows() == {}
    assert stale.guard()["Candidate"] is None
    assert stale.backfill().races_lost == 0, "a closing backfill, when the saves have paused"
