"""The fold's runbooks, as real processes beside a real fold worker: in the order in which an operator needs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import verify
from statlib.kernel.settings import load_settings
from statlib.local.replica_set import ReplicaSet
from statlib.mongo.connection import connected
from statlib.review.catalogue import REVIEW
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics import hosts
from statlib.statistics.bounds import FOLD_WRITER_GRACE_S
from statlib.statistics.documents import CONTROL
from statlib.statistics.fold_fleet import read_fold_fleet
from statlib.statistics.hosts import Role
from statlib.statistics.pending import FOLD_PROTOCOL
from statlib.statistics.pending_index import IndexState, index_state
from tests.notebooks.operated import REPOSITORY, Ended, Operated, operated, until

BUILD = {"project": None, "confirm": "local", "quiet_hour": "Sunday 03:00 UTC, agreed by the reviewers' office"}


@pytest.fixture
def deployment(mongo_server: ReplicaSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operated]:
    monkeypatch.setenv("STATLIB_CONFIG", str(tmp_path / "data" / "statlib.toml"))
    monkeypatch.setenv("STATLIB__STATISTICS__FOLD", "true")
    with operated(mongo_server, tmp_path) as opened:
        yield opened


@contextmanager
def folding(of: Operated) -> Iterator[None]:
    """``statlib worker fold`` as a process of its own, with a sign of life."""
    command = [sys.executable, "-m", "statlib.cli.main", "worker", "fold"]
    worker = subprocess.Popen(command, cwd=REPOSITORY, env=os.environ.copy(), stdout=subprocess.DEVNULL)
    try:
        until(lambda: read_fold_fleet(of.mongo, of.project).worker_live(FOLD_PROTOCOL))
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=60)


def control(of: Operated) -> dict[str, object]:
    found = of.mongo.collection(CONTROL).find_one({"_id": of.project})
    assert found is not None
    return found


def passed(run: Ended, verdict: Verdict) -> None:
    assert (run.exit_code, run.answer["verdict"]) == (0, verdict), run
    assert [str(finding) for finding in verify(run.report).findings] == []


@pytest.mark.req("ENTRY-64", "MODE-15")
def test_a_project_is_brought_to_fold_and_back_by_three_runbooks(deployment: Operated) -> None:
    given = {"rollout_complete": "true"}
    with connected(load_settings()) as mongo, hosts.registered(mongo, Role.API) as application, folding(deployment):
        assert index_state(mongo, REVIEW) is IndexState.ABSENT
        built = deployment.run("build_pending_index", given=BUILD)
        passed(built, Verdict.PASSED)
        assert "Sunday 03:00 UTC" in (built.report / "report.html").read_text(encoding="utf-8")
        assert index_state(mongo, REVIEW) is IndexState.READY
        openings = deployment.openings()
        passed(deployment.run("enable_fold", given=given, past_grace=True), Verdict.REHEARSAL_PASSED)
        assert (control(deployment)["FoldMode"], deployment.openings()) == ("Enabled", openings + 1)
        study = mongo.collection(REVIEW.source_collection).find_one({"ProjectId": deployment.project})
        assert study is not None
        who = study["Screenings"][0]["InvestigatorId"] if study["Screenings"] else deployment.project
        ScreeningWriter(application, deployment.project).submit(study["_id"], who, Decision.INCLUDE)
        with deployment.running("disable_fold") as running:
            until(lambda: control(deployment)["FoldMode"] == "Disabling", while_alive=running.process)
            deployment.mongo.clock.advance(FOLD_WRITER_GRACE_S + 1)
            passed(running.ended(), Verdict.REHEARSAL_PASSED)
        assert (control(deployment)["FoldMode"], control(deployment)["StorageVersion"]) == ("Disabled", 1)
        assert deployment.standing().counters == deployment.truth()
