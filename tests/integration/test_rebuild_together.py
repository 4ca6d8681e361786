"""Several families are rebuilt from one moment, and each is published, or loses, by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from statlib.kernel.refusals import Reason, Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.mongo.leases import acquire
from statlib.mongo.reasons import MongoReason
from statlib.statistics import backfill as backfill_module
from statlib.statistics import queries
from statlib.statistics import rebuild as rebuild_module
from statlib.statistics.admission import lease_id
from statlib.statistics.backfill import Backfilled, backfill_together
from statlib.statistics.bounds import REBUILD_LEASE_TTL_S, REBUILD_RETRIES_MAX
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import GUARD, LEASE, Mode
from statlib.statistics.parity import compare
from statlib.statistics.publication import Publication, publish
from statlib.statistics.reasons import OperateReason, ServeReason
from statlib.statistics.rebuild import RebuiltTogether, rebuild_together
from tests.domain import (
    FAMILIES,
    LIBRARY,
    LIBRARY_IN_ONE_WALK,
    LOANS,
    SHELVES,
    VISITS,
    Library,
    library,
    library_settings,
    served_library,
)
from tests.interruptions import Interrupter, When, host_with

CATALOGUES = [pytest.param(LIBRARY, id="each by itself"), pytest.param(LIBRARY_IN_ONE_WALK, id="in one walk")]
COUNT = 3  # the first aggregation that counts: those of the admission and of the snapshot's state come before it


@pytest.fixture
def stale(emptied: Settings) -> Iterator[Library]:
    with library(emptied) as opened:
        yield opened


def together(
    of: Library,
    families: Sequence[str] | Mapping[str, Sequence[str] | None] = FAMILIES,
    *,
    catalogue: AnyCatalogue = LIBRARY_IN_ONE_WALK,
    force: bool = False,
) -> RebuiltTogether:
    wanted = families if isinstance(families, Mapping) else dict.fromkeys(families)
    return rebuild_together(of.host, catalogue, of.project, wanted, force=force)


def backfilled(of: Library, families: Sequence[str] = FAMILIES, *, force: bool = False) -> tuple[Backfilled, ...]:
    return backfill_together(of.host, LIBRARY_IN_ONE_WALK, of.project, families, force=force)


@contextmanager
def interrupted(of: Library, when: When, command: int, doing: Callable[[], object], *, name: str) -> Iterator[Library]:
    interrupter = Interrupter()
    with host_with(library_settings(of.mongo.settings, of.project), interrupter, app_name="interrupted") as host:
        with interrupter.armed(when, command, lambda: _do(doing), name=name):
            yield Library(host.mongo, host, of.project, of.books)
        assert interrupter.reached, "the command was never sent"


def _do(doing: Callable[[], object]) -> None:
    doing()


def assert_right(of: Library) -> None:
    """Whatever is published and whatever is not: every value that is read is the source's."""
    assert of.read().values == {family: of.truth(family) for family in FAMILIES}


def reasons(done: RebuiltTogether) -> dict[str, Reason]:
    return {family: refusal.reason for family, refusal in done.lost.items()}


def refused_with(reason: Reason, doing: Callable[[], object]) -> None:
    with pytest.raises(Refusal) as refused:
        doing()
    assert refused.value.reason is reason


# --- one moment ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_families_rebuilt_together_are_all_fresh_and_exact(stale: Library, catalogue: AnyCatalogue) -> None:
    stale.lend(stale.books[0])
    done = together(stale, catalogue=catalogue)
    assert done.lost == {}
    assert {family: len(rebuilt.published) for family, rebuilt in done.rebuilt.items()} == {
        SHELVES: 3,
        LOANS: 1,
        VISITS: 2,
    }
    assert stale.read().reason is None
    assert_right(stale)
    assert {stale.guard(family)["Candidate"] for family in FAMILIES} == {None}


def test_together_cost_one_admission_one_walk_and_a_lease_per_family_not_per_scope(emptied: Settings) -> None:
    with library(emptied, shelves=30, books=30) as wide:
        with counting(wide.mongo.client) as alone:
            for family in FAMILIES:
                wide.rebuild(family, force=True)
        with counting(wide.mongo.client) as sent:
            together(wide, force=True)
        assert sent.by_name["findAndModify"] == len(FAMILIES)
        assert sent.by_name["commitTransaction"] == 1 + len(FAMILIES), "one admission, and a publication each"
        assert sent.by_name["aggregate"] == 3 + len(FAMILIES), "admission, snapshot and the walk, and one a publication"
        assert sent.total < alone.total
        assert_right(wide)


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_what_is_current_and_right_is_left_alone_per_family(stale: Library, catalogue: AnyCatalogue) -> None:
    stale.backfill_all()
    stale.set_row("project", of=LOANS, Counters=[{"k": "Lent", "v": 41}])
    before = {family: stale.rows(family) for family in FAMILIES}
    done = together(stale, catalogue=catalogue)
    assert {family: rebuilt.published for family, rebuilt in done.rebuilt.items()} == {
        SHELVES: (),
        LOANS: ("project",),
        VISITS: (),
    }
    assert done.rebuilt[LOANS].drifted == ("project",)
    assert {family: stale.rows(family) == before[family] for family in FAMILIES} == {
        SHELVES: True,
        LOANS: False,
        VISITS: True,
    }
    assert_right(stale)


def test_scopes_may_be_named_per_family(stale: Library) -> None:
    done = together(stale, {SHELVES: ["shelf/1"], LOANS: None})
    assert {family: rebuilt.published for family, rebuilt in done.rebuilt.items()} == {
        SHELVES: ("shelf/1",),
        LOANS: ("project",),
    }
    assert stale.read((SHELVES, "shelf/1"), (LOANS, "project")).reason is None


# --- what refuses all ------------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[Reason, Callable[[Library], object], dict[str, Any]]] = {
    "no family": (OperateReason.FamilyUnknown, lambda s: None, {"families": []}),
    "an unknown family": (OperateReason.FamilyUnknown, lambda s: None, {"families": [SHELVES, "Nothing"]}),
    "an unknown scope": (OperateReason.ScopeUnknown, lambda s: None, {"families": {LOANS: None, SHELVES: ["x"]}}),
    "one is fenced": (ServeReason.FenceActive, lambda s: s.set_guard(VISITS, ActiveFenceCount=1), {}),
    "closed": (OperateReason.GateClosed, lambda s: s.fleet(Mode.DISABLED), {}),
    "one is being rebuilt": (
        MongoReason.LeaseHeld,
        lambda s: acquire(s.mongo, LEASE, lease_id(s.project, VISITS), REBUILD_LEASE_TTL_S),
        {},
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_before_counting_is_refused_of_all_and_changes_nothing(stale: Library, name: str) -> None:
    reason, closing, options = REFUSALS[name]
    stale.backfill_all()
    closing(stale)
    before = stale.statistics()
    refused_with(reason, lambda: together(stale, **options, force=True))
    assert stale.statistics() == before
    for family in (SHELVES, LOANS):
        acquire(stale.mongo, LEASE, lease_id(stale.project, family), 1)  # none is left behind


# --- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_a_save_while_families_are_counted_makes_all_of_them_lose(stale: Library, catalogue: AnyCatalogue) -> None:
    with interrupted(stale, When.AFTER_REPLY, COUNT, lambda: stale.lend(stale.books[0]), name="aggregate") as first:
        done = together(first, catalogue=catalogue)
    assert (done.rebuilt, reasons(done)) == ({}, dict.fromkeys(FAMILIES, OperateReason.PublicationRaceLost))
    assert all(stale.rows(family) == {} for family in FAMILIES)
    assert {(stale.guard(f)["State"], stale.guard(f)["Candidate"]) for f in FAMILIES} == {("Stale", None)}


@pytest.mark.parametrize("publications", [1, 2])
def test_a_save_between_two_publications_moves_what_is_published_and_makes_the_rest_lose(
    stale: Library, publications: int
) -> None:
    """The save comes right after the commit of so many publications; the first commit is the admission's."""
    save = lambda: stale.lend(stale.books[0])  # noqa: E731 - named for what it does
    with interrupted(stale, When.AFTER_REPLY, 1 + publications, save, name="commitTransaction") as first:
        done = together(first)
    assert list(done.rebuilt) == list(FAMILIES[:publications])
    assert reasons(done) == dict.fromkeys(FAMILIES[publications:], OperateReason.PublicationRaceLost)
    bundle = stale.read(*[(family, scope) for family in done.rebuilt for scope in stale.truth(family)])
    assert bundle.reason is None
    assert bundle.values == {family: stale.truth(family) for family in done.rebuilt}
    assert_right(stale)
    rest = together(stale)
    assert [family for family, rebuilt in rest.rebuilt.items() if rebuilt.published] == list(FAMILIES[publications:])
    assert stale.read().reason is None
    assert_right(stale)


def lose_lease(of: Library) -> None:
    """Somebody else's, as after it ran out."""
    identity = lease_id(of.project, LOANS)
    of.mongo.collection(LEASE).update_one({"_id": identity}, {"$set": {"Owner": "another"}})


LOSSES_OF_ONE: dict[str, tuple[Reason, Callable[[Library], object]]] = {
    "staled": (
        OperateReason.PublicationRaceLost,
        lambda s: s.mongo.collection(GUARD).update_one({"_id.Family": LOANS}, queries.stale_family()),
    ),
    "fenced": (OperateReason.PublicationRaceLost, lambda s: s.set_guard(LOANS, ActiveFenceCount=1)),
    "another candidate": (
        OperateReason.PublicationRaceLost,
        lambda s: s.set_guard(LOANS, Candidate={"Generation": 1, "Token": "later", "Owner": "later"}),
    ),
    "its lease lost": (MongoReason.LeaseLost, lose_lease),
}


@pytest.mark.parametrize("name", LOSSES_OF_ONE)
def test_a_loss_of_one_family_is_its_own(stale: Library, name: str) -> None:
    reason, lose = LOSSES_OF_ONE[name]
    with interrupted(stale, When.AFTER_REPLY, COUNT, lambda: lose(stale), name="aggregate") as first:
        done = together(first)
    assert (list(done.rebuilt), reasons(done)) == ([SHELVES, VISITS], {LOANS: reason})
    assert stale.rows(LOANS) == {}
    assert stale.read((SHELVES, "shelf/0"), (VISITS, "visitor/ann")).reason is None
    assert_right(stale)


# --- crashes ---------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """Ends a process that has no time to tidy up."""


@pytest.mark.parametrize("published", range(len(FAMILIES)))
def test_after_a_crash_between_publications_all_is_right_and_the_next_try_takes_over(
    stale: Library, monkeypatch: pytest.MonkeyPatch, published: int
) -> None:
    done: list[str] = []

    def some(mongo: Any, catalogue: AnyCatalogue, publication: Publication) -> None:
        if len(done) == published:
            raise Crash
        publish(mongo, catalogue, publication)
        done.append(publication.family)

    with monkeypatch.context() as dying:
        dying.setattr(rebuild_module, "publish", some)
        dying.setattr(rebuild_module, "withdraw", lambda *_: None)
        with pytest.raises(Crash):
            together(stale)
    assert done == list(FAMILIES[:published])
    assert {family: stale.guard(family)["State"] for family in FAMILIES} == {
        family: "Fresh" if family in done else "Rebuilding" for family in FAMILIES
    }
    stale.lend(stale.books[0])
    assert_right(stale)
    rest = together(stale)
    assert [family for family, rebuilt in rest.rebuilt.items() if rebuilt.published] == list(FAMILIES[published:])
    assert stale.read().reason is None
    assert_right(stale)


# --- backfill and parity ---------------------------------------------------------------------------------------------


def test_a_backfill_of_several_proves_each_of_them_in_the_order_asked(stale: Library) -> None:
    done = backfilled(stale, [VISITS, SHELVES, VISITS])
    assert [one.verified.family for one in done] == [one.rebuilt.family for one in done] == [VISITS, SHELVES]
    assert all(one.verified.exact and one.races_lost == 0 for one in done)
    assert set(stale.control()["Bootstrap"]) == {VISITS, SHELVES}
    point = stale.control()["Bootstrap"][SHELVES]
    stale.lend(stale.books[0])
    backfilled(stale)
    assert set(stale.control()["Bootstrap"]) == set(FAMILIES)
    assert stale.control()["Bootstrap"][SHELVES] == point, "written once"


def test_only_the_families_that_lost_their_race_are_tried_again(
    stale: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[tuple[str, ...]] = []

    def counted(host: Any, catalogue: AnyCatalogue, project: Any, families: Any, *, force: bool) -> RebuiltTogether:
        tries.append(tuple(families))
        return rebuild_together(host, catalogue, project, families, force=force)

    monkeypatch.setattr(backfill_module, "rebuild_together", counted)
    with interrupted(stale, When.AFTER_REPLY, 2, lambda: stale.lend(stale.books[0]), name="commitTransaction") as it:
        done = backfilled(it)
    assert tries == [FAMILIES, FAMILIES[1:]]
    assert [one.races_lost for one in done] == [0, 1, 1]
    assert all(one.verified.exact for one in done)
    assert_right(stale)


def test_families_that_lose_every_race_are_starved_by_name_and_the_others_stay(
    stale: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Refusal(OperateReason.PublicationRaceLost, VISITS)

    def losing(host: Any, catalogue: AnyCatalogue, project: Any, families: Any, *, force: bool) -> RebuiltTogether:
        some = {family: None for family in families if family != VISITS}
        done = rebuild_together(host, catalogue, project, some, force=force) if some else RebuiltTogether({}, {})
        return RebuiltTogether(done.rebuilt, {VISITS: lost})

    monkeypatch.setattr(backfill_module, "rebuild_together", losing)
    monkeypatch.setattr(backfill_module, "back_off", lambda _: None)
    with pytest.raises(Refusal, match=f"{VISITS}: {REBUILD_RETRIES_MAX + 1} tries") as refused:
        backfilled(stale)
    assert refused.value.reason is OperateReason.RebuildStarved
    assert stale.read((SHELVES, "shelf/0"), (LOANS, "project")).reason is None


def test_a_loss_that_is_no_race_is_not_tried_again(stale: Library) -> None:
    with (
        interrupted(stale, When.AFTER_REPLY, COUNT, lambda: lose_lease(stale), name="aggregate") as first,
        pytest.raises(Refusal) as refused,
    ):
        backfilled(first)
    assert refused.value.reason is MongoReason.LeaseLost
    assert_right(stale)


def test_several_families_are_compared_at_one_moment(stale: Library) -> None:
    """A save between their counts would show as a difference, were they counted at different moments."""
    stale.backfill_all()
    with interrupted(stale, When.AFTER_REPLY, 2, lambda: stale.lend(stale.books[0]), name="aggregate") as other:
        found = compare(other.host, LIBRARY, other.project, FAMILIES)
    assert [comparison.family for comparison in found] == list(FAMILIES)
    assert all(comparison.exact for comparison in found)
    assert len({comparison.watermarks for comparison in found}) == 1


def test_a_family_that_cannot_be_compared_keeps_no_other_from_it(stale: Library) -> None:
    stale.backfill(SHELVES)
    found = {of.family: of for of in compare(stale.host, LIBRARY_IN_ONE_WALK, stale.project, FAMILIES)}
    assert (found[SHELVES].exact, found[LOANS].compared, found[LOANS].reason) == (
        True,
        False,
        ServeReason.GuardNotFresh,
    )


def test_a_bundle_that_falls_back_is_counted_in_one_walk(emptied: Settings) -> None:
    with served_library(emptied) as served:
        served.set_guard(VISITS, State="Stale")
        with counting(served.mongo.client) as sent:
            assert served.read().reason is ServeReason.GuardNotFresh
        assert sent.names == ("aggregate",) * (1 + len(FAMILIES)), "without a pass"
        with counting(served.mongo.client) as sent:
            bundle = served.read(catalogue=LIBRARY_IN_ONE_WALK)
        assert sent.names == ("aggregate", "aggregate")
        assert bundle.values == {family: served.truth(family) for family in FAMILIES}
