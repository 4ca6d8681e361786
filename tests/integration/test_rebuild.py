"""A rebuild publishes what the source was at one moment, or says why it did not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from statlib.kernel.refusals import Reason, Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.leases import acquire
from statlib.mongo.reasons import MongoReason
from statlib.statistics import publication, queries
from statlib.statistics import rebuild as rebuild_module
from statlib.statistics.admission import admit, lease_id
from statlib.statistics.bounds import PUBLICATION_SCOPES_MAX, REBUILD_LEASE_TTL_S
from statlib.statistics.documents import GUARD, LEASE, OUTBOX, ROW, DeltaKind, Mode, State
from statlib.statistics.reader import ALL
from statlib.statistics.reasons import OperateReason, ServeReason
from statlib.statistics.rebuild import Rebuilt, rebuild
from tests.domain import LIBRARY, LOANS, SHELVES, VISITS, Library, library, library_settings, served_library
from tests.interruptions import Interrupter, When, host_with
from tests.reviews import host_of

FALSE = [{"k": "Lent", "v": 41}]
COUNT = 3  # the aggregation that counts: those of the admission and of the snapshot's state come before it


@pytest.fixture
def stale(emptied: Settings) -> Iterator[Library]:
    with library(emptied) as opened:
        yield opened


@pytest.fixture
def served(emptied: Settings) -> Iterator[Library]:
    with served_library(emptied) as opened:
        yield opened


def shelves(numbers: range) -> tuple[str, ...]:
    return tuple(f"shelf/{number}" for number in numbers)


def refused_with(reason: Reason, doing: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as refused:
        doing()
    assert refused.value.reason is reason
    return refused.value


@contextmanager
def interrupted(
    served: Library, when: When, command: int, doing: Callable[[], object], *, name: str | None = None
) -> Iterator[Library]:
    """The library through a second host whose ``command``-th command (of ``name``) is met by ``doing``."""
    interrupter = Interrupter()

    def interrupt() -> None:
        doing()

    settings = library_settings(served.mongo.settings, served.project)
    with host_with(settings, interrupter, app_name="interrupted") as host:
        other = Library(host.mongo, host, served.project, served.books)
        with interrupter.armed(when, command, interrupt, name=name):
            yield other
        assert interrupter.reached, "the command was never sent"


# --- publication -----------------------------------------------------------------------------------------------------


def test_a_first_rebuild_makes_a_family_fresh_and_exact(stale: Library) -> None:
    done = stale.rebuild()
    assert done == Rebuilt(SHELVES, shelves(range(3)), (), ())
    bundle = stale.read((SHELVES, ALL))
    assert (bundle.reason, bundle.values[SHELVES]) == (None, stale.truth(SHELVES))
    guard = stale.guard()
    assert (guard["State"], guard["VisibleGeneration"], guard["Candidate"]) == ("Fresh", 1, None)
    assert {(row["Generation"], row["Token"], row["State"]) for row in stale.rows().values()} == {
        (1, guard["VisibleToken"], "Fresh")
    }


@pytest.mark.parametrize(
    ("scopes", "transactions"), [(1, 1), (PUBLICATION_SCOPES_MAX, 1), (PUBLICATION_SCOPES_MAX + 1, 2)]
)
def test_at_most_a_cap_of_scopes_is_published_by_one_transaction(
    emptied: Settings, scopes: int, transactions: int
) -> None:
    with library(emptied, shelves=scopes, books=scopes) as wide:
        assert wide.rebuild().published == shelves(range(scopes))
        revisions = sorted(row["LastChangedRevision"] for row in wide.rows().values())
        assert sorted(set(revisions)) == list(range(1, transactions + 1))
        assert max(revisions.count(revision) for revision in revisions) <= PUBLICATION_SCOPES_MAX
        assert wide.control()["CommittedProjectionRevision"] == transactions
        assert wide.read((SHELVES, ALL)).values[SHELVES] == wide.truth(SHELVES)


def test_a_run_has_one_generation_and_one_token_for_all_its_scopes(emptied: Settings) -> None:
    with library(emptied, shelves=PUBLICATION_SCOPES_MAX + 1, books=3) as wide:
        for generation in (1, 2):
            wide.rebuild(force=True)
            guard = wide.guard()
            assert guard["VisibleGeneration"] == generation
            assert {(row["Generation"], row["Token"]) for row in wide.rows().values()} == {
                (generation, guard["VisibleToken"])
            }
        assert len(wide.all_rows()) == PUBLICATION_SCOPES_MAX + 1, "each publication deletes its scope's previous row"


def test_a_publication_is_a_ledger_entry_per_row_and_one_move_of_the_clocks(stale: Library) -> None:
    before = stale.control()
    stale.rebuild()
    after = stale.control()
    assert after["SourceInvalidationRevision"] == before["SourceInvalidationRevision"]
    assert after["CommittedProjectionRevision"] == before["CommittedProjectionRevision"] + 1
    assert after["ClientInvalidationRevision"] == before["ClientInvalidationRevision"] + 1
    deltas = sorted(stale.deltas(), key=lambda delta: delta["Record"])
    assert [(d["Kind"], d["Revision"], d["Record"]) for d in deltas] == [
        (DeltaKind.PUBLICATION.value, after["CommittedProjectionRevision"], record) for record in range(3)
    ]
    assert [move["Scope"] for delta in deltas for move in delta["Moves"]] == list(shelves(range(3)))
    slot = stale.mongo.collection(OUTBOX).find_one({"_id.Family": SHELVES})
    assert slot is not None
    assert slot["ClientInvalidationRevision"] == after["ClientInvalidationRevision"]


def test_the_first_published_scope_makes_a_family_fresh_and_no_sibling_servable(stale: Library) -> None:
    stale.rebuild(scopes=["shelf/1"])
    assert stale.guard()["State"] == "Fresh"
    assert stale.read((SHELVES, "shelf/1")).reason is None
    assert stale.read((SHELVES, "shelf/0")).reason is ServeReason.RowMissing


def test_a_scope_published_before_an_invalidation_is_not_served_after_its_siblings_rebuild(served: Library) -> None:
    served.gate(enabled=False)
    served.gate(enabled=True)
    served.pass_grace()
    served.rebuild(scopes=["shelf/1"])
    assert served.read((SHELVES, "shelf/1")).reason is None
    assert served.read((SHELVES, "shelf/0")).reason is ServeReason.RowEpochOutdated


def test_staling_a_family_that_is_already_stale_outdates_a_scope_published_in_between(served: Library) -> None:
    served.mongo.collection(GUARD).update_one({"_id.Family": SHELVES}, queries.stale_family())
    served.rebuild(scopes=["shelf/1"])
    served.set_guard(State=State.STALE.value)
    served.mongo.collection(GUARD).update_one({"_id.Family": SHELVES}, queries.stale_family())
    served.rebuild(scopes=["shelf/0"])
    assert served.read((SHELVES, "shelf/1")).reason is ServeReason.RowEpochOutdated


def test_a_family_without_any_scope_becomes_fresh_and_writes_no_row(emptied: Settings) -> None:
    with library(emptied, visitors=()) as nobody:
        assert nobody.rebuild(VISITS) == Rebuilt(VISITS, (), (), ())
        assert nobody.guard(VISITS)["State"] == "Fresh"
        assert nobody.rows(VISITS) == {}
        assert nobody.read((VISITS, ALL)).reason is None


def test_rows_carry_the_moment_they_were_counted_in(served: Library) -> None:
    served.rebuild(force=True)
    fleet, control, guard = served.global_control(), served.control(), served.guard()
    configuration = LIBRARY.configuration(served.context())
    for row in served.rows().values():
        assert row["WriteEpochs"] == {
            "Fleet": fleet["ModeEpoch"],
            "Project": control["OpeningCount"],
            "Family": guard["FamilyWriteEpoch"],
            "Tracking": fleet["ReviewerTrackingEpoch"],
        }
        assert row["ConfigurationDigest"] == configuration.digest(SHELVES, row["Scope"])


# --- what is skipped, repaired and forced ----------------------------------------------------------------------------


def test_current_scopes_are_left_alone_and_nothing_but_the_guard_is_written(served: Library) -> None:
    before = served.statistics(without=(LEASE, GUARD, "pmProjectStatisticsFleetMember"))
    done = served.rebuild()
    assert (done.published, done.current) == ((), shelves(range(3)))
    assert served.statistics(without=(LEASE, GUARD, "pmProjectStatisticsFleetMember")) == before
    assert served.guard()["Candidate"] is None


def test_a_rebuild_of_current_scopes_is_overtaken_by_no_save(served: Library) -> None:
    with interrupted(served, When.AFTER_REPLY, COUNT, lambda: served.lend(served.books[1]), name="aggregate") as other:
        assert other.rebuild().published == ()
    assert served.read((SHELVES, ALL)).values[SHELVES] == served.truth(SHELVES)
    assert served.guard()["Candidate"] is None


def test_only_a_scope_that_drifted_is_published_again(served: Library) -> None:
    served.set_row("shelf/1", Counters=FALSE)
    before = served.rows()
    done = served.rebuild()
    assert done == Rebuilt(SHELVES, ("shelf/1",), ("shelf/0", "shelf/2"), ("shelf/1",))
    after = served.rows()
    assert served.read((SHELVES, ALL)).values[SHELVES] == served.truth(SHELVES)
    assert {scope for scope in after if after[scope] != before[scope]} == {"shelf/1"}
    assert [after[scope]["Generation"] for scope in sorted(after)] == [1, 2, 1]


def test_a_scope_that_is_missing_or_a_placeholder_is_published(served: Library) -> None:
    served.mongo.collection(ROW).delete_one({"Scope": "visitor/bob"})
    served.lend(served.books[0], "bob")
    assert served.rows(VISITS)["visitor/bob"]["LastFailureReason"] == "MissingBaseline"
    assert served.rebuild(VISITS).published == ("visitor/bob",)
    assert served.read((VISITS, ALL)).values[VISITS] == served.truth(VISITS)


def test_force_publishes_what_is_current_too(served: Library) -> None:
    done = served.rebuild(force=True, scopes=["shelf/2"])
    assert (done.published, done.current) == (("shelf/2",), ())
    assert served.rows()["shelf/2"]["Generation"] == 2
    assert served.read((SHELVES, ALL)).reason is None, "a forced rebuild leaves its siblings served"


def test_a_family_stays_served_while_it_is_rebuilt(served: Library) -> None:
    seen: list[ServeReason | None] = []
    with interrupted(
        served,
        When.AFTER_REPLY,
        1,
        lambda: seen.append(served.read((SHELVES, ALL)).reason),
        name="commitTransaction",
    ) as other:
        other.rebuild(force=True)
    assert seen == [None]


def test_a_missing_guard_is_created(served: Library) -> None:
    served.mongo.collection(GUARD).delete_many({})
    assert served.read((SHELVES, ALL)).reason is ServeReason.GuardNotFresh
    served.rebuild()
    assert served.guard()["Version"] > 0
    assert served.read((SHELVES, ALL)).reason is None


# --- refusals --------------------------------------------------------------------------------------------------------


def close_fleet(served: Library) -> None:
    served.fleet(Mode.DISABLED)


REFUSALS: dict[str, tuple[Reason, Callable[[Library], object], dict[str, Any]]] = {
    "fleet closed": (OperateReason.GateClosed, close_fleet, {}),
    "project closed": (OperateReason.GateClosed, lambda s: s.gate(enabled=False), {}),
    "another release": (ServeReason.VersionIncompatible, lambda s: s.set_control(CatalogueVersion=2), {}),
    "a fence": (ServeReason.FenceActive, lambda s: s.set_guard(ActiveFenceCount=1), {}),
    "inclusion token": (
        ServeReason.SourceVisibilityFenced,
        lambda s: s.set_control(InclusionRecalculationToken="t"),
        {},
    ),
    "definition token": (ServeReason.SourceVisibilityFenced, lambda s: s.set_control(DefinitionRewriteToken="t"), {}),
    "unknown family": (OperateReason.FamilyUnknown, lambda s: None, {"family": "Nothing"}),
    "unknown scope": (OperateReason.ScopeUnknown, lambda s: None, {"scopes": ["shelf/0", "shelf/9"]}),
    "no project": (OperateReason.ProjectNotFound, lambda s: s.mongo.collection("tdLibrary").delete_many({}), {}),
    "no control": (
        OperateReason.ControlMissing,
        lambda s: s.mongo.collection("pmProjectStatisticsControl").delete_many({}),
        {},
    ),
    "lease held": (
        MongoReason.LeaseHeld,
        lambda s: acquire(s.mongo, LEASE, lease_id(s.project, SHELVES), 60),
        {},
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_rebuild_changed_nothing(served: Library, name: str) -> None:
    reason, closing, options = REFUSALS[name]
    closing(served)
    before = served.statistics()
    refused_with(reason, lambda: served.rebuild(**options))
    assert served.statistics() == before
    if reason is not MongoReason.LeaseHeld:
        for lease in served.mongo.collection(LEASE).find():
            acquire(served.mongo, LEASE, lease["_id"], 1)  # none is left behind


@pytest.mark.parametrize(
    "chosen", [{"writes": False}, {"families": (LOANS,)}, {"allowlist": False}], ids=["writes", "family", "allowlist"]
)
def test_a_host_whose_settings_exclude_a_family_does_not_rebuild_it(served: Library, chosen: dict[str, Any]) -> None:
    projects = [served.project] if chosen.pop("allowlist", True) else []
    with host_of(library_settings(served.mongo.settings, *projects, **chosen)) as excluded:
        refused_with(
            OperateReason.SettingsExclude, lambda: rebuild(excluded, LIBRARY, served.project, SHELVES, force=True)
        )


def open_fleet(served: Library) -> None:
    served.fleet(Mode.DISABLED)
    served.fleet(Mode.ENABLED)


def open_project(served: Library) -> None:
    served.gate(enabled=False)
    served.gate(enabled=True)


@pytest.mark.parametrize("opening", [open_fleet, open_project])
def test_nothing_is_rebuilt_until_the_grace_of_an_opening_has_passed(
    served: Library, opening: Callable[[Library], None]
) -> None:
    grace_s = served.mongo.settings.statistics.opening_grace_s
    opening(served)
    refused = refused_with(OperateReason.WriterGracePending, served.rebuild)
    assert grace_s - 5 < refused.state["leftSeconds"] <= grace_s
    served.mongo.clock.advance(grace_s - 5)
    refused = refused_with(OperateReason.WriterGracePending, served.rebuild)
    assert 0 < refused.state["leftSeconds"] <= 5
    served.mongo.clock.advance(5)
    assert served.rebuild().published == shelves(range(3))
    assert served.read((SHELVES, ALL)).reason is None


# --- rivals ----------------------------------------------------------------------------------------------------------


def test_two_rebuilds_of_one_scope_are_one_at_a_time(served: Library) -> None:
    def second() -> None:
        refused_with(MongoReason.LeaseHeld, lambda: served.rebuild(scopes=["shelf/1"]))

    with interrupted(served, When.AFTER_REPLY, 1, second, name="commitTransaction") as first:
        assert first.rebuild(force=True).published == shelves(range(3))


def test_two_rebuilds_of_sibling_scopes_are_one_at_a_time_since_the_family_has_one_candidate(stale: Library) -> None:
    def second() -> None:
        refused_with(MongoReason.LeaseHeld, lambda: stale.rebuild(scopes=["shelf/1"]))

    with interrupted(stale, When.AFTER_REPLY, 1, second, name="commitTransaction") as first:
        assert first.rebuild(scopes=["shelf/0"]).published == ("shelf/0",)
    assert stale.rebuild().published == ("shelf/1", "shelf/2")
    assert stale.read((SHELVES, ALL)).values[SHELVES] == stale.truth(SHELVES)


@pytest.mark.req("REBUILD-10")
def test_a_later_candidate_is_neither_published_under_nor_withdrawn_by_the_one_it_displaced(stale: Library) -> None:
    later = {"Generation": 1, "Token": "later", "Owner": "later"}
    with interrupted(
        stale, When.AFTER_REPLY, COUNT, lambda: stale.set_guard(Candidate=later), name="aggregate"
    ) as first:
        refused_with(OperateReason.PublicationRaceLost, first.rebuild)
    assert stale.rows() == {}
    assert (stale.guard()["Candidate"], stale.guard()["State"]) == (later, "Rebuilding")


def test_rebuilds_of_two_families_do_not_meet(stale: Library) -> None:
    with interrupted(stale, When.AFTER_REPLY, 1, lambda: stale.rebuild(LOANS), name="commitTransaction") as first:
        first.rebuild(SHELVES)
    assert stale.read((SHELVES, ALL), (LOANS, ALL)).reason is None


CHANGES: dict[str, Callable[[Library], object]] = {
    "a save": lambda s: s.lend(s.books[0]),
    "the project closed": lambda s: s.gate(enabled=False),
    "the project opened anew": open_project,
    "the fleet opened anew": open_fleet,
    "the tracking switched": lambda s: s.set_fleet(ReviewerTrackingEpoch=5),
    "a setting edited": lambda s: s.set_context(Entitled=11),
    "the family staled": lambda s: s.mongo.collection(GUARD).update_one(
        {"_id.Family": SHELVES}, queries.stale_family()
    ),
    "a fence": lambda s: s.set_guard(ActiveFenceCount=1),
    "a source token": lambda s: s.set_control(InclusionRecalculationToken="t"),
    "a definition token": lambda s: s.set_control(DefinitionRewriteToken="t"),
}


@pytest.mark.req("REBUILD-10")
@pytest.mark.parametrize("family_is", ["stale", "fresh"])
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_between_the_count_and_the_publication_loses_the_race(
    emptied: Settings, change: str, family_is: str
) -> None:
    """The race's moment is exact: the first command of the publishing transaction."""
    with (served_library if family_is == "fresh" else library)(emptied) as racing:
        before = racing.rows()
        with interrupted(racing, When.AFTER_REPLY, COUNT, lambda: CHANGES[change](racing), name="aggregate") as other:
            refused_with(OperateReason.PublicationRaceLost, lambda: other.rebuild(force=True))
        published = {row["Generation"] for row in racing.rows().values()}
        assert published <= {row["Generation"] for row in before.values()}
        guard = racing.guard()
        assert guard["Candidate"] is None
        assert guard["State"] in {State.STALE.value, State.FRESH.value}
        racing.set_control(InclusionRecalculationToken=None, DefinitionRewriteToken=None)
        assert racing.read((SHELVES, ALL)).values[SHELVES] == racing.truth(SHELVES)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("the fleet opened anew", ServeReason.RowEpochOutdated),
        ("the tracking switched", ServeReason.TrackingModeChanged),
        ("a setting edited", ServeReason.ConfigurationChanged),
    ],
)
def test_rows_are_stamped_with_their_count_so_that_a_race_nobody_compared_is_not_served(
    served: Library, monkeypatch: pytest.MonkeyPatch, change: str, reason: Reason
) -> None:
    """The comparison before publishing covers the stamp, so it is taken away to show that the stamp holds alone."""
    monkeypatch.setattr(publication, "_require_unmoved", lambda *_: None)
    with interrupted(served, When.AFTER_REPLY, COUNT, lambda: CHANGES[change](served), name="aggregate") as other:
        assert other.rebuild(force=True).published == shelves(range(3))
    assert served.guard()["State"] == "Fresh"
    assert served.read((SHELVES, ALL)).reason is reason


def test_without_the_comparison_a_save_that_overtook_the_count_would_be_lost(
    stale: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "_require_unmoved", lambda *_: None)
    with interrupted(stale, When.AFTER_REPLY, COUNT, lambda: stale.lend(stale.books[0]), name="aggregate") as other:
        other.rebuild()
    bundle = stale.read((SHELVES, ALL))
    assert bundle.reason is None
    assert bundle.values[SHELVES] != stale.truth(SHELVES)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("the project closed", OperateReason.GateClosed),
        ("the project opened anew", OperateReason.WriterGracePending),
        ("the fleet opened anew", OperateReason.WriterGracePending),
        ("a fence", ServeReason.FenceActive),
        ("a source token", ServeReason.SourceVisibilityFenced),
    ],
)
def test_what_changes_between_admission_and_the_count_is_met_by_the_count(
    stale: Library, change: str, reason: Reason
) -> None:
    """An opening of the fleet stales no guard, so only asking again keeps its grace."""
    with interrupted(stale, When.AFTER_REPLY, 1, lambda: CHANGES[change](stale), name="commitTransaction") as other:
        refused_with(reason, other.rebuild)
    assert stale.rows() == {}
    assert stale.guard()["Candidate"] is None


def test_a_save_between_admission_and_the_count_is_in_the_count(stale: Library) -> None:
    with interrupted(stale, When.AFTER_REPLY, 1, lambda: stale.lend(stale.books[0]), name="commitTransaction") as other:
        other.rebuild()
    bundle = stale.read((SHELVES, ALL))
    assert (bundle.reason, bundle.values[SHELVES]) == (None, stale.truth(SHELVES))
    assert stale.truth(SHELVES)["shelf/0"]["Lent"] == 1


def test_a_race_lost_between_two_batches_leaves_the_first_exact_and_the_rest_unserved(emptied: Settings) -> None:
    scopes = PUBLICATION_SCOPES_MAX + 2
    with library(emptied, shelves=scopes, books=scopes) as wide:
        # The second commit is the first batch's: the first one was the admission's.
        with interrupted(
            wide, When.AFTER_REPLY, 2, lambda: wide.lend(wide.books[0]), name="commitTransaction"
        ) as other:
            refused_with(OperateReason.PublicationRaceLost, other.rebuild)
        published = list(wide.rows())
        assert len(published) == PUBLICATION_SCOPES_MAX
        assert wide.guard()["State"] == "Fresh"
        first = wide.read(*[(SHELVES, scope) for scope in published])
        truth = wide.truth(SHELVES)
        assert first.reason is None
        assert first.values[SHELVES] == {scope: truth[scope] for scope in published}
        assert truth["shelf/0"]["Lent"] == 1
        assert wide.read((SHELVES, ALL)).reason is ServeReason.RowMissing
        assert len(wide.rebuild().published) == 2
        assert wide.read((SHELVES, ALL)).values[SHELVES] == truth


@pytest.mark.req("REBUILD-10")
def test_a_lease_that_runs_out_while_the_source_is_counted_publishes_nothing(stale: Library) -> None:
    with interrupted(
        stale, When.AFTER_REPLY, COUNT, lambda: stale.mongo.clock.advance(REBUILD_LEASE_TTL_S), name="aggregate"
    ) as other:
        refused_with(MongoReason.LeaseLost, other.rebuild)
    assert stale.rows() == {}
    assert stale.rebuild().published == shelves(range(3))


# --- what a crash leaves ---------------------------------------------------------------------------------------------


class Crash(BaseException):
    """Ends a process that has no time to tidy up."""


def test_a_crash_leaves_rebuilding_and_the_next_try_takes_over(stale: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as dying:
        dying.setattr(rebuild_module, "publish", crash)
        dying.setattr(rebuild_module, "withdraw", lambda *_: None)
        with pytest.raises(Crash):
            stale.rebuild()
    guard = stale.guard()
    assert (guard["State"], guard["Candidate"] is not None) == ("Rebuilding", True)
    assert stale.read((SHELVES, ALL)).reason is ServeReason.GuardNotFresh
    assert stale.rebuild().published == shelves(range(3))
    assert stale.read((SHELVES, ALL)).reason is None


@pytest.mark.parametrize("declared", [range(2), range(4)])
def test_an_edit_between_admission_and_snapshot_decides_which_scopes_are_published(
    stale: Library, monkeypatch: pytest.MonkeyPatch, declared: range
) -> None:
    def admitted(*arguments: Any) -> Any:
        candidates = admit(*arguments)
        stale.set_context(Shelves=list(declared))
        return candidates

    monkeypatch.setattr(rebuild_module, "admit", admitted)
    assert stale.rebuild().published == shelves(declared)
    assert stale.read((SHELVES, ALL)).values[SHELVES] == stale.truth(SHELVES)


def test_a_named_scope_that_an_edit_removed_meanwhile_is_refused(
    stale: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def admitted(*arguments: Any) -> Any:
        candidates = admit(*arguments)
        stale.set_context(Shelves=[0])
        return candidates

    monkeypatch.setattr(rebuild_module, "admit", admitted)
    with pytest.raises(Refusal) as refused:
        stale.rebuild(scopes=["shelf/1"])
    assert refused.value.reason is OperateReason.ScopeUnknown
    assert stale.guard()["Candidate"] is None


def test_a_try_that_fails_withdraws_its_candidate_and_releases_its_leases(
    stale: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError

    with monkeypatch.context() as failing:
        failing.setattr(rebuild_module, "calculate", fail)
        with pytest.raises(KeyError):
            stale.rebuild()
    guard = stale.guard()
    assert (guard["State"], guard["Candidate"]) == ("Stale", None)
    assert stale.rebuild().published == shelves(range(3))


def test_many_rebuilds_at_once_end_exact(stale: Library) -> None:
    """Every one publishes or is refused, typed; none leaves the family other than right."""
    outcomes: list[str] = []

    def repeat() -> None:
        for _ in range(5):
            try:
                stale.rebuild(force=True)
                outcomes.append("published")
            except Refusal as refusal:
                outcomes.append(refusal.reason.name)

    rivals = [threading.Thread(target=repeat) for _ in range(3)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join(timeout=60)
    assert not any(rival.is_alive() for rival in rivals)
    assert len(outcomes) == 15
    assert set(outcomes) <= {"published", "LeaseHeld", "PublicationRaceLost", "Contended"}
    assert "published" in outcomes
    stale.rebuild()
    assert stale.read((SHELVES, ALL)).values[SHELVES] == stale.truth(SHELVES)
    assert sorted(row["Scope"] for row in stale.all_rows()) == list(shelves(range(3)))
