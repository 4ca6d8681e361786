"""Each runbook and the one that undoes it, as real processes on a real database: whole, refused, and broken off.

The grace of an opening is passed by advancing the deployment's clock, and every such run must say that it was
accelerated.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from statlib.evidence.anchors import ANCHOR_ACTION
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import verify
from statlib.local.replica_set import ReplicaSet
from statlib.review.families.project_screening import NAME as FAMILY
from statlib.runbook.archive import find_runs, find_unfinished
from statlib.statistics.bounds import MEMBER_LIVE_S
from statlib.statistics.documents import Mode
from tests.notebooks.operated import Ended, Operated, Standing, operated, until

EVERY_RUNBOOK: list[tuple[str, dict[str, str]]] = [
    ("narrow_gate_close", {}),
    ("narrow_gate_open", {}),
    ("backfill_family", {"family": FAMILY}),
]
DRY = {"apply": "false", "confirm": ""}


@pytest.fixture
def deployment(mongo_server: ReplicaSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operated]:
    monkeypatch.setenv("STATLIB_CONFIG", str(tmp_path / "data" / "statlib.toml"))
    with operated(mongo_server, tmp_path) as opened:
        yield opened


def assert_nothing_left(deployment: Operated) -> None:
    assert deployment.held_leases() == []
    assert deployment.host_records() == 0
    accepted = deployment.accepted()
    assert len(accepted) == len(set(accepted)), "an accepted request was carried out twice"


def assert_rehearsed(run: Ended) -> None:
    """It passed, says in its report that the clock was advanced, and verifies from its folder."""
    assert (run.exit_code, run.answer["verdict"]) == (0, Verdict.REHEARSAL_PASSED), run
    assert "The clock was advanced" in (run.report / "report.html").read_text(encoding="utf-8")
    assert [str(finding) for finding in verify(run.report).findings] == []


@pytest.mark.parametrize(("runbook", "given"), EVERY_RUNBOOK)
def test_a_dry_run_changes_no_byte_of_what_is_operated(
    deployment: Operated, runbook: str, given: dict[str, str]
) -> None:
    deployment.run(runbook, given=given | DRY)  # a boundary makes its own collections when it starts
    before, actions = deployment.documents(), deployment.actions()
    run = deployment.run(runbook, given=given | DRY)
    assert (run.exit_code, run.answer["verdict"]) == (0, Verdict.DRY_RUN_ONLY), run
    assert deployment.documents() == before
    assert set(deployment.actions()[len(actions) :]) <= {ANCHOR_ACTION}, "it asked for nothing but its own record"
    assert [str(finding) for finding in verify(run.report).findings] == []


@pytest.mark.parametrize(("runbook", "given"), EVERY_RUNBOOK)
def test_a_wrong_confirmation_is_refused_before_anything_is_there(
    deployment: Operated, runbook: str, given: dict[str, str]
) -> None:
    before = deployment.documents()
    run = deployment.run(runbook, given=given | {"confirm": "local"})
    assert run.exit_code == 4
    assert run.answer["refused"]["reason"] == "ConfirmationMissing"
    assert f"confirm must be '{deployment.project}'" in run.errors
    assert deployment.documents() == before
    assert not deployment.archive.exists()


def test_closing_and_opening_again_bring_back_what_there_was(deployment: Operated) -> None:
    before, openings = deployment.standing(), deployment.openings()
    closed = deployment.run("narrow_gate_close")
    assert (closed.exit_code, closed.answer["verdict"]) == (0, Verdict.PASSED), closed
    between = deployment.standing()
    assert (between.gate, between.source, set(between.served.values())) == (Mode.DISABLED, "AUTHORITATIVE", {False})
    assert between.counters == before.counters
    opened = deployment.run("narrow_gate_open", past_grace=True)
    assert_rehearsed(opened)
    assert deployment.standing() == before
    assert deployment.standing().counters == deployment.truth()
    assert deployment.openings() == openings + 1
    assert_nothing_left(deployment)


def test_opening_what_is_open_and_closing_what_is_closed_changes_nothing(deployment: Operated) -> None:
    before, openings = deployment.standing(), deployment.openings()
    assert deployment.run("narrow_gate_open").exit_code == 0
    assert (deployment.standing(), deployment.openings()) == (before, openings)
    deployment.gate(enabled=False)
    closed = deployment.standing()
    assert deployment.run("narrow_gate_close").exit_code == 0
    assert (deployment.standing(), deployment.openings()) == (closed, openings)
    assert_nothing_left(deployment)


def assert_brought_back(deployment: Operated, before: Standing, runbook: str) -> None:
    """All of it, or by the runbook that is about one family all that concerns that one."""
    now = deployment.standing()
    if runbook == "backfill_family":
        assert (now.gate, now.source, now.counters) == (before.gate, before.source, before.counters)
        assert (now.served[FAMILY], now.states[FAMILY]) == (True, before.states[FAMILY])
    else:
        assert now == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("runbook", "given"), [EVERY_RUNBOOK[1], EVERY_RUNBOOK[2]])
def test_interrupted_while_it_waits_it_leaves_nothing_held_and_a_second_run_completes_it(
    deployment: Operated, number: signal.Signals, runbook: str, given: dict[str, str]
) -> None:
    before, openings = deployment.standing(), deployment.openings()
    deployment.gate(enabled=False)
    if runbook == "backfill_family":
        deployment.gate(enabled=True)
    with deployment.running(runbook, given=given) as running:
        until(deployment.waits_for_grace, while_alive=running.process)
        running.signal(number)
        broken = running.ended()
    assert (broken.exit_code, broken.answer["verdict"]) == (5, Verdict.INTERRUPTED), broken
    assert broken.answer["halted"]["cause"] == number.name
    assert [str(finding) for finding in verify(broken.report).findings] == []
    halfway = deployment.standing()
    assert (halfway.gate, halfway.source) == (Mode.ENABLED, "AUTHORITATIVE")
    assert halfway.counters == before.counters == deployment.truth()
    assert_nothing_left(deployment)
    deployment.pass_grace()
    assert_rehearsed(deployment.run(runbook, given=given))
    assert_brought_back(deployment, before, runbook)
    assert deployment.openings() == openings + 1
    assert_nothing_left(deployment)


@pytest.mark.parametrize(("runbook", "given"), [EVERY_RUNBOOK[1], EVERY_RUNBOOK[2]])
def test_a_run_whose_executor_was_killed_is_resumed_and_repeats_no_effect(
    deployment: Operated, runbook: str, given: dict[str, str]
) -> None:
    before, openings = deployment.standing(), deployment.openings()
    deployment.gate(enabled=False)
    if runbook == "backfill_family":
        deployment.gate(enabled=True)
    with deployment.running(runbook, given=given) as running:
        until(deployment.waits_for_grace, while_alive=running.process)
        running.kill()
    accepted = deployment.accepted()
    (unfinished,) = find_unfinished(deployment.archive)
    until(lambda: deployment.held_leases() == [])  # killed inside a request, it leaves a lease that runs out by itself
    assert deployment.standing().counters == deployment.truth()
    deployment.mongo.clock.advance(MEMBER_LIVE_S + 1)
    assert deployment.live_hosts() == [], "a killed process no longer counts two minutes after its last renewal"
    resumed = deployment.run(runbook, "--resume", unfinished.run_id, given=given)
    assert_rehearsed(resumed)
    assert resumed.answer["run_id"] == unfinished.run_id
    entries = [json.loads(line) for line in unfinished.journal.read_text(encoding="utf-8").splitlines()]
    begun = [entry["data"]["step"] for entry in entries if entry["kind"] == "StepStarted"]
    assert {step: begun.count(step) for step in begun if step != "verify"}["backfill"] == 2, "it had not closed"
    assert all(begun.count(step) == 1 for step in begun if step != "backfill")
    assert_brought_back(deployment, before, runbook)
    assert deployment.openings() == openings + 1
    assert len(deployment.accepted()) == len(accepted) + 1, "the resumed run backfilled, and opened nothing again"
    assert deployment.held_leases() == []
    assert deployment.live_hosts() == []
    assert [folder.run_id for folder in find_runs(deployment.archive)] == [unfinished.run_id]
