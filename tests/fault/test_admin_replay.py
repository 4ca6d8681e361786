"""A boundary killed between commit and reply: the same request afterwards returns the outcome that was committed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from statlib.admin.app import create_app
from statlib.admin.authentication import authentication_of
from statlib.admin.client import AdminClient
from statlib.admin.principals import Capability
from statlib.admin.serving import in_background
from statlib.admin.tokens import TOKEN_FILE, Tokens
from statlib.kernel.refusals import Fault
from statlib.kernel.settings import Settings
from statlib.passes.audit import AUDIT, REQUEST
from statlib.passes.bounds import OPERATION_LEASE_TTL_S
from statlib.passes.retention import Records
from statlib.statistics.bounds import REBUILD_LEASE_TTL_S
from statlib.statistics.documents import MEMBER
from tests.children import ROOT, _as_environment, child
from tests.domain import LIBRARY, SHELVES, Library, library

Call = Callable[[AdminClient, UUID], Any]
THE_REQUEST = "the-request"

# The commit after which the process dies, and what was asked: each is the one that keeps the outcome.
LAST_COMMITS: dict[str, tuple[int, Call]] = {
    "fleet": (1, lambda client, _: client.set_fleet_mode(enabled=False, request_id=THE_REQUEST)),
    "gate": (1, lambda client, project: client.set_narrow_gate(project, enabled=False, request_id=THE_REQUEST)),
    "retention": (1, lambda client, _: client.prune(Records.REQUESTS, request_id=THE_REQUEST)),
    "backfill": (3, lambda client, project: client.backfill(project, SHELVES, request_id=THE_REQUEST)),
    "rebuild": (3, lambda client, project: client.rebuild(project, SHELVES, force=True, request_id=THE_REQUEST)),
}


@pytest.fixture
def opened(settings: Settings) -> Iterator[Library]:
    with library(settings) as found:
        yield found
        found.mongo.client.drop_database(found.mongo.database)


def killed_while(opened: Library, token: str, commit: int, call: Call) -> None:
    with child("tests.fault.admin_server", opened.mongo.settings, str(commit)) as server:
        url = server.hear()
        assert server.ask("arm") == "armed"
        with AdminClient(url, token) as client, pytest.raises(Fault, match="no answer"):
            call(client, opened.project)
        assert server.process.wait(timeout=30) == -signal.SIGKILL


def stored(opened: Library) -> dict[str, Any]:
    return opened.statistics(without=(AUDIT, MEMBER))


@pytest.mark.parametrize(("commit", "call"), LAST_COMMITS.values(), ids=LAST_COMMITS)
def test_what_was_committed_before_the_process_died_is_the_answer_to_its_repetition(
    opened: Library, commit: int, call: Call
) -> None:
    token = Tokens(opened.mongo.settings.data_dir / TOKEN_FILE).mint("olga", frozenset(Capability))
    killed_while(opened, token, commit, call)
    committed = opened.mongo.collection(REQUEST).find_one({"_id.RequestId": THE_REQUEST})
    assert committed is not None
    before = stored(opened)
    app = create_app(opened.host, LIBRARY, authentication_of(opened.mongo.settings))
    with in_background(app) as url, AdminClient(url, token) as client:
        answer = call(client, opened.project)
    assert answer == type(answer).model_validate(committed["Outcome"])
    assert stored(opened) == before
    outcomes = [found["Outcome"] for found in opened.mongo.collection(AUDIT).find({"RequestId": THE_REQUEST})]
    assert outcomes.count("Accepted") == 1
    assert outcomes[-1] == "Replayed"


def test_work_that_died_before_its_outcome_is_taken_up_by_its_repetition(opened: Library) -> None:
    commit, call = 2, LAST_COMMITS["backfill"][1]  # published, but its outcome is not yet kept
    token = Tokens(opened.mongo.settings.data_dir / TOKEN_FILE).mint("olga", frozenset(Capability))
    killed_while(opened, token, commit, call)
    assert opened.mongo.collection(REQUEST).find_one({"_id.RequestId": THE_REQUEST}) is None
    opened.mongo.clock.advance(max(OPERATION_LEASE_TTL_S, REBUILD_LEASE_TTL_S))  # what it held runs out
    app = create_app(opened.host, LIBRARY, authentication_of(opened.mongo.settings))
    with in_background(app) as url, AdminClient(url, token) as client:
        answer = call(client, opened.project)
        assert answer.parity.exact
        assert set(answer.rebuild.current) == set(opened.truth(SHELVES))
    outcomes = [found["Outcome"] for found in opened.mongo.collection(AUDIT).find({"RequestId": THE_REQUEST})]
    assert outcomes == ["Intended", "Intended", "Accepted"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_served_boundary_that_is_told_to_stop_ends_well_and_takes_its_host_record_back(
    opened: Library, number: signal.Signals
) -> None:
    hosts = opened.mongo.collection(MEMBER).count_documents({})
    token = Tokens(opened.mongo.settings.data_dir / TOKEN_FILE).mint("olga", frozenset(Capability))
    served = subprocess.Popen(
        [sys.executable, "-m", "statlib.cli.main", "admin", "serve", "--port", "0", "--json"],
        cwd=ROOT,
        env={**os.environ, **_as_environment(opened.mongo.settings)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert served.stdout is not None
        url = json.loads(served.stdout.readline())["url"]
        with AdminClient(url, token) as client:
            assert client.server_time()
            assert opened.mongo.collection(MEMBER).count_documents({}) == hosts + 1
        served.send_signal(number)
        assert served.wait(timeout=60) == 0
    finally:
        served.kill()
        served.wait(timeout=30)
        if served.stdout is not None:
            served.stdout.close()
    assert opened.mongo.collection(MEMBER).count_documents({}) == hosts
