"""A document that is saved faster than a transaction can take its entries: given up in two steps, and no further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from pymongo.monitoring import CommandListener, CommandStartedEvent

from statlib.kernel.settings import Settings
from statlib.mongo import leases
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.statistics import queries
from statlib.statistics.bounds import LIVELOCK_DISCARD_AFTER, LIVELOCK_SKIP_S
from statlib.statistics.documents import FOLD_QUARANTINE, GUARD, LEASE
from statlib.statistics.fold.discard import discard, remove, set_aside
from statlib.statistics.fold.livelock import Livelock
from statlib.statistics.fold.transaction import End, Fold
from statlib.statistics.fold.turn import Folded, Stopped, drain, fold_project
from statlib.statistics.pending import PENDING, Dropped, Overflow, appended, pending_of
from tests.folded import NAMESPACE, decide, declared, fresh, write
from tests.folding import fold_on, pending
from tests.interruptions import host_with
from tests.reviews import ALL_FAMILIES, Review, review

SCREENING = {"ProjectScreening", "MembershipScreening", "ReviewerScreening"}


class Hot(CommandListener):
    """Saves one document whenever a transaction is about to write documents, so that it aborts."""

    def __init__(self) -> None:
        self.saves: Callable[[], None] | None = None
        self.aborted = 0

    def started(self, event: CommandStartedEvent) -> None:
        writes = event.command_name == "update" and event.command.get("update") == STUDIES
        if writes and "txnNumber" in event.command and event.command.get("autocommit") is False and self.saves:
            self.aborted += 1
            self.saves()

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


def _review(settings: Settings) -> Any:
    return review(settings, studies=3, members=2, families=ALL_FAMILIES)


def _stale(r: Review) -> set[str]:
    return {one["_id"]["Family"] for one in r.mongo.collection(GUARD).find({"State": "Stale"})}


def _quarantine(r: Review) -> list[dict[str, Any]]:
    return list(r.mongo.collection(FOLD_QUARANTINE).find({"ProjectId": r.project}))


@pytest.mark.req("WORKER-19", "WORKER-20", "WORKER-21", "WORKER-61", "POISON-21")
def test_the_others_keep_folding_and_the_hot_one_is_given_up_after_so_many_aborts(emptied: Settings) -> None:
    hot = Hot()
    with _review(emptied) as r, host_with(r.mongo.settings, hot, app_name="statlib-tests-hot") as host:
        r.backfill_all()
        fold_on(r.mongo, r.project)
        entries = [decide(r, study, r.members[0]) for study in r.studies]
        hot.saves = lambda: write(r, r.studies[0], {"Title": "again"})
        livelock, batches, quarantined = Livelock(), 0, 0
        for _ in range(LIVELOCK_DISCARD_AFTER):
            folded: Folded = fold_project(host, REVIEW, r.project, livelock=livelock)
            batches, quarantined = batches + folded.batches, quarantined + folded.quarantined
            if quarantined:
                break
            if batches:
                assert pending(r.mongo, r.project).keys() == {r.studies[0]}, "the others were folded meanwhile"
            r.mongo.clock.advance(LIVELOCK_SKIP_S)
        assert quarantined == 1
        assert pending(r.mongo, r.project) == {}
        assert hot.aborted >= LIVELOCK_DISCARD_AFTER
        assert [one["Reason"] for one in _quarantine(r)] == ["Livelocked"]
        assert {one["OperationId"] for one in _quarantine(r)} == {entries[0].operation_id}
        assert _stale(r) == SCREENING
        hot.saves = None
        r.backfill_all()
        decide(r, r.studies[0], r.members[1])
        assert fold_project(host, REVIEW, r.project).entries == 1
        assert fresh(r) == declared(r)


@pytest.mark.req("WORKER-29")
def test_a_drain_is_not_held_off_for_ever_by_one_hot_document(emptied: Settings) -> None:
    hot = Hot()
    with _review(emptied) as r, host_with(r.mongo.settings, hot, app_name="statlib-tests-hot") as host:
        fold_on(r.mongo, r.project)
        decide(r, r.studies[0], r.members[0])
        hot.saves = lambda: write(r, r.studies[0], {"Title": "again"})
        with leases.held(host.mongo, LEASE, queries.fold_lease_id(r.project), 60.0) as lease:
            folded = drain(host, REVIEW, r.project, lease)
        assert (folded.stopped, folded.quarantined) == (Stopped.DRAINED, 1)
        assert hot.aborted == LIVELOCK_DISCARD_AFTER


def _fold(r: Review) -> Fold:
    lease = leases.acquire(r.mongo, LEASE, queries.fold_lease_id(r.project), 60.0)
    return Fold(r.host, REVIEW, r.project, lease)


def _overflowed(r: Review, study: UUID, *, named: int, unrecorded: bool) -> None:
    dropped = [
        Dropped(operation_namespace=NAMESPACE, operation_id=f"dropped {number}", submission_digest=f"d{number}")
        for number in range(named)
    ]
    found = pending_of(r.study(study))
    overflow = Overflow(overflowed_at_utc=found.oldest, dropped=dropped)
    if unrecorded:
        overflow = overflow.with_unrecorded(5, 6)
    stored = {**r.study(study)[PENDING], "Overflow": overflow.to_bson()}
    write(r, study, {PENDING: stored})


@pytest.mark.req("WORKER-22", "WORKER-23", "WORKER-24", "WORKER-25", "WORKER-26", "WORKER-27", "WORKER-31")
def test_the_two_steps_take_exactly_what_was_there_and_leave_what_came_in_between(emptied: Settings) -> None:
    with _review(emptied) as r:
        r.backfill_all()
        fold_on(r.mongo, r.project)
        study = r.studies[0]
        first = decide(r, study, r.members[0])
        _overflowed(r, study, named=2, unrecorded=True)
        before, version = r.control(), r.study(study)["Audit"]["Version"]
        fold = _fold(r)

        given_up = set_aside(fold, study)

        assert given_up is not None
        assert r.study(study)["Audit"]["Version"] == version, "the first step writes no document"
        assert len(pending(r.mongo, r.project)[study].entries) == 1
        records = {(one["Reason"], one["OperationId"]) for one in _quarantine(r)}
        assert records == {
            ("Livelocked", first.operation_id),
            ("Overflowed", "dropped 0"),
            ("Overflowed", "dropped 1"),
            ("UnrecordedDrops", ""),
        }
        assert _stale(r) >= REVIEW.folding  # an overflow could have touched any of them
        for clock, moved in (("Source", 1), ("Client", 1)):
            name = f"{clock}InvalidationRevision"
            assert r.control()[name] == before[name] + moved
        assert r.control()["CommittedProjectionRevision"] == before["CommittedProjectionRevision"]

        stored = r.study(study)[PENDING]
        later = first.model_copy(update={"operation_id": "later"})
        late_drop = {"OperationNamespace": NAMESPACE, "OperationId": "late drop", "SubmissionDigest": "d"}
        stored["Entries"].append(later.to_bson())
        stored["Overflow"]["Dropped"].append(late_drop)
        stored["Overflow"] |= {"UnrecordedCount": 2, "UnrecordedToRevision": 9}
        write(r, study, {PENDING: stored})

        remove(fold, given_up)

        after = r.study(study)
        assert [one["OperationId"] for one in after[PENDING]["Entries"]] == ["later"]
        assert after[PENDING]["Overflow"]["Dropped"] == [late_drop]
        kept = after[PENDING]["Overflow"]
        assert (kept["UnrecordedCount"], kept["UnrecordedFromRevision"], kept["UnrecordedToRevision"]) == (2, 5, 9)
        assert after[PENDING]["OldestAtUtc"] == min(later.created_at_utc, kept["OverflowedAtUtc"])
        assert (after["Audit"]["Version"], after["StatisticsFoldSequence"]) == (version + 2, 1)

        assert discard(fold, study).end is End.FOLDED
        assert PENDING not in r.study(study)
        assert discard(fold, study).end is End.NOTHING_DUE
        assert r.study(study)["StatisticsFoldSequence"] == 2


@pytest.mark.req("WORKER-26", "WORKER-27")
def test_an_unrecorded_range_goes_once_nothing_was_added_to_it(emptied: Settings) -> None:
    with _review(emptied) as r:
        fold_on(r.mongo, r.project)
        study = r.studies[0]
        first = decide(r, study, r.members[0])
        _overflowed(r, study, named=1, unrecorded=True)
        fold = _fold(r)
        given_up = set_aside(fold, study)
        assert given_up is not None
        stored = r.study(study)[PENDING]
        late_drop = {"OperationNamespace": NAMESPACE, "OperationId": "late drop", "SubmissionDigest": "d"}
        stored["Overflow"]["Dropped"].append(late_drop)
        write(r, study, {PENDING: stored})
        remove(fold, given_up)
        kept = r.study(study)[PENDING]
        assert kept["Entries"] == []
        assert kept["Overflow"]["Dropped"] == [late_drop]
        assert (kept["Overflow"]["UnrecordedCount"], kept["Overflow"]["UnrecordedToRevision"]) == (0, None)
        assert kept["OldestAtUtc"] == first.created_at_utc


@pytest.mark.parametrize("later", [False, True])
def test_entries_without_an_operation_are_taken_out_by_what_they_are(emptied: Settings, *, later: bool) -> None:
    with _review(emptied) as r:
        fold_on(r.mongo, r.project)
        study = r.studies[0]
        entry = decide(r, study, r.members[0])
        stored = r.study(study)[PENDING]
        stored["Entries"] = ["no document", {"ProtocolVersion": 1}]
        write(r, study, {PENDING: stored})
        fold = _fold(r)
        given_up = set_aside(fold, study)
        assert given_up is not None
        if later:
            write(r, study, {PENDING: appended(pending_of(r.study(study)), [entry], entry.created_at_utc)})
        remove(fold, given_up)
        left = r.study(study).get(PENDING)
        assert [one["OperationId"] for one in left["Entries"]] == [entry.operation_id] if later else left is None
        assert {one["Reason"] for one in _quarantine(r)} == {"Livelocked"}


def test_a_set_that_makes_no_sense_is_taken_out_unless_somebody_has_made_sense_of_it(emptied: Settings) -> None:
    with _review(emptied) as r:
        fold_on(r.mongo, r.project)
        study = r.studies[0]
        entry = decide(r, study, r.members[0])
        broken = {"OldestAtUtc": entry.created_at_utc, "Entries": "?"}
        write(r, study, {PENDING: broken})
        fold = _fold(r)
        given_up = set_aside(fold, study)
        assert given_up is not None
        write(r, study, {PENDING: {**broken, "Entries": []}})
        remove(fold, given_up)
        assert r.study(study)[PENDING]["Entries"] == []
        write(r, study, {PENDING: broken})
        remove(fold, given_up)
        assert PENDING not in r.study(study)


@pytest.mark.req("WORKER-28", "POISON-05", "POISON-22")
def test_a_crash_between_the_two_steps_leaves_entries_that_the_next_fold_consumes_once(emptied: Settings) -> None:
    with _review(emptied) as r:
        r.backfill_all()
        fold_on(r.mongo, r.project)
        entry = decide(r, r.studies[0], r.members[0])
        fold = _fold(r)
        set_aside(fold, r.studies[0])
        assert fresh(r) == frozenset(one for one in declared(r) if one[0] not in SCREENING)
        leases.release(r.mongo, fold.lease)
        folded = fold_project(r.host, REVIEW, r.project)
        assert (folded.entries, folded.quarantined) == (0, 1)
        assert [one["Reason"] for one in _quarantine(r)] == ["Livelocked", "QuarantineExists"]
        assert {one["OperationId"] for one in _quarantine(r)} == {entry.operation_id}
        assert r.receipts() == []
        assert pending(r.mongo, r.project) == {}


@pytest.mark.req("LEASE-04", "WORKER-31")
def test_the_first_step_is_nobodys_but_the_lease_holders(emptied: Settings) -> None:
    with _review(emptied) as r:
        fold_on(r.mongo, r.project)
        decide(r, r.studies[0], r.members[0])
        fold = _fold(r)
        r.mongo.clock.advance(61.0)
        with pytest.raises(Exception, match="generation"):
            set_aside(fold, r.studies[0])
        assert _quarantine(r) == []
