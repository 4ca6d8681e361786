"""Writes whose result never came: saved once, or a no, or "nobody can know"; never a wrong one of them.

A victim saves through a host of its own, whose replies the server's fail points take away. What others do meanwhile
happens right before the victim looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest

from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.local.replica_set import ReplicaSet, direct_client
from statlib.mongo.connection import Mongo
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics import attempts
from statlib.statistics.arms import Arm
from statlib.statistics.envelopes import Envelope
from statlib.statistics.outcomes import Cause, Saved
from statlib.statistics.reasons import SaveReason
from tests import arms
from tests.interruptions import Interrupter, When, host_with
from tests.open_transactions import open_transactions
from tests.reviews import FAMILY, Review, review, settings_for
from tests.servers import fail_command

ANNA, BEN = UUID(int=0xA), UUID(int=0xB)
VICTIM = "statlib-tests-victim"
WRITE = {**dict.fromkeys(Arm, "findAndModify"), Arm.TRANSACTIONAL: "commitTransaction"}


class Lost(StrEnum):
    """What is lost with the reply: the reply alone, or the write as well."""

    REPLY = "reply-of-an-applied-write"
    WRITE = "write"


@dataclass
class Scene:
    arm: Arm
    review: Review
    victim: ScreeningWriter
    interrupter: Interrupter

    @property
    def study(self) -> UUID:
        return self.review.studies[0]

    def open(self) -> Envelope:
        return self.victim.open(self.study, ANNA)

    def version(self) -> int:
        return arms.saves_of(self.review.study(self.study))

    def by(self, who: UUID, decision: Decision) -> None:
        self.review.mongo.collection("marks").insert_one({})  # returns once a majority has it and all before it
        self.review.writer.submit(self.study, who, decision)

    @contextmanager
    def losing(self, lost: Lost, meanwhile: Callable[[Scene], None]) -> Iterator[Interrupter]:
        """The first attempt's write, until the driver and the product have given it up; ``meanwhile`` happens right
        before the victim looks again, and from then on nothing is lost any more."""
        injected: dict[str, Any] = {"write_concern_error": 64} if lost is Lost.REPLY else {"close_connection": True}
        looks_again = 2 if self.arm is Arm.TRANSACTIONAL else 1  # after the transaction's own read
        with ExitStack() as stack:
            stack.enter_context(fail_command(self.review.mongo.client, [WRITE[self.arm]], app_name=VICTIM, **injected))

            def look_again() -> None:
                stack.close()
                meanwhile(self)

            with self.interrupter.armed(When.BEFORE_SENDING, looks_again, look_again, name="aggregate") as armed:
                yield armed
            assert armed.reached


@pytest.fixture(autouse=True)
def _short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver repeats a lost write for as long as its deadline allows."""
    monkeypatch.setattr(attempts, "PRE_WRITE_DEADLINE_S", 0.8)


@pytest.fixture
def scene(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Scene]:
    with ExitStack() as stack:
        opened = stack.enter_context(review(settings, studies=1, **arms.options(request.param)))
        arms.begin(opened, request.param)
        interrupter = Interrupter()
        victim = stack.enter_context(host_with(opened.mongo.settings, interrupter, app_name=VICTIM))
        yield Scene(request.param, opened, ScreeningWriter(victim, opened.project), interrupter)
        if request.param in arms.UNDER_STATISTICS:
            arms.fold(opened)
            assert open_transactions(opened.mongo.client, VICTIM) == []
            assert opened.read().counters(FAMILY) == opened.truth()


every_arm = pytest.mark.parametrize("scene", list(Arm), indirect=True)
transactional = pytest.mark.parametrize("scene", [Arm.TRANSACTIONAL], indirect=True)


def answer(scene: Scene, envelope: Envelope, decision: Decision = Decision.INCLUDE) -> Saved | str:
    try:
        return scene.victim.save(envelope, decision)
    except Refusal as refusal:
        return refusal.reason.name


def nobody(scene: Scene) -> None:
    """Nothing happens meanwhile."""


def ben(scene: Scene) -> None:
    scene.by(BEN, Decision.INCLUDE)


def anna(scene: Scene) -> None:
    scene.by(ANNA, Decision.EXCLUDE)


def ben_then_anna(scene: Scene) -> None:
    ben(scene)
    anna(scene)


SAVED, STALE, MISMATCH, UNRESOLVED = "Saved", "VersionStale", "DigestMismatch", "StatisticsOperationUnresolved"
EVIDENCED = [
    (Lost.REPLY, nobody, SAVED),
    (Lost.REPLY, ben, SAVED),
    (Lost.REPLY, anna, SAVED),
    (Lost.REPLY, ben_then_anna, SAVED),
    (Lost.WRITE, nobody, SAVED),
    (Lost.WRITE, ben, SAVED),
    (Lost.WRITE, anna, MISMATCH),  # at the same revision it is the same operation
    (Lost.WRITE, ben_then_anna, STALE),
]
OUTCOMES = [
    *((arm, *outcome) for arm in sorted(arms.UNDER_STATISTICS) for outcome in EVIDENCED),
    (Arm.SOURCE_ONLY, Lost.REPLY, nobody, SAVED),
    (Arm.SOURCE_ONLY, Lost.REPLY, ben, UNRESOLVED),
    (Arm.SOURCE_ONLY, Lost.REPLY, anna, UNRESOLVED),
    (Arm.SOURCE_ONLY, Lost.WRITE, nobody, SAVED),
    (Arm.SOURCE_ONLY, Lost.WRITE, ben, UNRESOLVED),
    (Arm.SOURCE_ONLY, Lost.WRITE, anna, UNRESOLVED),
]


@pytest.mark.req("SAVE-63", "SAVE-64", "SAVE-65", "SAVE-66")
@pytest.mark.parametrize(
    ("scene", "lost", "meanwhile", "expected"),
    OUTCOMES,
    indirect=["scene"],
    ids=[f"{arm}-{lost}-{meanwhile.__name__}" for arm, lost, meanwhile, _ in OUTCOMES],
)
def test_a_lost_result_is_resolved_by_what_is_stored(
    scene: Scene, lost: Lost, meanwhile: Callable[[Scene], None], expected: str
) -> None:
    envelope = scene.open()
    with scene.losing(lost, meanwhile):
        got = answer(scene, envelope)
    if isinstance(got, Saved):
        assert expected == SAVED
        assert not got.duplicate
        assert got.failed_attempts[0] is Cause.UNKNOWN
        assert got.leaves_receipt is (scene.arm in arms.UNDER_STATISTICS)
    else:
        assert got == expected

    others = {"nobody": 0, "ben": 1, "anna": 1, "ben_then_anna": 2}[meanwhile.__name__]
    applied = lost is Lost.REPLY or expected == SAVED
    assert scene.version() == others + int(applied)
    assert scene.review.decisions(scene.study).get(BEN) is (True if meanwhile in {ben, ben_then_anna} else None)
    corrected = meanwhile in {anna, ben_then_anna}
    assert scene.review.decisions(scene.study).get(ANNA) is (False if corrected else (True if applied else None))
    for fold in (lambda _: None, arms.fold) if scene.arm in arms.UNDER_STATISTICS else ():
        fold(scene.review)
        again = answer(scene, envelope.as_redelivered())
        assert isinstance(again, Saved) is (expected == SAVED)
        assert not isinstance(again, Saved) or again.duplicate
    if scene.arm in arms.UNDER_STATISTICS:
        assert len(scene.review.receipts()) == scene.version()


@transactional
@pytest.mark.parametrize("code", [64, 91])
def test_a_commit_that_was_applied_is_saved_at_its_first_repetition(scene: Scene, code: int) -> None:
    envelope = scene.open()
    with fail_command(
        scene.review.mongo.client, ["commitTransaction"], write_concern_error=code, times=1, app_name=VICTIM
    ):
        saved = scene.victim.save(envelope, Decision.INCLUDE)
    assert not saved.duplicate
    # Code 91 also makes the client look for a primary first, and a busy machine lets the deadline pass meanwhile.
    assert set(saved.failed_attempts) <= {Cause.UNKNOWN, Cause.LATE}
    assert (scene.version(), len(scene.review.receipts())) == (1, 1)


@pytest.mark.parametrize("scene", [Arm.SOURCE_ONLY, Arm.FOLD], indirect=True)
@pytest.mark.parametrize("injected", [{"close_connection": True}, {"write_concern_error": 89}], ids=str)
def test_one_lost_reply_of_a_single_write_is_repeated_by_the_driver(scene: Scene, injected: dict[str, Any]) -> None:
    envelope = scene.open()
    with fail_command(scene.review.mongo.client, ["findAndModify"], times=1, app_name=VICTIM, **injected):
        saved = scene.victim.save(envelope, Decision.INCLUDE)
    assert saved.failed_attempts == ()
    assert scene.version() == 1


@every_arm
def test_a_save_whose_every_attempt_is_lost_is_not_called_a_no(scene: Scene) -> None:
    envelope = scene.open()
    with (
        fail_command(scene.review.mongo.client, [WRITE[scene.arm]], close_connection=True, app_name=VICTIM),
        pytest.raises(Refusal) as refused,
    ):
        scene.victim.save(envelope, Decision.INCLUDE)
    assert refused.value.reason is SaveReason.StatisticsOperationUnresolved
    assert refused.value.state["failedAttempts"] == [Cause.UNKNOWN.value] * 3
    assert scene.version() == 0


@contextmanager
def _without_replication(servers: ReplicaSet) -> Iterator[None]:
    """Heartbeats go on, so the primary stays one; what it takes is applied there, and not on a majority."""
    with ExitStack() as stack:
        for node in servers.secondaries():
            admin = stack.enter_context(direct_client(node)).admin
            stack.callback(admin.command, {"configureFailPoint": "stopReplProducer", "mode": "off"})
            admin.command({"configureFailPoint": "stopReplProducer", "mode": "alwaysOn"})
        yield


@pytest.mark.parametrize("arm", list(Arm))
def test_a_write_that_waits_for_its_majority_when_the_attempts_run_out_is_unresolved(
    mongo_on_three: Mongo, three_nodes: ReplicaSet, arm: Arm
) -> None:
    """It is on the primary already, and no majority read shows it yet; a no would soon be wrong."""
    with review(mongo_on_three.settings, studies=1, **arms.options(arm)) as opened:
        arms.begin(opened, arm)
        envelope = opened.writer.open(opened.studies[0], ANNA)
        with _without_replication(three_nodes), pytest.raises(Refusal) as refused:
            opened.writer.save(envelope, Decision.INCLUDE)
        assert refused.value.reason is SaveReason.StatisticsOperationUnresolved
        assert refused.value.state["failedAttempts"][0] == Cause.UNKNOWN.value
        opened.mongo.collection("marks").insert_one({})  # returns once a majority has it and all before it
        assert opened.decisions(opened.studies[0]) == {ANNA: True}
        if arm in arms.UNDER_STATISTICS:
            assert opened.writer.save(envelope.as_redelivered(), Decision.INCLUDE).duplicate
            arms.fold(opened)
            assert opened.read().counters(FAMILY) == opened.truth()


@transactional
def test_an_attempt_that_ran_out_of_time_leaves_no_open_transaction(scene: Scene) -> None:
    """Its locks would keep everybody else from the study for the transaction's lifetime."""
    envelope = scene.open()
    with fail_command(scene.review.mongo.client, ["insert"], block_ms=1000, app_name=VICTIM):
        got = answer(scene, envelope)
    assert got == SaveReason.AttemptsExhausted.name
    assert open_transactions(scene.review.mongo.client, VICTIM) == []
    assert isinstance(answer(scene, envelope.as_redelivered()), Saved)


@transactional
@pytest.mark.parametrize("command", ["aggregate", "find", "update", "insert"])
@pytest.mark.parametrize("nth", [0, 1])
def test_a_connection_lost_inside_the_transaction_costs_an_attempt_and_nothing_else(
    scene: Scene, command: str, nth: int
) -> None:
    envelope = scene.open()
    skipped = {"aggregate": 0, "find": 0}.get(command, nth)
    with fail_command(scene.review.mongo.client, [command], close_connection=True, times=1 + skipped, app_name=VICTIM):
        got = answer(scene, envelope)
    assert isinstance(got, Saved)
    assert set(got.failed_attempts) == {Cause.STATISTICS}
    assert (scene.version(), len(scene.review.receipts())) == (1, 1)


@every_arm
def test_a_server_that_refuses_the_write_is_a_fault_and_nothing_is_saved(scene: Scene) -> None:
    envelope, before = scene.open(), scene.review.snapshot_of_statistics()
    command = "insert" if scene.arm is Arm.TRANSACTIONAL else "findAndModify"
    with (
        fail_command(scene.review.mongo.client, [command], error_code=2, app_name=VICTIM),
        pytest.raises(Fault, match="not accepted"),
    ):
        scene.victim.save(envelope, Decision.INCLUDE)
    assert scene.review.snapshot_of_statistics() == before


@every_arm
def test_a_server_that_cannot_be_asked_what_became_of_a_write_leaves_it_unresolved(scene: Scene) -> None:
    """The write itself is the last thing that is sent over a whole connection."""
    envelope = scene.open()
    with ExitStack() as silence:

        def fall_silent(at: Scene) -> None:
            silence.enter_context(
                fail_command(at.review.mongo.client, ["aggregate"], close_connection=True, app_name=VICTIM)
            )

        with scene.losing(Lost.REPLY, fall_silent):
            got = answer(scene, envelope)
    assert got == UNRESOLVED
    assert scene.version() == 1


@every_arm
def test_a_document_that_cannot_be_read_is_a_fault(scene: Scene) -> None:
    envelope = scene.open().as_redelivered()
    with (
        fail_command(scene.review.mongo.client, ["aggregate"], close_connection=True, app_name=VICTIM),
        pytest.raises(Fault, match="cannot be read"),
    ):
        scene.victim.save(envelope, Decision.INCLUDE)
    assert scene.version() == 0


@pytest.mark.parametrize("scene", [Arm.SOURCE_ONLY, Arm.FOLD], indirect=True)
def test_a_write_that_changes_nothing_is_not_recognised_in_somebody_elses(scene: Scene) -> None:
    """Both leave the study as it was, one revision on: what is stored cannot tell whose it is."""
    envelope = scene.open()
    with scene.losing(Lost.WRITE, lambda at: at.by(BEN, Decision.RETRACT)):
        got = answer(scene, envelope, Decision.RETRACT)
    assert got == UNRESOLVED
    assert scene.version() == 1


def test_a_gate_opened_after_a_lost_reply_does_not_turn_it_into_a_no(settings: Settings) -> None:
    """A host that excludes the project saves behind the closed gate, and may not even look once it is open."""
    with review(settings, studies=1) as opened, ExitStack() as stack:
        opened.gate(enabled=False)
        interrupter = Interrupter()
        ignorant = stack.enter_context(
            host_with(settings_for(opened.mongo.settings, writes=False), interrupter, app_name=VICTIM)
        )
        scene = Scene(Arm.SOURCE_ONLY, opened, ScreeningWriter(ignorant, opened.project), interrupter)
        envelope = scene.open()
        with scene.losing(Lost.REPLY, lambda at: at.review.gate(enabled=True)):
            got = answer(scene, envelope)
        assert scene.version() == 1
        assert got == UNRESOLVED
