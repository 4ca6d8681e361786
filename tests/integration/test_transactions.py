"""A transaction ends in one of three ways, and nobody takes "unknown" for "no"."""

from __future__ import annotations

import threading
from typing import Any

import pymongo
import pytest
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from statlib.kernel.refusals import Refusal, RefusalKind
from statlib.mongo import transactions
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import COMMIT_RETRIES_MAX, snapshot, transact
from tests.servers import fail_command

NUMBERS = "numbers"
TRANSIENT = ["TransientTransactionError"]
UNAUTHORIZED = 13
WRITE_CONCERN_FAILED = 64
WRITE_CONFLICT = 112
INTERRUPTED = 11601


class Counting:
    """A body that increments one document, and knows how often it was run."""

    def __init__(self, mongo: Mongo) -> None:
        self.mongo = mongo
        self.runs = 0
        self.session: Any = None
        mongo.collection(NUMBERS).insert_one({"_id": 1, "n": 0})

    def __call__(self, session: ClientSession) -> int:
        self.runs += 1
        self.session = session.session_id
        self.mongo.collection(NUMBERS).update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        found = self.mongo.collection(NUMBERS).find_one({"_id": 1}, session=session)
        assert found is not None
        return int(found["n"])

    @property
    def stored(self) -> int:
        """As applied: what a commit whose majority was not waited for left, a majority read may not show yet."""
        found = self.mongo.collection(NUMBERS).with_options(read_concern=ReadConcern("local")).find_one({"_id": 1})
        assert found is not None
        return int(found["n"])


@pytest.fixture
def body(mongo: Mongo) -> Counting:
    return Counting(mongo)


def test_what_a_body_returns_is_returned_and_what_it_wrote_is_stored(mongo: Mongo, body: Counting) -> None:
    assert transact(mongo, body) == 1
    assert (body.stored, body.runs) == (1, 1)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Refusal(MongoReason.LeaseLost)], ids=repr)
def test_a_body_that_raises_leaves_nothing_and_is_not_run_again(
    mongo: Mongo, body: Counting, error: type[BaseException] | Refusal
) -> None:
    def raising(session: ClientSession) -> None:
        body(session)
        raise error

    with pytest.raises(error if isinstance(error, type) else Refusal):
        transact(mongo, raising)
    assert (body.stored, body.runs) == (0, 1)
    with pymongo.timeout(5):  # the aborted transaction holds the document no longer
        mongo.collection(NUMBERS).update_one({"_id": 1}, {"$inc": {"n": 1}})


@pytest.mark.parametrize("command", ["update", "commitTransaction"])
def test_a_definite_abort_runs_the_body_again(mongo: Mongo, body: Counting, command: str) -> None:
    with fail_command(mongo.client, [command], error_code=WRITE_CONFLICT, error_labels=TRANSIENT, times=2):
        assert transact(mongo, body) == 1
    assert (body.stored, body.runs) == (1, 3)


@pytest.mark.parametrize("reruns_max", [0, 3])
def test_after_the_last_allowed_rerun_the_conflict_is_refused_with_its_cause(
    mongo: Mongo, body: Counting, reruns_max: int
) -> None:
    with (
        fail_command(mongo.client, ["update"], error_code=WRITE_CONFLICT, error_labels=TRANSIENT),
        pytest.raises(Refusal) as refused,
    ):
        transact(mongo, body, reruns_max=reruns_max)
    assert refused.value.reason is MongoReason.Contended
    assert isinstance(refused.value.__cause__, OperationFailure)
    assert (body.stored, body.runs) == (0, reruns_max + 1)


def test_an_error_that_is_no_abort_is_raised_as_it_is(mongo: Mongo, body: Counting) -> None:
    with (
        fail_command(mongo.client, ["update"], error_code=2, times=1),
        pytest.raises(OperationFailure, match="failCommand"),
    ):
        transact(mongo, body)
    assert (body.stored, body.runs) == (0, 1)


def test_of_two_writers_of_one_document_the_later_starts_over_from_what_the_first_left(
    mongo: Mongo, body: Counting
) -> None:
    def overtaken(session: ClientSession) -> int:
        assert mongo.collection(NUMBERS).find_one({"_id": 1}, session=session) is not None
        if body.runs == 0:
            transact(mongo, body)
        return body(session)

    assert transact(mongo, overtaken) == 2
    assert (body.stored, body.runs) == (2, 3)


def test_a_body_sees_one_moment(mongo: Mongo, body: Counting) -> None:
    numbers = mongo.collection(NUMBERS)

    def looking(session: ClientSession) -> tuple[Any, Any]:
        first = numbers.find_one({"_id": 1}, session=session)
        numbers.update_one({"_id": 1}, {"$inc": {"n": 1}})
        return first, numbers.find_one({"_id": 1}, session=session)

    first, second = transact(mongo, looking)
    assert first == second
    assert body.stored == 1


LOST: dict[str, tuple[dict[str, Any], int, int]] = {
    # The driver itself repeats a commit once before it says that it cannot know, where it takes the error for a loss.
    "the connection, not applied": ({"close_connection": True}, 2, 0),
    "the write concern, applied": ({"write_concern_error": WRITE_CONCERN_FAILED}, 1, 1),
    "interrupted while it waited, applied": ({"write_concern_error": INTERRUPTED}, 1, 1),
    "interrupted before, not applied": ({"error_code": INTERRUPTED}, 1, 0),
    "another error, not applied": ({"error_code": UNAUTHORIZED}, 1, 0),
}


@pytest.mark.parametrize("how", LOST)
def test_a_commit_of_unknown_result_is_repeated_without_running_the_body_again(
    mongo: Mongo, body: Counting, how: str
) -> None:
    loss, commands_per_try, _ = LOST[how]
    with fail_command(mongo.client, ["commitTransaction"], times=commands_per_try * COMMIT_RETRIES_MAX, **loss):
        assert transact(mongo, body) == 1
    assert (body.stored, body.runs) == (1, 1)


@pytest.mark.parametrize("how", LOST)
def test_a_commit_that_is_never_answered_is_unresolved_and_blocks_no_later_writer(
    mongo: Mongo, body: Counting, how: str
) -> None:
    loss, _, applied = LOST[how]
    with fail_command(mongo.client, ["commitTransaction"], **loss), pytest.raises(Refusal) as refused:
        transact(mongo, body)
    assert refused.value.reason is MongoReason.CommitOutcomeUnknown
    assert refused.value.reason.kind is RefusalKind.UNRESOLVED
    assert (body.stored, body.runs) == (applied, 1)
    # Left open, the transaction would hold the document until its lifetime of ten seconds ran out.
    with pymongo.timeout(4):
        mongo.collection(NUMBERS).update_one({"_id": 1}, {"$inc": {"n": 1}})


def test_a_repeated_commit_that_finds_its_transaction_gone_is_a_definite_abort(mongo: Mongo, body: Counting) -> None:
    outcome: list[int] = []
    running = threading.Thread(target=lambda: outcome.append(transact(mongo, body)))
    with fail_command(mongo.client, ["commitTransaction"], error_code=INTERRUPTED, block_ms=500, times=1) as lost:
        running.start()
        lost.wait_entered()
        lost.server.admin.command("killSessions", [body.session])
        running.join(timeout=30)
    assert not running.is_alive()
    assert outcome == [1]
    assert (body.stored, body.runs) == (1, 2)


@pytest.mark.parametrize("label", [TRANSIENT, None], ids=["labelled transient", "plain"])
def test_a_repeated_commit_that_fails_otherwise_is_still_unknown(
    mongo: Mongo, body: Counting, monkeypatch: pytest.MonkeyPatch, label: list[str] | None
) -> None:
    """Only "no such transaction" proves that the first commit, whose answer was lost, was none."""
    refused: list[Refusal] = []
    second_failure_is_on = threading.Event()
    monkeypatch.setattr(transactions, "back_off", lambda _: second_failure_is_on.wait(20))

    def run() -> None:
        try:
            transact(mongo, body)
        except Refusal as refusal:
            refused.append(refusal)

    running = threading.Thread(target=run)
    with fail_command(mongo.client, ["commitTransaction"], write_concern_error=WRITE_CONCERN_FAILED) as lost:
        running.start()
        lost.wait_entered()
        with fail_command(mongo.client, ["commitTransaction"], error_code=WRITE_CONFLICT, error_labels=label):
            second_failure_is_on.set()
            running.join(timeout=30)
    assert not running.is_alive()
    assert [refusal.reason for refusal in refused] == [MongoReason.CommitOutcomeUnknown]
    assert (body.stored, body.runs) == (1, 1)


def test_reads_of_a_snapshot_are_of_the_moment_of_its_first(mongo: Mongo, body: Counting) -> None:
    numbers = mongo.collection(NUMBERS)
    with snapshot(mongo) as session:
        assert numbers.find_one({"_id": 1}, session=session) == {"_id": 1, "n": 0}
        transact(mongo, body)
        numbers.insert_one({"_id": 2, "n": 0})
        assert list(numbers.aggregate([{"$sort": {"_id": 1}}], session=session)) == [{"_id": 1, "n": 0}]
    with snapshot(mongo) as session:
        assert len(list(numbers.find({}, session=session))) == 2


def test_a_snapshot_meets_every_write_that_was_acknowledged_before_it(mongo: Mongo, body: Counting) -> None:
    for written in range(1, 51):
        transact(mongo, body)
        with snapshot(mongo) as session:
            assert mongo.collection(NUMBERS).find_one({"_id": 1}, session=session) == {"_id": 1, "n": written}
