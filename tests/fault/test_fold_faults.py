"""A fold worker killed, frozen, cut off or led over a step-down: every entry is carried over once, or still pending."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from pymongo.errors import PyMongoError

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.local.replica_set import ReplicaSet
from statlib.mongo.command_counter import counting
from statlib.mongo.connection import Mongo
from statlib.review.catalogue import REVIEW
from statlib.statistics.bounds import FOLD_LEASE_TTL_S
from statlib.statistics.documents import FOLD_QUARANTINE, LEASE
from statlib.statistics.fold.turn import Stopped, fold_project
from tests.fault.folders import APP_NAME, FoldJob
from tests.fault.savers import Condition, Report, Savers, Signal, savers
from tests.folded import decide, declared, fresh
from tests.folding import fold_on, pending
from tests.interruptions import Interrupter, When, host_with
from tests.open_transactions import end_transactions, open_transactions
from tests.reviews import ALL_FAMILIES, Review, review
from tests.servers import fail_command

TURN = (
    "find", "find",  # who else is alive; whether a rebuild asks for the lease
    "findAndModify",  # the lease
    "update", "aggregate", "find", "find", "find", "find", "find", "find",  # from here on in the transaction
    "update", "update", "update", "insert", "update", "insert", "update", "commitTransaction",
    "find",  # whether a rebuild asks for the lease
    "update", "aggregate", "find", "commitTransaction",  # nothing is left
    "update",  # the lease is given back
    "find",  # nothing came in between
)  # fmt: skip
BEGINS, COMMITS = 4, 19  # of the transaction that carries something over


@pytest.fixture(scope="module")
def kit() -> Iterator[Savers]:
    with savers("tests.fault.folders") as running:
        yield running


@contextmanager
def folding(settings: Settings, *, studies: int) -> Iterator[Review]:
    with review(settings, studies=studies, members=2, families=ALL_FAMILIES) as r:
        r.backfill_all()
        fold_on(r.mongo, r.project)
        yield r


def recover(r: Review) -> None:
    """What another worker does once the lost one's lease has run out."""
    r.mongo.clock.advance(FOLD_LEASE_TTL_S + 1)
    assert fold_project(r.host, REVIEW, r.project).stopped is Stopped.DRAINED
    assert pending(r.mongo, r.project) == {}


def require_each_once(r: Review, entries: int) -> None:
    assert fresh(r) == declared(r)
    assert len({one["OperationId"] for one in r.receipts()}) == len(r.receipts()) == entries
    revisions = [(one["Revision"], one["Record"]) for one in r.deltas() if one["Kind"] == "Operation"]
    assert len(revisions) == len(set(revisions)) == entries
    assert r.mongo.collection(FOLD_QUARANTINE).count_documents({}) == 0


def test_the_sweep_covers_every_command_of_a_turn(settings: Settings) -> None:
    with folding(settings, studies=1) as r:
        decide(r, r.studies[0], r.members[0])
        with counting(r.mongo.client) as count:
            fold_project(r.host, REVIEW, r.project)
        assert count.names == TURN


@pytest.mark.req("WORKER-65")
def test_a_worker_killed_at_any_command_leaves_every_entry_pending_or_carried_over(
    settings: Settings, kit: Savers
) -> None:
    cases = [(number, When.BEFORE_SENDING) for number in range(BEGINS, len(TURN) + 1)]
    cases += [(COMMITS, When.AFTER_REPLY), (len(TURN), When.AFTER_REPLY)]
    with folding(settings, studies=2) as r:
        for done, (number, when) in enumerate(cases):
            case = f"command {number}, {when}"
            flipped = done // 2 % 2 == 0  # the same again would move no row
            decide(r, r.studies[0], r.members[done % 2], included=flipped, operation=f"first {done}")
            decide(r, r.studies[1], r.members[done % 2], included=not flipped, operation=f"second {done}")
            before = r.snapshot_of_statistics()
            killed = kit.run(FoldJob(r.mongo.settings, r.project, Signal.KILL, when, number))
            assert killed.condition is Condition.KILLED, case
            taken = number if when is When.AFTER_REPLY else number - 1
            after = r.snapshot_of_statistics()
            if taken < COMMITS:
                assert {name for name in before if before[name] != after[name]} <= {LEASE}, case
            else:
                assert pending(r.mongo, r.project) == {}, case
            end_transactions(r.mongo.client, open_transactions(r.mongo.client, APP_NAME))
            recover(r)
        require_each_once(r, 2 * len(cases))


@pytest.mark.req("LEASE-04")
@pytest.mark.parametrize("number", [BEGINS, BEGINS + 1, COMMITS - 2, COMMITS - 1, COMMITS])
def test_a_worker_frozen_in_its_batch_commits_nothing_once_another_has_taken_over(
    settings: Settings, kit: Savers, number: int
) -> None:
    with folding(settings, studies=1) as r:
        decide(r, r.studies[0], r.members[0])
        frozen: Report = kit.run(FoldJob(r.mongo.settings, r.project, Signal.STOP, When.BEFORE_SENDING, number))
        assert frozen.condition is Condition.FROZEN
        end_transactions(r.mongo.client, open_transactions(r.mongo.client, APP_NAME))  # as its lifetime limit does
        recover(r)
        decide(r, r.studies[0], r.members[1])
        before = r.snapshot_of_statistics()
        woken = kit.resume(frozen)
        assert woken.condition is Condition.ANSWERED
        assert woken.answer == Stopped.LEASE_LOST.value
        assert r.snapshot_of_statistics() == before
        assert fold_project(r.host, REVIEW, r.project).entries == 1
        require_each_once(r, 2)


LOST: dict[str, dict[str, Any]] = {
    "the reply of a commit that was applied": {"write_concern_error": 64, "times": 1},
    "the commit itself": {"close_connection": True, "times": 1},
    "every reply of an applied commit": {"write_concern_error": 64},
    "every commit": {"close_connection": True},
}


@pytest.mark.req("WORKER-32", "WORKER-66")
@pytest.mark.parametrize("lost", LOST)
def test_a_commit_whose_answer_is_lost_carries_every_entry_over_once(settings: Settings, lost: str) -> None:
    with folding(settings, studies=1) as r, host_with(r.mongo.settings, app_name=APP_NAME) as host:
        decide(r, r.studies[0], r.members[0])
        with fail_command(r.mongo.client, ["commitTransaction"], app_name=APP_NAME, **LOST[lost]):
            fold_or_fail(host, r.project)
        assert open_transactions(r.mongo.client, APP_NAME) == []
        r.mongo.clock.advance(FOLD_LEASE_TTL_S + 1)
        fold_project(r.host, REVIEW, r.project)
        assert pending(r.mongo, r.project) == {}
        require_each_once(r, 1)


def fold_or_fail(host: Any, project: UUID) -> None:
    try:
        fold_project(host, REVIEW, project, stopping=lambda: True)
    except (Refusal, PyMongoError):
        return


@pytest.mark.timeout(300)
@pytest.mark.req("WORKER-66")
@pytest.mark.parametrize(
    ("when", "command"), [(When.BEFORE_SENDING, "commitTransaction"), (When.AFTER_REPLY, "commitTransaction"),
                          (When.AFTER_REPLY, "insert")],
)  # fmt: skip
def test_a_step_down_amid_a_batch_leaves_it_done_or_to_be_done(
    mongo_on_three: Mongo, three_nodes: ReplicaSet, when: When, command: str
) -> None:
    def step_down() -> None:
        three_nodes.step_down()

    interrupter = Interrupter()
    with (
        folding(mongo_on_three.settings, studies=2) as r,
        host_with(r.mongo.settings, interrupter, app_name=APP_NAME) as host,
    ):
        for study in r.studies:
            decide(r, study, r.members[0])
        with interrupter.armed(when, 1, step_down, name=command) as armed:
            fold_or_fail(host, r.project)
        assert armed.reached
        three_nodes.wait_for_primary()
        r.mongo.clock.advance(FOLD_LEASE_TTL_S + 1)
        give_up_at = time.monotonic() + 60
        while pending(r.mongo, r.project):
            assert time.monotonic() < give_up_at
            fold_or_fail(host, r.project)
        require_each_once(r, 2)
