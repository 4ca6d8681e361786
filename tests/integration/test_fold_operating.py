"""Operating the fold: the index of pending entries, commands over the boundary, their answers, doctor and gauges."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from statlib.cli.main import main
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo
from statlib.passes.audit import AUDIT, server_time
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.review.screening import Decision
from statlib.statistics import storage
from statlib.statistics.bounds import HEARTBEAT_LIVE_S
from statlib.statistics.documents import CONTROL, FOLD_QUARANTINE, GLOBAL_CONTROL, FoldMode
from statlib.statistics.fold_status import Pending, fold_status
from statlib.statistics.hosts import Role
from statlib.statistics.pending import FOLD_PROTOCOL, OLDEST
from statlib.statistics.pending_index import KEYS, PARTIAL, PENDING_INDEX, IndexState, build_pending_index, index_state
from statlib.statistics.reasons import OperateReason
from statlib.workers.deployment_gauges import read_deployment
from tests.children import _as_environment as as_environment
from tests.folding import fold_on, heartbeat
from tests.reviews import Review, host_of, review

PATIENCE_S = 60.0


@pytest.fixture
def opened(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Review]:
    """A review whose hosts fold, with its settings in the environment; there is no index, and no worker."""
    with review(emptied, fold=True) as found:
        for name, value in as_environment(found.mongo.settings).items():
            monkeypatch.setenv(name, value)
        yield found
        if PENDING_INDEX in found.mongo.collection(STUDIES).index_information():
            found.mongo.collection(STUDIES).drop_index(PENDING_INDEX)


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


def said(*words: object, code: int = 0) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == code, result.output
    answered: dict[str, Any] = json.loads(result.stdout)
    return answered


def keys_of_index(mongo: Mongo) -> int:
    return int(mongo.database.command("validate", STUDIES)["keysPerIndex"][PENDING_INDEX])


# --- the index -------------------------------------------------------------------------------------------------------


@pytest.mark.req("ENTRY-60")
def test_no_start_up_builds_the_index(opened: Review) -> None:
    storage.initialise(opened.mongo, REVIEW)
    with host_of(opened.mongo.settings, Role.PROJECT_MANAGEMENT):
        said("fold", "index", "show")  # a whole boundary starts and ends
    assert index_state(opened.mongo, REVIEW) is IndexState.ABSENT


@pytest.mark.req("ENTRY-58", "ENTRY-59", "ENTRY-61")
def test_the_index_holds_what_has_anything_pending_and_nothing_else(opened: Review) -> None:
    assert said("fold", "index", "show")["state"] == "Absent"
    built = said("fold", "index", "build")
    assert (built["state"], built["built"]) == ("Ready", True)
    again = said("fold", "index", "build")
    assert (again["state"], again["built"]) == ("Ready", False)
    stored = opened.mongo.collection(STUDIES).index_information()[PENDING_INDEX]
    assert (dict(stored["key"]), stored["partialFilterExpression"]) == (KEYS, PARTIAL)
    assert keys_of_index(opened.mongo) == 0
    now = server_time(opened.mongo)
    overflow = {"OverflowedAtUtc": now, "Dropped": [], "UnrecordedCount": 0}
    sets: list[dict[str, Any]] = [{"Entries": [{}]}, {"Entries": [], "Overflow": overflow}]
    for study, held in zip(opened.studies, sets, strict=False):
        opened.mongo.collection(STUDIES).update_one(
            {"_id": study}, {"$set": {"PendingStatistics": {"OldestAtUtc": now, **held}}}
        )
    assert keys_of_index(opened.mongo) == 2
    records = [r for r in opened.mongo.collection(AUDIT).find() if r["Action"] == "postPendingIndex"]
    assert [(r["Outcome"], r["Target"]) for r in records] == [
        (outcome, "fold/pending-index") for _ in range(2) for outcome in ("Intended", "Accepted")
    ]


@pytest.mark.req("ENTRY-61")
def test_the_build_asks_for_a_majority_of_the_voting_members(opened: Review, monkeypatch: pytest.MonkeyPatch) -> None:
    profiled = opened.mongo.database
    profiled.command("profile", 2)
    try:
        build_pending_index(opened.mongo, REVIEW)
    finally:
        profiled.command("profile", 0)
    (asked,) = profiled["system.profile"].find({"command.createIndexes": STUDIES})
    profiled["system.profile"].drop()
    assert asked["command"]["commitQuorum"] == "votingMembers"


@contextmanager
def builds_hang(mongo: Mongo) -> Iterator[None]:
    """An index build stays under way for the length of the block."""
    switch = {"configureFailPoint": "hangAfterSettingUpIndexBuild"}
    mongo.client.admin.command({**switch, "mode": "alwaysOn"})
    try:
        yield
    finally:
        mongo.client.admin.command({**switch, "mode": "off"})


def until(true: Any) -> None:
    never = threading.Event()
    for _ in range(int(PATIENCE_S / 0.05)):
        if true():
            return
        never.wait(0.05)
    raise AssertionError(f"{true} did not come to be")


@pytest.mark.req("ENTRY-65")
def test_an_index_that_is_being_built_is_not_there_yet(opened: Review) -> None:
    heartbeat(opened.mongo)
    with host_of(opened.mongo.settings) as another:
        builder = threading.Thread(target=build_pending_index, args=(another.mongo, REVIEW))
        with builds_hang(opened.mongo):
            builder.start()
            until(lambda: index_state(opened.mongo, REVIEW) is IndexState.BUILDING)
            told = said("fold", "enable", opened.project, code=4)["refused"]
            assert (told["reason"], told["detail"]) == ("PendingIndexMissing", "it is building")
        builder.join(timeout=PATIENCE_S)
        assert not builder.is_alive()
    assert index_state(opened.mongo, REVIEW) is IndexState.READY


def test_an_index_of_its_name_that_is_another_one_is_none_and_is_not_replaced(opened: Review) -> None:
    opened.mongo.collection(STUDIES).create_index([("ProjectId", 1), ("Title", 1)], name=PENDING_INDEX)
    assert index_state(opened.mongo, REVIEW) is IndexState.ABSENT
    with pytest.raises(Refusal) as caught:
        build_pending_index(opened.mongo, REVIEW)
    assert caught.value.reason is OperateReason.PendingIndexConflict
    opened.mongo.collection(STUDIES).drop_index(PENDING_INDEX)
    opened.mongo.collection(STUDIES).create_index([("ProjectId", 1), (OLDEST, 1)], name=PENDING_INDEX)
    assert index_state(opened.mongo, REVIEW) is IndexState.ABSENT, "it is not partial"


# --- commands --------------------------------------------------------------------------------------------------------


def ready(opened: Review) -> None:
    build_pending_index(opened.mongo, REVIEW)
    heartbeat(opened.mongo)


@pytest.mark.req("MODE-05", "MODE-24", "MODE-31")
def test_every_action_has_a_command_and_a_repeated_request_hears_its_first_outcome(opened: Review) -> None:
    ready(opened)
    project = opened.project
    first = said("fold", "enable", project, "--request-id", "enable-it-once")
    assert (first["fold_mode"], first["protocol"], first["storage_version"]) == ("Enabled", FOLD_PROTOCOL, 1_002)
    disabling = said("fold", "disable", project)
    assert (disabling["fold_mode"], disabling["disabling_since_utc"] is None) == ("Disabling", False)
    assert said("fold", "enable", project, "--request-id", "enable-it-once") == first
    reset = said("fold", "reset", project)
    assert (reset["fold_mode"], reset["opening_count"]) == ("Disabling", first["opening_count"] + 1)
    told = run("fold", "enable", project)
    assert told.exit_code == 4
    assert "FoldDisabling" in told.output
    assert "statlib fold status" in told.output
    outcomes = [(r["Action"], r["Outcome"]) for r in opened.mongo.collection(AUDIT).find({"Target": str(project)})]
    assert outcomes == [
        ("postFoldEnable", "Accepted"), ("postFoldDisable", "Accepted"), ("postFoldEnable", "Replayed"),
        ("postFoldReset", "Accepted"), ("postFoldEnable", "Rejected"),
    ]  # fmt: skip


def test_what_the_status_shows_can_be_read_by_people_and_by_programs(opened: Review) -> None:
    bare = run("fold", "status", opened.project)
    assert bare.exit_code == 0
    assert "fold mode: Disabled" in bare.stdout
    assert "index of pending entries: Absent" in bare.stdout
    assert "none live (never seen)" in bare.stdout
    ready(opened)
    fold_on(opened.mongo, opened.project)
    opened.writer.submit(opened.studies[0], uuid4(), Decision.INCLUDE)
    shown = said("fold", "status", opened.project)
    assert (shown["fold_mode"], shown["tripped"], shown["index"]) == ("Enabled", True, "Ready")
    assert (shown["pending"]["studies"], shown["pending"]["entries"], shown["pending"]["overflowed"]) == (1, 1, 0)
    assert shown["worker_live"] is True
    assert {host["deployment"] for host in shown["hosts"]} == {"api", "project-management"}
    assert said("fold", "status", uuid4(), code=4)["refused"]["reason"] == "ControlMissing"
    human = run("fold", "status", opened.project).stdout
    assert "pending: 1 entry in 1 study, the oldest" in human


# --- status, doctor and gauges ---------------------------------------------------------------------------------------


def test_the_status_counts_what_is_pending_quarantined_and_in_the_ledger(opened: Review) -> None:
    mongo, project = opened.mongo, opened.project
    before = fold_status(opened.host, REVIEW, project)
    assert (before.pending, before.mode, before.tripped) == (None, FoldMode.DISABLED, True)
    build_pending_index(mongo, REVIEW)
    assert fold_status(opened.host, REVIEW, project).pending == Pending()
    now = server_time(mongo)
    sets: list[dict[str, Any]] = [
        {"OldestAtUtc": now - timedelta(seconds=100), "Entries": [{}, {}], "Overflow": None},
        {"OldestAtUtc": now, "Entries": [], "Overflow": {"OverflowedAtUtc": now}},
        {"OldestAtUtc": now, "Entries": "none that makes sense"},
    ]
    for study, held in zip(opened.studies, sets, strict=True):
        mongo.collection(STUDIES).update_one({"_id": study}, {"$set": {"PendingStatistics": held}})
    mongo.collection(FOLD_QUARANTINE).insert_one({"ProjectId": project, "OperationId": "x"})
    mongo.collection(CONTROL).update_one({"_id": project}, {"$set": {"FoldMode": "Enabled"}})
    found = fold_status(opened.host, REVIEW, project)
    assert found.pending is not None
    assert (found.pending.studies, found.pending.entries, found.pending.overflowed) == (3, 2, 1)
    assert found.pending.oldest_age_s is not None
    assert 100 <= found.pending.oldest_age_s < 160
    assert (found.quarantined, found.tripped) == (1, False)
    assert found.ledger.rows == len(opened.deltas())
    assert found.ledger.headroom == 100_000 - found.ledger.rows


def doctor_on_fold() -> tuple[str, str]:
    answered = json.loads(run("doctor", "--json").stdout)
    (check,) = [check for check in answered["checks"] if check["name"] == "fold"]
    return check["level"], check["found"]


@pytest.mark.req("SKEW-11")
def test_doctor_and_the_gauges_tell_what_folding_projects_lack(opened: Review) -> None:
    mongo = opened.mongo
    assert doctor_on_fold() == ("ok", "no project of the allowlist folds")
    assert read_deployment(mongo).fold_worker_heartbeat_age_s == 0
    fold_on(mongo, opened.project)
    mongo.collection(CONTROL).update_one(
        {"_id": opened.project}, {"$set": {"FoldEnabledAtUtc": server_time(mongo) - timedelta(seconds=500)}}
    )
    assert doctor_on_fold()[0] == "warn"
    seen = read_deployment(mongo)
    assert (seen.fold_projects[FoldMode.ENABLED], seen.fold_projects[FoldMode.DISABLING]) == (1, 0)
    assert 500 <= seen.fold_worker_heartbeat_age_s < 560
    heartbeat(mongo)
    assert doctor_on_fold()[0] == "ok"
    assert read_deployment(mongo).fold_worker_heartbeat_age_s < 60
    mongo.clock.advance(HEARTBEAT_LIVE_S + 1)
    assert doctor_on_fold()[0] == "warn"
    assert read_deployment(mongo).fold_worker_heartbeat_age_s > HEARTBEAT_LIVE_S
    saved = opened.writer.submit(opened.studies[0], uuid4(), Decision.INCLUDE)
    assert saved is not None, "no save waits for a worker"
    mongo.collection(GLOBAL_CONTROL).update_one({}, {"$unset": {"FoldWorkerHeartbeats": 1}})
    mongo.collection(CONTROL).update_one({"_id": opened.project}, {"$set": {"StorageVersion": 1}})
    assert doctor_on_fold()[0] == "fail"
    mongo.collection(STUDIES).drop_index(PENDING_INDEX)
    assert "absent" in doctor_on_fold()[1]
