"""Passes over a real ledger: what they take, what they leave, who keeps them out, and that nothing served changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner, Result

from statlib.cli.main import main
from statlib.kernel.refusals import Reason, Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.leases import held
from statlib.mongo.reasons import MongoReason
from statlib.passes.audit import AUDIT, server_time
from statlib.review.catalogue import REVIEW
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics import queries
from statlib.statistics.admission import lease_id
from statlib.statistics.arms import Arm
from statlib.statistics.bounds import (
    DELTA_LEDGER_AGE_MAX_S,
    LEDGER_GUARDS_MAX,
    LEDGER_IDENTITY_PROOF_ROWS_MAX,
    LEDGER_PASS_PAUSE_S,
    LEDGER_PASS_ROWS_MAX,
    LEDGER_SEALS_MAX,
)
from statlib.statistics.documents import CONTROL, DELTA, DELTA_SEAL, FENCE, GUARD, LEASE, ROW
from statlib.statistics.hosts import Host, Role
from statlib.statistics.ledger import LedgerBounds
from statlib.statistics.ledger_maintenance import Compacted, Compaction, compact_ledger
from statlib.statistics.reader import Source
from statlib.statistics.reasons import LedgerReason, OperateReason, SaveReason, ServeReason
from statlib.statistics.rebuild import rebuild
from statlib.workers.fold import FoldWorker
from statlib.workers.ledger import LedgerKeeper
from tests import arms
from tests.children import _as_environment as as_environment
from tests.folding import pending
from tests.interruptions import Interrupter, When, host_with
from tests.reviews import FAMILY, Review, host_of, review
from tests.servers import fail_command

CLOCKS = ("SourceInvalidationRevision", "CommittedProjectionRevision", "ClientInvalidationRevision")
PASS = LEDGER_PASS_ROWS_MAX


def keeping(settings: Settings) -> Settings:
    chosen = settings.statistics.model_copy(update={"ledger_maintenance": True})
    return settings.model_copy(update={"statistics": chosen})


@pytest.fixture
def served(emptied: Settings) -> Iterator[Review]:
    """A review that is served, on a host that may compact. Its ledger has the row of its publication."""
    with review(keeping(emptied)) as opened:
        opened.backfill()
        yield opened


def decide(of: Review, times: int = 1, host: Host | None = None) -> None:
    """As many saves, each of which moves the row."""
    writer = ScreeningWriter(host or of.host, of.project)
    for n in range(times):
        writer.submit(of.studies[n % len(of.studies)], uuid4(), Decision.INCLUDE)


def outgrow_the_window(of: Review) -> None:
    of.mongo.clock.advance(of.mongo.settings.statistics.redelivery_window_s + 1)


def compact(of: Review, host: Host | None = None) -> Compacted:
    return compact_ledger(host or of.host, REVIEW, of.project)


def compact_all(of: Review) -> list[Compacted]:
    done = [compact(of)]
    while done[-1].outcome is Compaction.COMPACTED:
        done.append(compact(of))
    return done


def refused(reason: Reason, of: Review, host: Host | None = None) -> None:
    """The pass is refused for it, and changes nothing."""
    before = of.snapshot_of_statistics()
    with pytest.raises(Refusal) as caught:
        compact(of, host)
    assert caught.value.reason is reason
    assert of.snapshot_of_statistics() == before


def seals(of: Review) -> list[dict[str, Any]]:
    return list(of.mongo.collection(DELTA_SEAL).find({"ProjectId": of.project}).sort("FirstRevision", 1))


def revisions(of: Review) -> list[int]:
    return sorted(delta["Revision"] for delta in of.deltas())


def assert_served_and_right(of: Review) -> None:
    bundle = of.read()
    assert bundle.source is Source.MATERIALISED, bundle.reason
    assert bundle.counters(FAMILY) == of.truth()
    assert rebuild(of.host, REVIEW, of.project, FAMILY).drifted == ()


def assert_counted(of: Review) -> None:
    """The control knows how many rows there are, and they lead without a hole from the floor to the head."""
    control = of.control()
    floor, head = control["ReplayFloorRevision"], control["CommittedProjectionRevision"]
    assert sorted(set(revisions(of))) == list(range(floor + 1, head + 1))
    assert control["LedgerRows"] == len(of.deltas())


# --- the ceiling -----------------------------------------------------------------------------------------------------


def capped(of: Review, rows: int) -> Host:
    return replace(of.host, ledger=LedgerBounds(rows_max=rows))


def test_saves_at_the_ceiling_stale_and_after_passes_they_move_exact_rows_again(served: Review) -> None:
    host = capped(served, 40)
    decide(served, 39, host)
    assert_served_and_right(served)
    decide(served, 1, host)
    assert served.guard()["State"] == "Stale"
    served.backfill()  # publishing is not held back, and leaves the ledger as full as it was
    decide(served, 1, host)
    assert served.guard()["State"] == "Stale"
    outgrow_the_window(served)
    assert sum(done.deleted for done in compact_all(served)) == 41
    served.backfill()
    decide(served, 38, host)
    assert_served_and_right(served)
    assert_counted(served)


def test_a_ledger_too_old_takes_no_more_until_its_oldest_rows_are_gone(served: Review) -> None:
    decide(served)
    served.mongo.clock.advance(DELTA_LEDGER_AGE_MAX_S)
    decide(served)
    assert served.guard()["State"] == "Stale"
    compact_all(served)
    served.backfill()
    decide(served)
    assert_served_and_right(served)


# --- what a pass takes -----------------------------------------------------------------------------------------------


@pytest.mark.req("DELTA-20", "DELTA-24", "DELTA-33", "DELTA-35", "DELTA-40", "DELTA-43")
def test_passes_go_on_from_the_floor_and_change_nothing_that_is_served(served: Review) -> None:
    decide(served, 2 * PASS)
    outgrow_the_window(served)
    decide(served, 3)
    last = 2 * PASS + 1
    clocks = {name: served.control()[name] for name in CLOCKS}
    row, receipts, values = served.row(), served.receipts(), served.read().counters(FAMILY)
    done = compact_all(served)
    assert [(one.outcome, one.deleted, one.replay_floor_revision) for one in done] == [
        (Compaction.COMPACTED, PASS, PASS),
        (Compaction.COMPACTED, PASS, 2 * PASS),
        (Compaction.COMPACTED, 1, last),
        (Compaction.NO_ELIGIBLE_COMPLETE_REVISION, 0, last),
    ]
    assert {one.safe_watermark for one in done} == {clocks["CommittedProjectionRevision"]}
    assert revisions(served) == [last + 1, last + 2, last + 3]
    (seal,) = seals(served)
    assert (seal["FirstRevision"], seal["LastRevision"], seal["Rows"]) == (1, last, last)
    assert {name: served.control()[name] for name in CLOCKS} == clocks
    assert (served.row(), served.receipts(), served.read().counters(FAMILY)) == (row, receipts, values)
    assert_counted(served)
    assert_served_and_right(served)


def lay(of: Review, groups: list[int], *, at: datetime, floor: int = 0) -> None:
    """A ledger of revisions with so many rows each; 0 is a missing one."""
    of.mongo.collection(DELTA).delete_many({})
    rows = [
        {"ProjectId": of.project, "Revision": floor + n, "Record": record, "Kind": "Operation", "Moves": []}
        | {"OperationId": f"{n}-{record}", "OperationNamespace": "laid", "ObservedAtUtc": at}
        for n, size in enumerate(groups, start=1)
        for record in range(size)
    ]
    of.mongo.collection(DELTA).insert_many(rows)
    head = {"CommittedProjectionRevision": floor + len(groups), "LedgerRows": len(rows), "ReplayFloorRevision": floor}
    of.mongo.collection(CONTROL).update_one({"_id": of.project}, {"$set": head})


@pytest.mark.req("DELTA-21", "DELTA-23", "DELTA-25", "DELTA-26", "DELTA-40")
@pytest.mark.parametrize(
    ("groups", "deleted"),
    [
        ([30, 3], [30, 3, 0]),
        ([PASS], [PASS, 0]),
        ([PASS, 1], [PASS, 1, 0]),
        ([PASS + 1, 1], [0]),
        ([1, PASS + 1], [1, 0]),
        ([2, 0, 2], [2, 0]),
    ],
    ids=["cut by the page", "as large as a pass", "and one more", "too large", "too large next", "a gap"],
)
def test_a_revision_goes_whole_or_not_at_all(served: Review, groups: list[int], deleted: list[int]) -> None:
    lay(served, groups, at=server_time(served.mongo))
    outgrow_the_window(served)
    assert [done.deleted for done in compact_all(served)] == deleted
    left = served.control()
    assert left["LedgerRows"] == len(served.deltas()) == sum(groups) - sum(deleted)


@pytest.mark.req("DELTA-23", "DELTA-40")
def test_a_young_sibling_keeps_its_revision_and_all_after_it(served: Review) -> None:
    decide(served, 3)
    outgrow_the_window(served)
    served.mongo.collection(DELTA).update_one({"Revision": 3}, {"$set": {"ObservedAtUtc": server_time(served.mongo)}})
    assert [done.deleted for done in compact_all(served)] == [2, 0]
    assert revisions(served) == [3, 4]


@pytest.mark.req("DELTA-22")
def test_a_seal_keeps_the_earliest_and_the_latest_observation(served: Review) -> None:
    decide(served, PASS + 1)
    early, late = (server_time(served.mongo) + timedelta(hours=hours) for hours in (-5, -3))
    deltas = served.mongo.collection(DELTA)
    deltas.update_many({}, {"$set": {"ObservedAtUtc": early + timedelta(hours=1)}})
    deltas.update_one({"Revision": 2}, {"$set": {"ObservedAtUtc": late}})
    deltas.update_one({"Revision": PASS + 1}, {"$set": {"ObservedAtUtc": early}})
    compact_all(served)
    (seal,) = seals(served)
    assert (seal["ObservedFromUtc"], seal["ObservedToUtc"], seal["Rows"]) == (early, late, PASS + 2)


@pytest.mark.req("DELTA-28", "DELTA-29")
@pytest.mark.parametrize("left", [LEDGER_IDENTITY_PROOF_ROWS_MAX, LEDGER_IDENTITY_PROOF_ROWS_MAX + 1])
def test_the_identity_floor_moves_only_where_all_that_is_left_proves_it(served: Review, left: int) -> None:
    observed = server_time(served.mongo)
    lay(served, [PASS, *[1] * left], at=observed)
    outgrow_the_window(served)
    assert compact(served).deleted == PASS
    proved = left <= LEDGER_IDENTITY_PROOF_ROWS_MAX
    floor = served.control()["IdentityFloorUtc"]
    assert floor == (observed - timedelta(milliseconds=1) if proved else None)


# --- who keeps it out ------------------------------------------------------------------------------------------------


@pytest.fixture
def old(served: Review) -> Review:
    """Served, with rows that a pass may take."""
    decide(served, 3)
    outgrow_the_window(served)
    return served


def _fence(of: Review) -> None:
    of.mongo.collection(GUARD).update_one({"_id.Family": FAMILY}, {"$inc": {"ActiveFenceCount": 1}})


def _candidate(of: Review) -> None:
    candidate = {"Generation": 2, "Token": "t", "Owner": "o"}
    of.mongo.collection(GUARD).update_one({"_id.Family": FAMILY}, {"$set": {"Candidate": candidate}})


def _operation(of: Review) -> None:
    of.mongo.collection(FENCE).insert_one({"_id": {"ProjectId": of.project, "Kind": "SearchImport"}, "Active": True})


def _too_many_guards(of: Review) -> None:
    there = of.mongo.collection(GUARD).count_documents({})
    more = range(LEDGER_GUARDS_MAX + 1 - there)
    of.mongo.collection(GUARD).insert_many(
        [{"_id": {"ProjectId": of.project, "Family": f"f{n}"}, "State": "Missing"} for n in more]
    )


def _all_seals(of: Review, first: int = 1_000) -> None:
    of.mongo.collection(DELTA_SEAL).insert_many(
        {"ProjectId": of.project, "FirstRevision": r, "LastRevision": r, "Rows": 1}
        for r in range(first, first + 2 * LEDGER_SEALS_MAX, 2)
    )


def _another_release(of: Review) -> None:
    of.mongo.collection(CONTROL).update_one({}, {"$inc": {"CatalogueVersion": 1}})


@pytest.mark.req("DELTA-11", "DELTA-12", "DELTA-14", "DELTA-19", "DELTA-36", "DELTA-41")
@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        (_fence, LedgerReason.PublicationGuardBusy),
        (_candidate, LedgerReason.PublicationGuardBusy),
        (_operation, LedgerReason.PublicationOperationActive),
        (_too_many_guards, LedgerReason.PublicationGuardCapacity),
        (_all_seals, LedgerReason.SealCapacity),
        (_another_release, ServeReason.VersionIncompatible),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else value.name,
)
def test_whoever_is_at_work_and_whatever_is_full_refuses_the_pass(
    old: Review, obstacle: Callable[[Review], None], reason: Reason
) -> None:
    obstacle(old)
    refused(reason, old)


def test_a_full_set_of_seals_still_prolongs_the_one_that_adjoins(old: Review) -> None:
    _all_seals(old)
    first = old.mongo.collection(DELTA_SEAL).find_one({}, sort=[("FirstRevision", 1)])
    assert first is not None
    old.mongo.collection(DELTA_SEAL).update_one(
        {"_id": first["_id"]}, {"$set": {"FirstRevision": 0, "LastRevision": 0}}
    )
    assert compact(old).deleted == 4
    assert len(seals(old)) == LEDGER_SEALS_MAX
    assert (seals(old)[0]["LastRevision"], seals(old)[0]["Rows"]) == (4, 5)


@pytest.mark.req("DELTA-10", "DELTA-41")
def test_a_live_rebuild_refuses_the_pass_and_a_fold_does_not(old: Review) -> None:
    with held(old.mongo, LEASE, lease_id(old.project, FAMILY), 60):
        refused(LedgerReason.RebuildActive, old)
    with (
        held(old.mongo, LEASE, queries.fold_lease_id(old.project), 60),
        held(old.mongo, LEASE, lease_id(uuid4(), FAMILY), 60),
    ):
        assert compact(old).deleted == 4


@pytest.mark.req("DELTA-02", "DELTA-03")
def test_settings_and_allowlist_are_asked_first(old: Review) -> None:
    off = old.mongo.settings.statistics.model_copy(update={"ledger_maintenance": False})
    assert not Settings().statistics.ledger_maintenance
    with host_of(old.mongo.settings.model_copy(update={"statistics": off})) as host:
        refused(LedgerReason.LedgerMaintenanceDisabled, old, host)
    elsewhere = old.mongo.settings.statistics.model_copy(update={"allowlist": frozenset()})
    with host_of(old.mongo.settings.model_copy(update={"statistics": elsewhere})) as host:
        refused(OperateReason.SettingsExclude, old, host)


# --- interrupted -----------------------------------------------------------------------------------------------------


@pytest.mark.req("DELTA-27", "DELTA-31", "DELTA-42")
@pytest.mark.parametrize("command", ["update", "insert", "delete", "commitTransaction"])
def test_a_pass_that_is_cut_off_has_changed_nothing_and_is_repeated(old: Review, command: str) -> None:
    before = old.snapshot_of_statistics()
    aborted = {"error_code": 251, "error_labels": ["TransientTransactionError"]}
    with fail_command(old.mongo.client, [command], app_name="statlib-tests-api", **aborted):  # type: ignore[arg-type]
        with pytest.raises(Refusal) as caught:
            compact(old)
        assert caught.value.reason is LedgerReason.ConcurrentStatisticsWrite
    assert old.snapshot_of_statistics() == before
    assert compact(old).deleted == 4
    assert_counted(old)


@pytest.mark.req("DELTA-32", "DELTA-33", "DELTA-42")
def test_a_pass_whose_commit_is_unknown_is_repeated_from_the_floor_that_holds(old: Review) -> None:
    with (
        fail_command(old.mongo.client, ["commitTransaction"], write_concern_error=64, app_name="statlib-tests-api"),
        pytest.raises(Refusal) as caught,
    ):
        compact(old)
    assert caught.value.reason is MongoReason.CommitOutcomeUnknown
    assert old.control()["ReplayFloorRevision"] in {0, 4}
    compact_all(old)
    assert (old.control()["ReplayFloorRevision"], old.deltas()) == (4, [])
    assert [(seal["FirstRevision"], seal["LastRevision"], seal["Rows"]) for seal in seals(old)] == [(1, 4, 4)]


# --- races -----------------------------------------------------------------------------------------------------------


@contextmanager
def interrupted(of: Review, when: When, number: int, name: str, action: Callable[[], None]) -> Iterator[Host]:
    interrupter = Interrupter()
    with (
        host_with(of.mongo.settings, interrupter, app_name="statlib-tests-pass") as host,
        interrupter.armed(when, number, action, name=name) as armed,
    ):
        yield host
        assert armed.reached


def _save(of: Review) -> None:
    decide(of)


def _rebuild(of: Review) -> None:
    rebuild(of.host, REVIEW, of.project, FAMILY, force=True)


@pytest.mark.req("DELTA-07", "DELTA-31", "DELTA-33", "DELTA-45")
@pytest.mark.parametrize("rival", [_save, _rebuild], ids=lambda rival: rival.__name__.strip("_"))
def test_what_commits_within_a_pass_makes_it_lose_and_is_not_deleted(
    old: Review, rival: Callable[[Review], None]
) -> None:
    with (
        interrupted(old, When.BEFORE_SENDING, 1, "update", lambda: rival(old)) as host,
        pytest.raises(Refusal) as caught,
    ):
        compact(old, host)
    assert caught.value.reason is LedgerReason.ConcurrentStatisticsWrite
    assert revisions(old) == [1, 2, 3, 4, 5]
    assert compact(old).deleted == 4
    assert revisions(old) == [5]
    assert_served_and_right(old)


@pytest.mark.req("DELTA-08")
def test_a_guard_that_changes_within_a_pass_makes_it_lose(old: Review) -> None:
    def admit() -> None:
        old.mongo.collection(GUARD).update_one({"_id.Family": FAMILY}, {"$inc": {"Version": 1}})

    with (
        interrupted(old, When.BEFORE_SENDING, 1, "update", admit) as host,
        pytest.raises(Refusal) as caught,
    ):
        compact(old, host)
    assert caught.value.reason is LedgerReason.ConcurrentStatisticsWrite


@pytest.mark.req("DELTA-45")
def test_a_save_that_meets_an_open_pass_starts_over_and_is_exact(old: Review) -> None:
    with ThreadPoolExecutor(1) as pool:
        begun = threading.Event()

        def save() -> None:
            begun.set()
            decide(old)

        futures = []

        def rival() -> None:
            futures.append(pool.submit(save))
            assert begun.wait(60)

        with interrupted(old, When.AFTER_REPLY, 1, "update", rival) as host:
            assert compact(old, host).deleted == 4
        futures[0].result(timeout=60)
    assert revisions(old) == [5]
    assert_served_and_right(old)
    assert_counted(old)


def submit_surely(of: Review, study: UUID) -> None:
    """As a caller does that is told that too many others came first."""
    investigator = uuid4()
    for _ in range(20):
        try:
            of.writer.submit(study, investigator, Decision.EXCLUDE)
        except Refusal as refusal:
            if refusal.reason is not SaveReason.AttemptsExhausted:
                raise
        else:
            return
    raise AssertionError("no submission came through")


@pytest.mark.parametrize("arm", [Arm.TRANSACTIONAL, Arm.FOLD])
def test_passes_among_saves_and_folds_leave_every_counter_exact(emptied: Settings, arm: Arm) -> None:
    with review(keeping(emptied), studies=12, fold=arm is Arm.FOLD) as opened:
        opened.backfill()
        decide(opened, 3 * PASS)
        arms.begin(opened, arm)
        outgrow_the_window(opened)
        head = opened.control()["CommittedProjectionRevision"]
        ended = threading.Event()

        def save(studies: tuple[UUID, ...]) -> None:
            for study in studies * 3:
                submit_surely(opened, study)

        def pass_over() -> int:
            deleted = 0
            while True:
                last = ended.is_set()
                try:
                    done = compact(opened)
                except Refusal as refusal:
                    if refusal.reason is not LedgerReason.ConcurrentStatisticsWrite:
                        raise
                    ended.wait(LEDGER_PASS_PAUSE_S)
                    continue
                deleted += done.deleted
                if last and done.outcome is Compaction.NO_ELIGIBLE_COMPLETE_REVISION:
                    return deleted
                ended.wait(LEDGER_PASS_PAUSE_S)

        with ThreadPoolExecutor(4) as pool:
            passes = pool.submit(pass_over)
            saves = [pool.submit(save, opened.studies[n::2]) for n in range(2)]
            try:
                while not all(save.done() for save in saves):
                    arms.fold(opened)
                for each in saves:
                    each.result()
            finally:
                ended.set()
            assert passes.result() == head
        arms.fold(opened)
        assert not pending(opened.mongo, opened.project)
        assert opened.control()["ReplayFloorRevision"] == head
        assert_counted(opened)
        assert_served_and_right(opened)


@pytest.mark.req("DELTA-38", "DELTA-44", "DELTA-46")
def test_a_redelivery_is_known_by_its_receipt_after_its_row_is_gone(served: Review) -> None:
    investigator = uuid4()
    envelope = served.writer.open(served.studies[0], investigator)
    first = served.writer.save(envelope, Decision.INCLUDE)
    outgrow_the_window(served)
    compact_all(served)
    assert served.deltas() == []
    receipts, row = served.receipts(), served.row()
    again = served.writer.save(envelope, Decision.INCLUDE)
    assert (again.duplicate, again.revision_after) == (True, first.revision_after)
    assert (served.receipts(), served.row(), served.deltas()) == (receipts, row, [])
    assert served.control()["ReceiptTimeFloorUtc"] is None
    assert_served_and_right(served)


# --- the worker ------------------------------------------------------------------------------------------------------


def test_a_keeper_takes_what_is_old_and_looks_again_when_its_cadence_says_so(served: Review) -> None:
    told: list[str] = []
    decide(served, 2 * PASS)
    keeper = LedgerKeeper(served.host, REVIEW)
    assert keeper.look(told.append) > 0
    outgrow_the_window(served)
    decide(served, 2)
    keeper.look(told.append)
    assert (keeper.compacted, revisions(served)) == (2 * PASS + 1, [2 * PASS + 2, 2 * PASS + 3])
    outgrow_the_window(served)
    with held(served.mongo, LEASE, lease_id(served.project, FAMILY), 60):
        keeper.look(told.append)
    assert len(revisions(served)) == 2
    served.mongo.clock.advance(61)
    keeper.look(told.append)
    assert (revisions(served), told) == ([], [])


def test_a_keeper_says_what_somebody_should_see_to_and_outlives_a_lost_server(served: Review) -> None:
    told: list[str] = []
    decide(served, 2)
    outgrow_the_window(served)
    with fail_command(served.mongo.client, ["find"], error_code=8000, app_name="statlib-tests-api"):
        assert LedgerKeeper(served.host, REVIEW).look(told.append) > 0
    assert len(told) == 1
    _all_seals(served)
    keeper = LedgerKeeper(served.host, REVIEW)
    assert keeper.look(told.append) > 0
    assert (keeper.compacted, len(told)) == (0, 2)
    assert "SealCapacity" in told[-1]
    with fail_command(served.mongo.client, ["delete", "update"], error_code=8000, app_name="statlib-tests-api"):
        served.mongo.clock.advance(61)
        keeper.look(told.append)
    assert len(told) == 3


def test_a_fold_worker_keeps_the_ledgers_of_its_projects(old: Review) -> None:
    with host_of(old.mongo.settings, Role.PROJECT_MANAGEMENT) as host:
        stop = threading.Event()
        worker = FoldWorker(host, REVIEW, stop)
        running = threading.Thread(target=worker.run, args=(lambda _: None,))
        running.start()
        try:
            waited = threading.Event()
            for _ in range(1_200):
                if not old.deltas():
                    break
                waited.wait(0.05)
        finally:
            stop.set()
            running.join(timeout=60)
        assert not running.is_alive()
    assert old.deltas() == []
    assert worker.worked.compacted == 4
    assert_served_and_right(old)


# --- operators -------------------------------------------------------------------------------------------------------


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


@pytest.fixture
def operated(old: Review, monkeypatch: pytest.MonkeyPatch) -> Review:
    for name, value in as_environment(old.mongo.settings).items():
        monkeypatch.setenv(name, value)
    return old


@pytest.mark.req("DELTA-01", "DELTA-24")
def test_an_operator_compacts_over_the_boundary_and_every_pass_is_audited(operated: Review) -> None:
    answered = run("ledger", "compact", operated.project, "--passes", 5, "--json")
    assert answered.exit_code == 0, answered.output
    assert json.loads(answered.stdout) == {
        "project": str(operated.project),
        "outcome": "NoEligibleCompleteRevision",
        "deleted": 4,
        "replay_floor_revision": 4,
        "safe_watermark": 4,
        "passes": 2,
    }
    records = list(operated.mongo.collection(AUDIT).find({"Action": "postDeltaMaintenance"}).sort("_id", 1))
    assert [(r["Outcome"], r["After"]["deleted"], r["Before"]) for r in records] == [
        ("Accepted", 4, {"replayFloorRevision": 0, "rows": 4}),
        ("Accepted", 0, {"replayFloorRevision": 4, "rows": 0}),
    ]


def test_a_repeated_request_is_told_its_first_outcome_and_takes_nothing(operated: Review) -> None:
    first = run("ledger", "compact", operated.project, "--request-id", "the-first-pass")
    assert "4 rows compacted, ledger from revision 5 on" in first.stdout
    decide(operated, 2)
    outgrow_the_window(operated)
    again = run("ledger", "compact", operated.project, "--request-id", "the-first-pass")
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert len(operated.deltas()) == 2
    assert run("ledger", "compact", operated.project, "--request-id", "several", "--passes", 2).exit_code == 2


def test_a_refused_pass_is_audited_and_says_what_to_do(operated: Review) -> None:
    with held(operated.mongo, LEASE, lease_id(operated.project, FAMILY), 60):
        answered = run("ledger", "compact", operated.project)
    assert answered.exit_code == 4
    assert "RebuildActive" in answered.output
    (record,) = operated.mongo.collection(AUDIT).find({"Action": "postDeltaMaintenance"})
    assert (record["Outcome"], record["Reason"]) == ("Rejected", "RebuildActive")
    assert operated.mongo.collection(ROW).count_documents({"ProjectId": operated.project}) == 1
