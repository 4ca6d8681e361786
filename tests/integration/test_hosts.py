"""Hosts register what they run with, stay as long as they renew it, and count for two minutes after that."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from pymongo.errors import PyMongoError

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo, connected
from statlib.statistics import hosts
from statlib.statistics.bounds import HOST_ALLOWLIST_MAX, MEMBER_LIVE_S, MEMBER_RENEWAL_S
from statlib.statistics.documents import MEMBER
from statlib.statistics.hosts import Host, Role, live_filter, registered
from statlib.statistics.reader import ALL
from statlib.statistics.reasons import OperateReason, SaveReason, ServeReason
from tests.children import child
from tests.domain import LOANS, SHELVES, Library, library_settings, served_library
from tests.reviews import host_of
from tests.servers import fail_command


@pytest.fixture
def served(emptied: Settings) -> Iterator[Library]:
    with served_library(emptied) as opened:
        yield opened


def member(mongo: Mongo, host: Host) -> dict[str, Any] | None:
    return mongo.collection(MEMBER).find_one({"_id": host.member_id})


def live(mongo: Mongo) -> list[str]:
    return [found["_id"] for found in mongo.collection(MEMBER).find(live_filter(mongo))]


@pytest.mark.req("MEMBER-02", "MEMBER-03")
@pytest.mark.parametrize("role", list(Role))
def test_a_host_registers_its_process_and_its_settings(emptied: Settings, role: Role) -> None:
    projects = [uuid4() for _ in range(3)]
    settings = library_settings(emptied, *projects, families=(SHELVES, LOANS))
    with host_of(settings, role) as host:
        found = member(host.mongo, host)
        assert found is not None
        assert found["Deployment"] == role.value
        assert found["Pid"] == os.getpid()
        assert f":{os.getpid()}:" in found["_id"]
        assert found["Allowlist"] == sorted(projects)
        assert found["Families"] == [LOANS, SHELVES]
        assert found["Writes"] is True
        assert found["BinaryVersion"]


def test_two_hosts_of_one_process_are_two_members(emptied: Settings) -> None:
    with host_of(emptied) as one, host_of(emptied) as two:
        assert one.member_id != two.member_id
        assert set(live(one.mongo)) == {one.member_id, two.member_id}


@pytest.mark.req("MEMBER-06")
@pytest.mark.parametrize("error", [None, KeyError], ids=["ends", "raises"])
def test_a_host_deletes_its_record_when_it_ends(mongo: Mongo, error: type[Exception] | None) -> None:
    def be_a_host() -> None:
        with registered(mongo, Role.API) as host:
            assert member(mongo, host) is not None
            if error is not None:
                raise error

    if error is None:
        be_a_host()
    else:
        with pytest.raises(error):
            be_a_host()
    assert mongo.collection(MEMBER).count_documents({}) == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("statlib-host")]


@pytest.mark.req("MEMBER-05")
def test_renewals_are_dated_by_the_server_and_go_on(mongo: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MEMBER_RENEWAL_S == 30
    monkeypatch.setattr(hosts, "MEMBER_RENEWAL_S", 0.01)
    renewed = threading.Semaphore(0)
    once = hosts._renew

    def renew(host: Host) -> None:
        once(host)
        renewed.release()

    monkeypatch.setattr(hosts, "_renew", renew)
    with registered(mongo, Role.API) as host:
        mongo.clock.advance(3600)
        for _ in range(3):
            assert renewed.acquire(timeout=20)
        found = member(mongo, host)
        assert found is not None
        expected = datetime.now(UTC) + timedelta(seconds=3600)
        assert abs((found["RenewedAtUtc"] - expected).total_seconds()) < 20
        assert live(mongo) == [host.member_id]


def test_a_failed_renewal_is_tried_again(mongo: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "MEMBER_RENEWAL_S", 0.01)
    failed, renewed = threading.Event(), threading.Event()
    once = hosts._renew

    def renew(host: Host) -> None:
        try:
            once(host)
        except PyMongoError:
            failed.set()
            raise
        if failed.is_set():
            renewed.set()

    monkeypatch.setattr(hosts, "_renew", renew)
    with registered(mongo, Role.API):
        namespace = f"{mongo.database.name}.{MEMBER}"
        with fail_command(mongo.client, ["update"], error_code=2, namespace=namespace):
            assert failed.wait(20)
        assert renewed.wait(20)


@pytest.mark.req("MEMBER-08")
def test_a_member_is_live_for_two_minutes_after_its_last_renewal(served: Library, emptied: Settings) -> None:
    with host_of(library_settings(emptied)) as other:
        assert MEMBER_LIVE_S == 120
        served.mongo.clock.advance(MEMBER_LIVE_S - 10)
        assert other.member_id in live(served.mongo)
        assert served.read((SHELVES, ALL)).reason is ServeReason.AllowlistInconsistent
        served.mongo.clock.advance(10)
        assert other.member_id not in live(served.mongo)
        assert member(served.mongo, other) is not None, "its record is there, and no longer counts"
        assert served.read((SHELVES, ALL)).reason is None


@pytest.mark.req("MEMBER-08")
def test_a_killed_process_counts_until_its_two_minutes_have_passed(served: Library, emptied: Settings) -> None:
    with child("tests.fault.idle_host", library_settings(emptied)) as other:
        member_id = other.ask("who")
        assert served.read((SHELVES, ALL)).reason is ServeReason.AllowlistInconsistent
        other.kill()
    assert member_id in live(served.mongo)
    assert served.read((SHELVES, ALL)).reason is ServeReason.AllowlistInconsistent
    served.mongo.clock.advance(MEMBER_LIVE_S)
    assert served.read((SHELVES, ALL)).reason is None


@pytest.mark.req("MEMBER-04")
@pytest.mark.parametrize(("ids", "accepted"), [(HOST_ALLOWLIST_MAX, True), (HOST_ALLOWLIST_MAX + 1, False)])
def test_an_allowlist_beyond_its_cap_is_no_host(emptied: Settings, ids: int, *, accepted: bool) -> None:
    settings = library_settings(emptied, *(uuid4() for _ in range(ids)))
    with connected(settings) as mongo:
        if accepted:
            with registered(mongo, Role.API) as host:
                assert len(host.allowlist) == ids
            return
        with pytest.raises(Refusal) as refused, registered(mongo, Role.API):
            pass
        assert refused.value.reason is OperateReason.AllowlistTooLarge
        assert mongo.collection(MEMBER).count_documents({}) == 0


def test_a_host_that_has_ended_saves_nothing(emptied: Settings) -> None:
    with served_library(emptied) as ended:
        pass
    with host_of(library_settings(emptied, ended.project)) as host:
        before = Library(host.mongo, host, ended.project, ended.books).statistics()
        late = Library(host.mongo, ended.host, ended.project, ended.books)
        with pytest.raises(Refusal) as refused:
            late.lend(ended.books[0])
        assert refused.value.reason is SaveReason.HostNotRegistered
        assert late.statistics() == before
