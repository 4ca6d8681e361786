"""A turn of the fold: stored rows catch up with what saves left in their documents, exactly and once."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner
from pymongo.monitoring import CommandListener, CommandStartedEvent

from statlib.cli.main import main
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo import leases
from statlib.mongo.reasons import MongoReason
from statlib.passes.audit import server_time
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.statistics import queries
from statlib.statistics.bounds import (
    FOLD_BATCH_ENTRIES_MAX,
    FOLD_BATCHES_MAX,
    FOLD_LEASE_LEFT_MIN_S,
    FOLD_LEASE_TTL_S,
    FOLD_MIN_AGE_S,
    FOLD_SWEEP_AGE_S,
    FOLD_WRITER_GRACE_S,
    FOLD_YIELD_S,
)
from statlib.statistics.documents import CONTROL, DELTA, LEASE, OUTBOX, STORAGE_VERSION, FoldMode
from statlib.statistics.fold import signal
from statlib.statistics.fold.batch import INDEX, Selection, due
from statlib.statistics.fold.transaction import Batch, End, Fold, fold_batch
from statlib.statistics.fold.turn import Stopped, drain, fold_project, request_yield, withdraw_yield
from statlib.workers.fold import FoldWorker, fold_host
from tests.children import _as_environment
from tests.folded import decide, declared, fresh
from tests.folding import fold_off, fold_on, pending
from tests.interruptions import host_with
from tests.reviews import ALL_FAMILIES, Review, host_of, review, settings_for

CLOCKS = ("SourceInvalidationRevision", "CommittedProjectionRevision", "ClientInvalidationRevision")


def fold(r: Review, **changed: Any) -> Any:
    return fold_project(r.host, REVIEW, r.project, **changed)


def clocks(r: Review) -> list[int]:
    control = r.control()
    return [control[clock] for clock in CLOCKS]


@pytest.mark.req(
    "WORKER-50", "WORKER-51", "WORKER-52", "WORKER-53", "WORKER-54", "WORKER-57", "TIMING-01", "LEASE-01", "LEASE-02"
)
def test_a_turn_applies_what_was_pending_and_leaves_evidence_of_each(emptied: Settings) -> None:
    with review(emptied, studies=3, members=2, families=ALL_FAMILIES) as r:
        r.backfill_all()
        fold_on(r.mongo, r.project)
        before, ledger = clocks(r), len(r.deltas())
        r.mongo.collection(OUTBOX).delete_many({})
        entries = [decide(r, study, who) for study in r.studies for who in r.members]
        assert clocks(r) == before
        assert not any(r.mongo.collection(OUTBOX).find())

        folded = fold(r)

        assert (folded.stopped, folded.batches, folded.entries) == (Stopped.DRAINED, 1, 6)
        assert pending(r.mongo, r.project) == {}
        assert fresh(r) == declared(r)
        assert clocks(r) == [clock + 1 for clock in before]
        for study in map(r.study, r.studies):
            assert (study["Audit"]["Version"], study["StatisticsFoldSequence"]) == (3, 1)
            assert "PendingStatistics" not in study
        receipts = {one["OperationId"]: one for one in r.receipts()}
        assert receipts.keys() == {entry.operation_id for entry in entries}
        for entry in entries:
            receipt = receipts[entry.operation_id]
            assert receipt["ExpectedSourceRevision"] == entry.expected_source_revision
            assert receipt["CommittedSourceBeforeRevision"] == entry.source_revision_before
            assert receipt["CommittedSourceAfterRevision"] == entry.source_revision_after
            assert receipt["SourceDigest"] == entry.submission_digest
        deltas = r.deltas()[ledger:]
        assert {delta["OperationId"] for delta in deltas} == receipts.keys()
        assert {delta["Revision"] for delta in deltas} == {before[1] + 1}
        assert [delta["Record"] for delta in deltas] == list(range(6))
        slots = {slot["_id"]["Family"]: slot for slot in r.mongo.collection(OUTBOX).find()}
        assert slots.keys() == {"ProjectScreening", "MembershipScreening", "ReviewerScreening"}
        assert {slot["ClientInvalidationRevision"] for slot in slots.values()} == {before[2] + 1}
        (lease,) = r.mongo.collection(LEASE).find({"_id": queries.fold_lease_id(r.project)})
        assert lease.keys() == {"_id", "Owner", "LeaseGeneration", "ExpiresAtUtc", "StartedAtUtc", "FencedWrites"}
        assert fold(r).batches == 0


@pytest.mark.req("WORKER-16", "WORKER-30")
def test_a_batch_takes_at_most_so_many_entries_and_a_turn_so_many_batches(emptied: Settings) -> None:
    with review(emptied, studies=FOLD_BATCHES_MAX + 1, members=2) as r:
        r.backfill()
        fold_on(r.mongo, r.project)
        for study in r.studies:
            for _ in range(FOLD_BATCH_ENTRIES_MAX // 2 + 1):  # two such sets do not fit into one batch
                decide(r, study, r.members[0], included=True)
                decide(r, study, r.members[0], included=False)
                break
        sizes = [len(found.entries) for found in pending(r.mongo, r.project).values()]
        assert sum(sizes) == 2 * len(r.studies)
        folded = fold(r)
        assert folded.stopped is Stopped.DRAINED
        assert (folded.batches, folded.documents) == (2, len(r.studies))
        assert max(delta["Record"] for delta in r.mongo.collection(DELTA).find({"Kind": "Operation"})) < 32
        assert r.read().counters("ProjectScreening") == r.truth()


def test_what_is_pending_is_found_by_the_index_and_the_look_reads_no_document(emptied: Settings) -> None:
    with review(emptied, studies=3, members=1) as r:
        fold_on(r.mongo, r.project)
        for study in r.studies[:2]:
            decide(r, study, r.members[0])
        look = {"aggregate": STUDIES, "pipeline": signal.oldest_of([r.project], "$$NOW"), "cursor": {}}
        batch = {"find": STUDIES, "filter": due(Selection(r.project), r.mongo.clock)}
        codec = r.mongo.collection(STUDIES).codec_options
        for query, fetches in ((look, 0), (batch, 2)):
            hinted = {**query, "hint": dict(INDEX)}
            stats = r.mongo.database.command({"explain": hinted, "verbosity": "executionStats"}, codec_options=codec)
            found = json.dumps(stats, default=str)
            assert '"IXSCAN"' in found
            assert f'"totalDocsExamined": {fetches}' in found


@pytest.mark.req("WORKER-17", "WORKER-18")
def test_a_document_that_was_saved_a_moment_ago_is_left_to_its_savers_but_not_for_ever(emptied: Settings) -> None:
    with review(emptied, studies=2, members=1) as r:
        r.backfill()
        fold_on(r.mongo, r.project)
        young = server_time(r.mongo) + timedelta(seconds=60)
        decide(r, r.studies[0], r.members[0], created_at_utc=young)
        decide(r, r.studies[1], r.members[0])
        assert fold(r).documents == 1
        assert pending(r.mongo, r.project).keys() == {r.studies[0]}
        assert fold(r, min_age_s=0.0).documents == 1

        waiting = server_time(r.mongo) - timedelta(seconds=FOLD_SWEEP_AGE_S + 1)
        decide(r, r.studies[0], r.members[0], included=False, created_at_utc=waiting)
        decide(r, r.studies[0], r.members[0], included=True, created_at_utc=young)
        assert fold(r, min_age_s=FOLD_MIN_AGE_S).documents == 1
        assert r.read().counters("ProjectScreening") == r.truth()


@pytest.mark.req("LEASE-10", "LEASE-11")
def test_a_project_that_is_not_to_be_folded_keeps_its_entries(emptied: Settings) -> None:
    with review(emptied, studies=1, members=1) as r:
        r.backfill()
        fold_on(r.mongo, r.project)
        decide(r, r.studies[0], r.members[0])
        with host_of(emptied) as excluding:
            assert fold_project(excluding, REVIEW, r.project).stopped is Stopped.EXCLUDED
        with host_of(settings_for(emptied, UUID(int=5))):
            assert fold(r).stopped is Stopped.DISAGREED
        r.mongo.collection(CONTROL).update_one({"_id": r.project}, {"$inc": {"StorageVersion": 1}})
        assert fold(r).stopped is Stopped.FOREIGN
        assert len(pending(r.mongo, r.project)) == 1
        assert r.receipts() == []
        fold_on(r.mongo, r.project)
        assert fold(r).entries == 1


@pytest.mark.req("LEASE-07", "LEASE-08", "LEASE-12")
def test_whoever_folds_lets_a_rebuild_in_and_stays_away_while_it_asks(emptied: Settings) -> None:
    with review(emptied, studies=20, members=2) as r:
        r.backfill()
        fold_on(r.mongo, r.project)
        for study in r.studies:
            decide(r, study, r.members[0])
            decide(r, study, r.members[1])
        asked: list[bool] = []

        def after_each_batch() -> bool:
            if not asked:
                request_yield(r.mongo, r.project)
            asked.append(True)
            return False

        folded = fold(r, stopping=after_each_batch)
        assert (folded.stopped, folded.batches) == (Stopped.YIELDED, 1)
        again = fold(r)
        assert (again.stopped, again.batches) == (Stopped.YIELDED, 0)
        withdraw_yield(r.mongo, r.project)
        assert fold(r).batches == 1
        request_yield(r.mongo, r.project)
        r.mongo.clock.advance(FOLD_YIELD_S + 1)
        assert fold(r).stopped is Stopped.DRAINED


@pytest.mark.req("LEASE-03", "LEASE-04", "LEASE-05")
def test_a_worker_whose_lease_was_taken_over_commits_nothing(emptied: Settings) -> None:
    with review(emptied, studies=1, members=1) as r:
        r.backfill()
        fold_on(r.mongo, r.project)
        decide(r, r.studies[0], r.members[0])
        of_fold = queries.fold_lease_id(r.project)
        lost = leases.acquire(r.mongo, LEASE, of_fold, FOLD_LEASE_TTL_S)
        assert fold(r).stopped is Stopped.HELD
        r.mongo.clock.advance(FOLD_LEASE_TTL_S + 1)
        before = r.snapshot_of_statistics()
        assert _batch(r, lost).end is End.LEASE_LOST  # nobody has taken it yet, and still it is over
        taken = leases.acquire(r.mongo, LEASE, of_fold, FOLD_LEASE_TTL_S)
        assert _batch(r, lost).end is End.LEASE_LOST
        with pytest.raises(Refusal) as refused:
            drain(r.host, REVIEW, r.project, lost)
        assert refused.value.reason is MongoReason.LeaseLost
        after = r.snapshot_of_statistics()
        assert {name for name in before if before[name] != after[name]} == {LEASE}
        assert _batch(r, taken).end is End.FOLDED


def _batch(r: Review, lease: leases.Lease) -> Batch:
    return fold_batch(Fold(r.host, REVIEW, r.project, lease), Selection(r.project))


@pytest.mark.req("LEASE-03", "WORKER-58")
def test_every_batch_renews_the_lease_and_none_begins_with_too_little_of_it(emptied: Settings) -> None:
    with review(emptied, studies=40, members=1) as r:
        r.backfill()
        fold_on(r.mongo, r.project)
        for study in r.studies:
            decide(r, study, r.members[0])
        lease = leases.acquire(r.mongo, LEASE, queries.fold_lease_id(r.project), FOLD_LEASE_TTL_S)
        r.mongo.clock.advance(FOLD_LEASE_TTL_S - FOLD_LEASE_LEFT_MIN_S)
        assert _batch(r, lease).end is End.FOLDED
        r.mongo.clock.advance(FOLD_LEASE_TTL_S - 1)
        drain(r.host, REVIEW, r.project, lease, ttl_s=FOLD_LEASE_TTL_S)
        leases.renew(r.mongo, lease, FOLD_LEASE_TTL_S)
        assert pending(r.mongo, r.project) == {}


@pytest.mark.req("WORKER-17")
def test_a_drain_takes_what_was_pending_however_young_and_ends(emptied: Settings) -> None:
    with review(emptied, studies=2, members=2) as r:
        r.backfill()
        fold_on(r.mongo, r.project)
        decide(r, r.studies[0], r.members[0], created_at_utc=server_time(r.mongo))
        later = server_time(r.mongo) + timedelta(hours=1)
        decide(r, r.studies[1], r.members[1], created_at_utc=later)
        with leases.held(r.mongo, LEASE, queries.fold_lease_id(r.project), 60.0) as lease:
            folded = drain(r.host, REVIEW, r.project, lease)
        assert (folded.entries, folded.stopped) == (1, Stopped.DRAINED)
        assert pending(r.mongo, r.project).keys() == {r.studies[1]}


@pytest.mark.req("MODE-25", "MODE-26", "MODE-27", "MODE-29")
def test_fold_mode_ends_only_after_the_writers_grace_and_with_nothing_pending(emptied: Settings) -> None:
    with review(emptied, studies=1, members=1) as r, fold_host(r.mongo) as host:
        r.backfill()
        fold_on(r.mongo, r.project)
        since = server_time(r.mongo)
        r.mongo.collection(CONTROL).update_one(
            {"_id": r.project},
            {"$set": {"FoldMode": FoldMode.DISABLING.value, "FoldDisablingSinceUtc": since}},
        )
        worker = FoldWorker(host, REVIEW, threading.Event())
        worker.run_once()
        assert r.control()["FoldMode"] == FoldMode.DISABLING  # the grace runs
        r.mongo.clock.advance(FOLD_WRITER_GRACE_S + 1)
        decide(r, r.studies[0], r.members[0], created_at_utc=since + timedelta(hours=2))
        assert signal.ending(r.mongo, [r.project]) == [r.project]
        assert not fold(r).disabled  # something is pending, though too young for a turn
        assert r.control()["FoldMode"] == FoldMode.DISABLING
        before = clocks(r)
        worker.run_once()  # takes it
        worker.run_once()
        assert worker.worked.disabled == 1
        control = r.control()
        assert control["FoldMode"] == FoldMode.DISABLED
        assert control["FoldDisablingSinceUtc"] is None
        assert control["StorageVersion"] == STORAGE_VERSION
        assert control["FoldEverEnabled"]
        assert clocks(r) == [clock + 1 for clock in before]  # of the batch: the end itself changes no value
        assert r.read().counters("ProjectScreening") == r.truth()


@pytest.mark.req("MODE-28")
def test_entries_that_appear_after_fold_mode_has_ended_are_folded_all_the_same(emptied: Settings) -> None:
    with review(emptied, studies=1, members=1) as r:
        r.backfill()
        fold_on(r.mongo, r.project)
        fold_off(r.mongo, r.project)
        decide(r, r.studies[0], r.members[0])
        assert fold(r).entries == 1
        assert r.read().counters("ProjectScreening") == r.truth()


class _Counted(CommandListener):
    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.names.append(event.command_name)

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


@pytest.mark.req("WORKER-33", "WORKER-34", "WORKER-35")
def test_the_commands_of_a_batch_do_not_grow_with_it_and_documents_are_written_last(emptied: Settings) -> None:
    with review(emptied, studies=12, members=2, families=ALL_FAMILIES) as r:
        r.backfill_all()
        fold_on(r.mongo, r.project)
        of_each: list[list[str]] = []
        for studies in (r.studies[:1], r.studies[1:]):
            for study in studies:
                decide(r, study, r.members[0])
            counted = _Counted()
            with (
                host_with(r.mongo.settings, counted, app_name="statlib-tests-counted") as host,
                leases.held(host.mongo, LEASE, queries.fold_lease_id(r.project), 60.0) as lease,
            ):
                counted.names.clear()
                batch = fold_batch(Fold(host, REVIEW, r.project, lease), Selection(r.project))
                of_each.append(list(counted.names))
            assert len(batch.documents) == len(studies)
        assert of_each[0] == of_each[1]
        assert of_each[0] == [
            "update",  # the lease
            "aggregate",  # controls, guards, context
            "find",  # the batch
            "find", "find", "find", "find",  # receipts, ledger, quarantine, retired receipts
            "find",  # rows
            "update",  # the clocks
            "update",  # guards
            "update",  # rows
            "insert",  # the ledger
            "update",  # clients' slots
            "insert",  # receipts
            "update",  # the documents
            "commitTransaction",
        ]  # fmt: skip


def test_the_command_drains_once_and_says_what_it_did(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with review(emptied, studies=3, members=2, families=ALL_FAMILIES) as r:
        r.backfill_all()
        fold_on(r.mongo, r.project)
        for study in r.studies:
            decide(r, study, r.members[0], created_at_utc=server_time(r.mongo))
        for name, value in _as_environment(r.mongo.settings).items():
            monkeypatch.setenv(name, value)
        answered = CliRunner().invoke(main, ["worker", "fold", "--once", "--json"])
        assert answered.exit_code == 0, answered.output
        assert json.loads(answered.output) == {
            "batches": 1,
            "documents": 3,
            "entries": 3,
            "quarantined": 0,
            "disabled": 0,
            "compacted": 0,
            "left": {},
        }
        assert fresh(r) == declared(r)
        decide(r, r.studies[0], r.members[1])
        with leases.held(r.mongo, LEASE, queries.fold_lease_id(r.project), 60.0):
            answered = CliRunner().invoke(main, ["worker", "fold", "--once"])
        assert answered.exit_code == 4
        assert f"left pending in {r.project}: Held" in answered.output
