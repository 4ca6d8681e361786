"""Cancellation: whoever is told to stop stops between two steps, and holds nothing afterwards."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from statlib.admin import operations
from statlib.admin.app import create_app, guarded_routes
from statlib.admin.client import AdminClient
from statlib.admin.principals import Capability
from statlib.admin.reasons import AdminReason
from statlib.admin.serving import in_background
from statlib.kernel import cancellation
from statlib.kernel.cancellation import CancelReason
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.passes import operations as stored
from statlib.passes.audit import Action
from statlib.passes.bounds import OPERATION_LEASE_TTL_S
from statlib.passes.operations import OPERATION
from statlib.statistics.authoritative import calculate
from statlib.statistics.documents import LEASE
from statlib.statistics.reader import read_moment
from tests.boundaries import Boundary, boundary_of, new_request_id
from tests.domain import LIBRARY, SHELVES


@pytest.fixture
def boundary(settings: Settings) -> Iterator[Boundary]:
    with boundary_of(settings) as opened:
        yield opened
        opened.library.mongo.client.drop_database(opened.library.mongo.database)


@dataclass
class Held:
    """A calculation that goes on only once its operation was told to stop."""

    entered: threading.Event = field(default_factory=threading.Event)
    when_entered: Callable[[], None] | None = None
    stopped: list[bool] = field(default_factory=list)

    def wait(self) -> None:
        current = cancellation._current.get()
        assert current is not None
        self.entered.set()
        if self.when_entered is not None:
            self.when_entered()
        self.stopped.append(current.wait(30))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Holds every rebuild at its calculation, and every comparison at its first look."""
    holding = Held()

    def held_calculate(*arguments: Any) -> Any:
        holding.wait()
        return calculate(*arguments)

    def held_read(*arguments: Any) -> Any:
        holding.wait()
        return read_moment(*arguments)

    monkeypatch.setattr("statlib.statistics.rebuild.calculate", held_calculate)
    monkeypatch.setattr("statlib.statistics.parity.read_moment", held_read)
    return holding


@contextmanager
def asking(call: Callable[[], Any]) -> Iterator[list[Any]]:
    """Makes the call beside the block; what it was refused with is there afterwards."""
    ended: list[Any] = []

    def ask() -> None:
        try:
            ended.append(call())
        except Refusal as refusal:
            ended.append(refusal.reason)

    asker = threading.Thread(target=ask)
    asker.start()
    yield ended
    asker.join(timeout=60)
    assert not asker.is_alive()


def assert_nothing_held(boundary: Boundary) -> None:
    mongo = boundary.library.mongo
    unexpired = {"$expr": {"$gt": ["$ExpiresAtUtc", mongo.clock.mongo_now()]}}
    assert mongo.collection(LEASE).count_documents(unexpired) == 0
    assert mongo.collection(OPERATION).count_documents({}) == 0
    assert boundary.library.guard().get("Candidate") is None
    assert [thread.name for thread in threading.enumerate() if thread.name == "statlib-operation"] == []


LONG: dict[str, Callable[[AdminClient, Boundary], Any]] = {
    "backfill": lambda client, at: client.backfill(at.library.project, SHELVES, request_id="the-request"),
    "backfill of several": lambda client, at: client.backfill_together(at.library.project, request_id="the-request"),
    "rebuild": lambda client, at: client.rebuild(at.library.project, SHELVES, request_id="the-request"),
}


@pytest.mark.parametrize("call", LONG.values(), ids=LONG)
def test_an_operation_that_is_cancelled_holds_nothing_and_may_be_asked_for_again(
    boundary: Boundary, held: Held, monkeypatch: pytest.MonkeyPatch, call: Callable[[AdminClient, Boundary], Any]
) -> None:
    with boundary.client() as client, boundary.client() as other:
        with asking(lambda: call(client, boundary)) as ended:
            assert held.entered.wait(30)
            (running,) = other.operations()
            assert (running.request_id, running.target) == ("the-request", str(boundary.library.project))
            cancelled = other.cancel("the-request")
        assert (cancelled.asked, cancelled.ended) == (1, True)
        assert ended == [CancelReason.Cancelled]
        assert held.stopped == [True]
        assert_nothing_held(boundary)
        outcomes = [(record["Outcome"], record["Reason"]) for record in boundary.audits(RequestId="the-request")]
        assert outcomes == [("Intended", None), ("Rejected", "Cancelled")]
        monkeypatch.undo()
        call(client, boundary)
    assert boundary.audits(RequestId="the-request")[-1]["Outcome"] == "Accepted"


def test_a_client_that_goes_away_cancels_what_it_asked_for(boundary: Boundary, held: Held) -> None:
    path = boundary.path(f"/{boundary.library.project}/backfill")
    request_id = new_request_id()
    with boundary.http(boundary.token(*Capability)) as http, pytest.raises(httpx.ReadTimeout):
        http.post(path, json={"family": SHELVES}, headers=request_id, timeout=httpx.Timeout(30, read=1))
    running = boundary.app.state.operations
    assert running.wait_until_ended(request_id["X-Request-Id"], cancellation.Cancellation())
    assert held.stopped == [True]
    assert boundary.library.guard().get("Candidate") is None


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Of what a shell started in the background, interrupts are ignored, and Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupted_call_cancels_its_operation_before_the_interruption_goes_on(
    boundary: Boundary, held: Held, interruptible: None
) -> None:
    held.when_entered = lambda: os.kill(os.getpid(), signal.SIGINT)
    with boundary.client() as client:
        with pytest.raises(KeyboardInterrupt):
            client.backfill(boundary.library.project, SHELVES, request_id="the-request")
        assert_nothing_held(boundary)
        assert held.stopped == [True]


def test_another_process_of_the_boundary_can_be_asked(boundary: Boundary, held: Held) -> None:
    other_app = create_app(boundary.library.host, LIBRARY, boundary.app.state.authentication)
    with boundary.client() as client, in_background(other_app) as url:
        with (
            AdminClient(url, boundary.token(*Capability, name="other")) as other,
            asking(lambda: client.backfill(boundary.library.project, SHELVES, request_id="the-request")) as ended,
        ):
            assert held.entered.wait(30)
            assert other.cancel("the-request").ended
        assert ended == [CancelReason.Cancelled]
    assert_nothing_held(boundary)


def test_an_auditor_stops_their_own_comparison_and_nobody_else_s_backfill(boundary: Boundary, held: Held) -> None:
    project = boundary.library.project
    with boundary.client() as client, boundary.client(Capability.AUDITOR, name="audrey") as auditor:
        with asking(lambda: auditor.parity(project, [SHELVES], request_id="a-comparison")) as ended:
            assert held.entered.wait(30)
            assert auditor.cancel("a-comparison").ended
        assert ended == [CancelReason.Cancelled]
        held.entered.clear()
        with asking(lambda: client.backfill(project, SHELVES, request_id="the-request")) as ended:
            assert held.entered.wait(30)
            with pytest.raises(Refusal) as refused:
                auditor.cancel("the-request")
            assert refused.value.reason is AdminReason.OperationUnknown
            client.cancel("the-request")
        assert ended == [CancelReason.Cancelled]
    assert_nothing_held(boundary)


def test_a_comparison_of_several_families_stops_before_it_counts(boundary: Boundary, held: Held) -> None:
    families = list(LIBRARY.families)
    with boundary.client() as client:
        with asking(lambda: client.parity(boundary.library.project, families, request_id="a-comparison")) as ended:
            assert held.entered.wait(30)
            client.cancel("a-comparison")
        assert ended == [CancelReason.Cancelled]
        assert len(held.stopped) == 1


def test_a_boundary_that_stops_tells_its_operations_to_stop_first(boundary: Boundary, held: Held) -> None:
    app = create_app(boundary.library.host, LIBRARY, boundary.app.state.authentication)
    token = boundary.token(*Capability, name="olga")
    stopping = in_background(app)
    with AdminClient(stopping.__enter__(), token) as client:
        with asking(lambda: client.backfill(boundary.library.project, SHELVES, request_id="the-request")) as ended:
            assert held.entered.wait(30)
            stopping.__exit__(None, None, None)
        assert ended == [CancelReason.Cancelled]
    assert_nothing_held(boundary)
    assert boundary.audits(RequestId="the-request")[-1]["Reason"] == "Cancelled"


def twin(boundary: Boundary) -> Action:
    """The request that another process of the boundary would be carrying out."""
    project = boundary.library.project
    rule = next(route.rule for route in guarded_routes(boundary.app) if route.name == "postBackfill")
    return Action("olga", "token", rule.action, str(project), "the-request", {}, route=rule.template)


def test_a_request_whose_twin_lives_on_is_refused_after_a_while(
    boundary: Boundary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "TWIN_PATIENCE_S", 0.3)
    stored.claim(boundary.library.mongo, twin(boundary))
    with boundary.client() as client, pytest.raises(Refusal) as refused:
        client.backfill(boundary.library.project, SHELVES, request_id="the-request")
    assert refused.value.reason is AdminReason.RequestInProgress


def test_a_dead_process_s_claim_runs_out(boundary: Boundary) -> None:
    stored.claim(boundary.library.mongo, twin(boundary))
    boundary.library.mongo.clock.advance(OPERATION_LEASE_TTL_S)
    with boundary.client() as client:
        assert client.operations() == []
        assert client.backfill(boundary.library.project, SHELVES, request_id="the-request").parity.exact


def test_a_claim_is_kept_for_as_long_as_the_operation_runs(boundary: Boundary, held: Held) -> None:
    with (
        boundary.client() as client,
        asking(lambda: client.backfill(boundary.library.project, SHELVES, request_id="the-request")),
    ):
        assert held.entered.wait(30)
        found = boundary.library.mongo.collection(OPERATION)
        began = found.find_one({})
        assert began is not None
        renewed = threading.Event()
        while not renewed.wait(0.1):
            now = found.find_one({})
            if now is not None and now["ExpiresAtUtc"] > began["ExpiresAtUtc"]:
                renewed.set()
        client.cancel("the-request")
