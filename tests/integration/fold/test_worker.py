"""The worker process: it notices what is pending, shows a sign of life, and ends with the batch at hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo
from statlib.passes.audit import server_time
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.statistics.bounds import FOLD_SWEEP_AGE_S
from statlib.statistics.documents import CONTROL, GLOBAL_CONTROL, MEMBER, FoldMode
from statlib.statistics.fold import signal as due_signal
from statlib.statistics.fold.heartbeat import beat
from statlib.statistics.pending import FOLD_PROTOCOL, OLDEST
from statlib.statistics.reasons import OperateReason
from statlib.workers.fold import FoldWorker, fold_host
from tests.children import ROOT, _as_environment
from tests.folded import decide
from tests.folding import fold_on, pending
from tests.reviews import FAMILY, host_of, review, settings_for


def until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up_at
        threading.Event().wait(0.05)


@pytest.mark.req("WORKER-07", "WORKER-08", "TIMING-02")
def test_a_worker_folds_what_is_saved_while_it_runs_and_ends_in_order(settings: Settings) -> None:
    with review(settings, studies=2, members=1) as r:
        r.backfill()
        fold_on(r.mongo, r.project)
        command = [sys.executable, "-m", "statlib.cli.main", "worker", "fold", "--json"]
        environment = os.environ | _as_environment(r.mongo.settings)
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as worker:
            try:
                until(lambda: bool(heartbeats(r.mongo)))
                members = list(r.mongo.collection(MEMBER).find({"FoldWorker": True}))
                assert [member["Deployment"] for member in members] == ["project-management"]
                for study in r.studies:
                    decide(r, study, r.members[0])
                    until(lambda: not pending(r.mongo, r.project))
                worker.send_signal(signal.SIGTERM)
                answered, _ = worker.communicate(timeout=60)
            finally:
                worker.kill()
        assert worker.returncode == 0
        assert '"entries": 2' in answered
        assert r.read().counters(FAMILY) == r.truth()
        assert not any(r.mongo.collection(MEMBER).find({"FoldWorker": True}))


def heartbeats(mongo: Mongo) -> dict[str, dict[str, Any]]:
    control = mongo.collection(GLOBAL_CONTROL).find_one({})
    assert control is not None
    found: dict[str, dict[str, Any]] = control.get("FoldWorkerHeartbeats") or {}
    return found


@pytest.mark.req("WORKER-08", "WORKER-09", "WORKER-10")
def test_a_heartbeat_is_the_servers_time_and_leaves_the_controls_version_alone(emptied: Settings) -> None:
    with review(emptied, studies=0) as r:
        controls = r.mongo.collection(GLOBAL_CONTROL)
        before = controls.find_one({})
        assert before is not None
        beat(r.mongo, "first")
        first = heartbeats(r.mongo)
        assert first.keys() == {str(FOLD_PROTOCOL)}
        assert first[str(FOLD_PROTOCOL)]["Host"] == "first"
        assert abs(first[str(FOLD_PROTOCOL)]["RenewedAtUtc"] - server_time(r.mongo)) < timedelta(minutes=1)
        stale = controls.find_one({})
        assert stale is not None
        assert stale["Audit"] == before["Audit"]
        r.mongo.clock.advance(30.0)
        beat(r.mongo, "second")
        second = heartbeats(r.mongo)[str(FOLD_PROTOCOL)]["RenewedAtUtc"]
        assert second > first[str(FOLD_PROTOCOL)]["RenewedAtUtc"]
        controls.replace_one({}, stale)
        assert heartbeats(r.mongo)[str(FOLD_PROTOCOL)]["RenewedAtUtc"] < second


@pytest.mark.req("WORKER-05", "LEASE-11")
def test_a_look_finds_the_projects_of_this_host_the_longest_waiting_first(emptied: Settings) -> None:
    with review(emptied, studies=1, members=1) as first, review(emptied, studies=1, members=1) as second:
        now = server_time(first.mongo)
        for r, age_s in ((first, 5.0), (second, 20.0)):
            fold_on(r.mongo, r.project)
            decide(r, r.studies[0], r.members[0], created_at_utc=now - timedelta(seconds=age_s))
        both, mongo = [first.project, second.project], first.mongo
        assert due_signal.due(mongo, REVIEW, both, older_than_s=0.5) == [second.project, first.project]
        assert due_signal.due(mongo, REVIEW, [first.project], older_than_s=0.5) == [first.project]
        assert due_signal.due(mongo, REVIEW, both, older_than_s=60.0) == []
        assert due_signal.due(mongo, REVIEW, [], older_than_s=0.5) == []
        assert due_signal.sweep(mongo, REVIEW, both) == [second.project]
        mongo.clock.advance(FOLD_SWEEP_AGE_S)
        assert due_signal.sweep(mongo, REVIEW, both) == [second.project, first.project]


def test_a_set_without_a_time_is_swept_up(emptied: Settings) -> None:
    with review(emptied, studies=1, members=1) as r:
        fold_on(r.mongo, r.project)
        decide(r, r.studies[0], r.members[0])
        r.mongo.collection(STUDIES).update_one({"_id": r.studies[0]}, {"$set": {OLDEST: "yesterday"}})
        assert due_signal.due(r.mongo, REVIEW, [r.project], older_than_s=0.5) == []
        assert due_signal.sweep(r.mongo, REVIEW, [r.project]) == [r.project]


def test_a_missing_index_is_told_where_a_project_folds_and_no_matter_where_none_does(settings: Settings) -> None:
    with review(settings, studies=1, members=1) as r:
        assert due_signal.due(r.mongo, REVIEW, [r.project], older_than_s=0.0) == []
        assert due_signal.sweep(r.mongo, REVIEW, [r.project]) == []
        r.mongo.collection(CONTROL).update_one({"_id": r.project}, {"$set": {"FoldEverEnabled": True}})
        with pytest.raises(Refusal) as refused:
            due_signal.sweep(r.mongo, REVIEW, [r.project])
        assert refused.value.reason is OperateReason.PendingIndexMissing
        stop, told = threading.Event(), list[str]()

        def tell(line: str) -> None:
            told.append(line)
            stop.set()

        with fold_host(r.mongo) as host:
            FoldWorker(host, REVIEW, stop).run(tell)
        assert "PendingIndexMissing" in told[0]


def test_a_host_without_projects_looks_at_nothing_and_one_that_disagrees_leaves_them(emptied: Settings) -> None:
    with review(emptied, studies=1, members=1) as r:
        fold_on(r.mongo, r.project)
        decide(r, r.studies[0], r.members[0])
        with host_of(emptied) as empty:
            assert FoldWorker(empty, REVIEW, threading.Event()).look(sweeps=True, min_age_s=0.0) == []
        with host_of(settings_for(emptied, UUID(int=7))):
            worker = FoldWorker(r.host, REVIEW, threading.Event())
            worker.run_once()
        assert worker.worked.left == {r.project: "Disagreed"}
        r.mongo.collection(CONTROL).update_one({"_id": r.project}, {"$set": {"FoldMode": FoldMode.ENABLED.value}})
        worker.run_once()
        assert worker.worked.left == {}
