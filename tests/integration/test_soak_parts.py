"""Savers and observers when what they need is not there: they say so on record, within a bound."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from statlib.admin.client import AdminClient
from statlib.kernel.refusals import Fault, Reason, Refusal, RefusalKind
from statlib.kernel.settings import Settings
from statlib.review.loading.simulated import SimulatedReview
from statlib.runbook.soak import observers as observe
from statlib.runbook.soak.delivering import Deliverer
from statlib.runbook.soak.mutations import NOTHING, planned
from statlib.runbook.soak.savers import Savers
from statlib.runbook.soak.schedule import Schedule
from tests.reviews import host_of


class Full(Reason):
    NoRoom = (RefusalKind.CAPACITY, "Make room.")


def savers_of(deliverer: Deliverer, rows: list[dict[str, Any]]) -> Savers:
    plan = planned(SimulatedReview(studies=3, events=5).load(), NOTHING, seed=1)
    return Savers(deliverer, Schedule(plan.work, 0), rows, patience_s=0.05)


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("ended", [True, False], ids=["a host that has ended", "a study that is not there"])
def test_a_decision_that_is_never_confirmed_ends_the_replay(settings: Settings, ended: bool) -> None:
    rows: list[dict[str, Any]] = []
    with host_of(settings) as host:
        savers = savers_of(Deliverer(host, uuid4()), rows)
        if not ended:
            joined(savers.start(2))
    if ended:
        joined(savers.start(2))
    assert all(isinstance(failure, Fault) for failure in savers.failures)
    assert savers.failures
    assert savers.lost == len(savers.failures)
    assert savers.confirmed == 0
    assert {row["outcome"] for row in rows} == {"refused"}
    assert {row["reason"] for row in rows} == {"HostNotRegistered" if ended else "SourceNotFound"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_observers_put_off_what_they_cannot_see_and_count_what_is_full() -> None:
    seen = threading.Barrier(3)
    around = observe.Observers()

    def full() -> None:
        seen.wait(10)
        raise Refusal(Full.NoRoom)

    def broken() -> None:
        seen.wait(10)
        raise ValueError("no observation")

    around.every(0, "never", broken)
    around.every(60, "full", full)
    around.every(60, "broken", broken)
    seen.wait(10)
    around.threads[1].join(10)
    around.stop()
    assert [thread.name for thread in around.threads] == ["full", "broken"]
    assert around.disturbances == {"full: NoRoom": 1}
    assert around.capacity_refused == 1
    assert [type(failure) for failure in around.failures] == [ValueError]


def test_a_comparison_that_cannot_be_asked_for_is_put_off_with_its_reason() -> None:
    rows: list[dict[str, Any]] = []
    with AdminClient("http://127.0.0.1:9", "no token") as client, pytest.raises(Refusal):
        observe.parity(client, uuid4(), ("ProjectScreening",), rows)()
    assert [(row["compared"], row["exact"], row["reason"]) for row in rows] == [(False, False, "BoundaryUnreachable")]


def test_another_primary_and_none_are_put_on_record() -> None:
    notes: list[str] = []
    client = SimpleNamespace(primary=("127.0.0.1", 1))
    host: Any = SimpleNamespace(mongo=SimpleNamespace(client=client))
    look = observe.primary(host, notes.append)
    look()
    client.primary = None
    look()
    client.primary = ("127.0.0.1", 2)
    look()
    assert notes == ["the primary is now none; it was 127.0.0.1:1", "the primary is now 127.0.0.1:2; it was none"]
