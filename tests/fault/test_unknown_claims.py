"""Claims whose result never came: the place is held, or it is not, or nobody can know; never a wrong one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.review.claims import ClaimWriter
from statlib.review.reservation_writer import ReservationWriter
from statlib.statistics import claims
from statlib.statistics.arms import Arm
from statlib.statistics.outcomes import Cause, Saved
from statlib.statistics.reasons import SaveReason
from tests import arms
from tests.doings import ANNA, BEN, DOINGS, EXTRACTION, done_to, insert
from tests.exactness import unserved
from tests.interruptions import Interrupter, When, host_with
from tests.open_transactions import open_transactions
from tests.reviews import Review
from tests.servers import fail_command

VICTIM = "statlib-tests-claimant"
WRITE = {**dict.fromkeys(Arm, "findAndModify"), Arm.TRANSACTIONAL: "commitTransaction"}
LOST: dict[str, dict[str, Any]] = {"reply": {"write_concern_error": 64}, "write": {"close_connection": True}}
UNRESOLVED = SaveReason.StatisticsOperationUnresolved.name


@dataclass
class Scene:
    arm: Arm
    review: Review
    victim: ClaimWriter
    interrupter: Interrupter
    study: UUID

    def claim(self) -> Saved | str | None:
        try:
            return self.victim.claim(self.study, ANNA, EXTRACTION.id)
        except Refusal as refusal:
            return refusal.reason.name

    def by_ben(self) -> None:
        """The other place, and a third that nobody enforced: then none is left."""
        for who in (BEN, UUID(int=0xC)):
            taken = ClaimWriter(self.review.host, self.review.project).claim(
                self.study, who, EXTRACTION.id, enforce_capacity=False
            )
            assert taken is not None

    def let_go(self) -> None:
        self.review.mongo.collection("marks").insert_one({})  # returns once a majority has it and all before it
        ReservationWriter(self.review.host, self.review.project).release(self.study, ANNA, EXTRACTION.id)

    def holders(self) -> list[UUID]:
        return [place["InvestigatorId"] for place in self.review.study(self.study)["SlotReservations"]]


@pytest.fixture(params=list(Arm))
def scene(request: pytest.FixtureRequest, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(claims, "PRE_WRITE_DEADLINE_S", 0.8)  # the driver repeats a lost write for as long
    with done_to(settings, request.param) as opened:
        [study] = insert(opened, DOINGS["claim"])
        arms.begin(opened, request.param)
        interrupter = Interrupter()
        with host_with(opened.mongo.settings, interrupter, app_name=VICTIM) as host:
            yield Scene(request.param, opened, ClaimWriter(host, opened.project), interrupter, study)
            if request.param in arms.UNDER_STATISTICS:
                arms.fold(opened)
                assert open_transactions(opened.mongo.client, VICTIM) == []
                assert set(unserved(opened)) <= {"ReviewerAnnotation"}
                assert len(opened.receipts()) == arms.saves_of(opened.study(study))


def losing(scene: Scene, what: str, meanwhile: Callable[[], None]) -> Saved | str | None:
    """Claim, and lose the first attempt; ``meanwhile`` happens right before the victim looks again."""
    looks_again = 3 if scene.arm is Arm.TRANSACTIONAL else 2
    with ExitStack() as stack:
        client = scene.review.mongo.client
        stack.enter_context(fail_command(client, [WRITE[scene.arm]], app_name=VICTIM, **LOST[what]))

        def look_again() -> None:
            stack.close()
            meanwhile()

        with scene.interrupter.armed(When.BEFORE_SENDING, looks_again, look_again, name="aggregate") as armed:
            got = scene.claim()
        assert armed.reached
    return got


def nothing() -> None:
    """Nothing happens meanwhile."""


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_result_is_resolved_by_looking_whether_the_place_is_held(scene: Scene, lost: str) -> None:
    got = losing(scene, lost, nothing)
    assert isinstance(got, Saved)
    assert (got.failed_attempts, got.revision_after) == ((Cause.UNKNOWN,), 1)
    assert scene.holders() == [ANNA]
    assert scene.claim() is None


@pytest.mark.parametrize("lost", LOST)
def test_a_place_that_others_took_meanwhile_is_not_called_lost_while_the_write_may_land(
    scene: Scene, lost: str
) -> None:
    """A transaction cannot land on a study that has moved on; a bare write can, until its deadline."""
    got = losing(scene, lost, scene.by_ben)
    held = ANNA in scene.holders()
    assert held is (lost == "reply")
    if held:
        assert isinstance(got, Saved)
    else:
        assert got == (None if scene.arm is Arm.TRANSACTIONAL else UNRESOLVED)


def test_a_place_that_was_taken_and_let_go_meanwhile_was_taken(scene: Scene) -> None:
    """Its trail says so. Without one it is simply taken again: it is held when that is the answer."""
    got = losing(scene, "reply", scene.let_go)
    assert isinstance(got, Saved)
    assert scene.holders() == ([ANNA] if scene.arm is Arm.SOURCE_ONLY else [])


def test_a_claim_whose_every_attempt_is_lost_is_not_called_a_no(scene: Scene) -> None:
    with fail_command(scene.review.mongo.client, [WRITE[scene.arm]], close_connection=True, app_name=VICTIM):
        assert scene.claim() == UNRESOLVED
    assert scene.holders() == []


def test_a_server_that_cannot_be_asked_leaves_it_unresolved(scene: Scene) -> None:
    with ExitStack() as silence:

        def fall_silent() -> None:
            client = scene.review.mongo.client
            silence.enter_context(fail_command(client, ["aggregate"], close_connection=True, app_name=VICTIM))

        got = losing(scene, "reply", fall_silent)
    assert got == UNRESOLVED
    assert scene.holders() == [ANNA]


def test_a_server_that_refuses_the_write_or_cannot_be_read_is_a_fault_and_nothing_is_taken(scene: Scene) -> None:
    before = scene.review.snapshot_of_statistics()
    for command, injected in (("findAndModify", {"error_code": 2}), ("aggregate", {"close_connection": True})):
        client = scene.review.mongo.client
        with fail_command(client, [command], app_name=VICTIM, **injected), pytest.raises(Fault):
            scene.claim()
    assert scene.review.snapshot_of_statistics() == before


@pytest.mark.parametrize("scene", [Arm.TRANSACTIONAL], indirect=True)
def test_a_collision_inside_the_transaction_never_decides_a_claim(scene: Scene) -> None:
    """More of them than a save may have: only the filter says no."""
    collisions = 7
    with fail_command(
        scene.review.mongo.client,
        ["update"],
        error_code=112,
        error_labels=["TransientTransactionError"],
        times=collisions,
        app_name=VICTIM,
    ):
        got = scene.claim()
    assert isinstance(got, Saved)
    assert got.failed_attempts == (Cause.STATISTICS,) * collisions


@pytest.mark.parametrize("scene", [Arm.SOURCE_ONLY, Arm.FOLD], indirect=True)
def test_a_claim_that_was_read_for_too_long_ago_reads_again(scene: Scene) -> None:
    """As if frozen between its look and its write: what it was admitted under may no longer hold."""
    clock = scene.review.mongo.clock
    with scene.interrupter.armed(When.AFTER_REPLY, 1, lambda: clock.advance(31), name="aggregate") as armed:
        got = scene.claim()
    assert armed.reached
    assert isinstance(got, Saved)
    assert got.failed_attempts == (Cause.LATE,)


@pytest.mark.parametrize("scene", [Arm.SOURCE_ONLY, Arm.FOLD], indirect=True)
def test_a_no_that_came_after_the_deadline_is_asked_again(scene: Scene) -> None:
    """It may have been the deadline's own, and not the capacity's."""
    scene.by_ben()

    def frozen_meanwhile() -> None:
        scene.review.mongo.clock.advance(31)
        ReservationWriter(scene.review.host, scene.review.project).release(scene.study, BEN, EXTRACTION.id)

    with scene.interrupter.armed(When.AFTER_REPLY, 1, frozen_meanwhile, name="findAndModify") as armed:
        got = scene.claim()
    assert armed.reached
    assert isinstance(got, Saved)
    assert got.failed_attempts == (Cause.LATE,)
