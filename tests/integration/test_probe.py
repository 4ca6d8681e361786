"""Which servers are accepted, and what is refused by name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pymongo.errors import AutoReconnect

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import MongoSettings, Settings
from statlib.local import process
from statlib.local.replica_set import ReplicaSet
from statlib.mongo import probe as module
from statlib.mongo.connection import Mongo, connected
from statlib.mongo.probe import probe
from statlib.mongo.reasons import MongoReason
from tests.servers import fail_command


@pytest.fixture
def standalone(mongo_server: ReplicaSet, tmp_path: Path) -> Iterator[Mongo]:
    """A real mongod that belongs to no replica set."""
    node = process.Node(dbpath=tmp_path / "db", log=tmp_path / "log", port=process.free_ports(1)[0])
    node.dbpath.mkdir()
    words = process.arguments(node, process.ServerOptions())
    at = words.index("--replSet")
    del words[at : at + 2]
    subprocess.run([mongo_server.binary.path, *words, "--fork"], check=True, capture_output=True, timeout=60)
    try:
        settings = Settings(mongo=MongoSettings(uri=SecretStr(f"mongodb://{node.address}/")))
        with connected(settings) as opened:
            yield opened
    finally:
        process.stop(node.dbpath)


def refusal_of(mongo: Mongo) -> Refusal:
    with pytest.raises(Refusal) as refused:
        probe(mongo)
    return refused.value


def test_a_replica_set_is_accepted_and_described(mongo: Mongo, mongo_server: ReplicaSet) -> None:
    facts = probe(mongo)
    assert facts.version == mongo_server.binary.version_text
    assert facts.set_name == "rs0"
    assert facts.transaction_lifetime_s == 10
    assert facts.warnings == ()


def test_a_probe_leaves_nothing_behind_accepted_or_refused(mongo: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    probe(mongo)
    assert mongo.database.list_collection_names() == []
    monkeypatch.setattr(module, "time_has_passed", lambda: {"_id": 1})
    refusal_of(mongo)
    assert mongo.database.list_collection_names() == []


def test_a_standalone_server_is_refused_with_the_remedy(standalone: Mongo) -> None:
    refusal = refusal_of(standalone)
    assert refusal.reason is MongoReason.ServerStandalone
    assert "statlib up" in refusal.remedy
    assert standalone.database.list_collection_names() == []


def test_a_server_older_than_the_oldest_supported_is_refused(mongo: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OLDEST_VERSION", (99, 0))
    assert refusal_of(mongo).reason is MongoReason.ServerTooOld


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"$expr": {"$lte": ["$At", datetime(2000, 1, 1, tzinfo=UTC)]}}, id="matches nothing"),
        pytest.param({"_id": 1}, id="matches one"),
    ],
)
def test_a_filter_on_server_time_that_matches_too_little_is_refused(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "time_has_passed", lambda: wrong)
    assert refusal_of(mongo).reason is MongoReason.ServerTimeUnusable


def test_a_filter_on_server_time_whose_negation_matches_is_refused(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time_is_to_come", dict)
    assert refusal_of(mongo).reason is MongoReason.ServerTimeUnusable


@pytest.mark.parametrize(
    ("finds_that_pass", "reason"),
    [
        (0, MongoReason.SnapshotUnusable),
        (1, MongoReason.SnapshotUnusable),
        (2, MongoReason.ServerTimeUnusable),
        (3, MongoReason.ServerTimeUnusable),
    ],
)
def test_a_server_that_refuses_one_of_the_reads_is_refused_for_what_it_lacks(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch, finds_that_pass: int, reason: MongoReason
) -> None:
    monkeypatch.setattr(module, "new_token", lambda: "")
    namespace = f"{mongo.database.name}.statlibProbe"
    with fail_command(mongo.client, ["find"], error_code=72, skip=finds_that_pass, namespace=namespace):
        assert refusal_of(mongo).reason is reason
    assert mongo.database.list_collection_names() == []


def test_a_session_that_sees_later_writes_is_refused(mongo: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_session = mongo.client.start_session
    monkeypatch.setattr(mongo.client, "start_session", lambda **_: plain_session())
    assert refusal_of(mongo).reason is MongoReason.SnapshotUnusable


def test_a_long_transaction_lifetime_is_warned_of(mongo: Mongo) -> None:
    mongo.client.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=60)
    try:
        facts = probe(mongo)
    finally:
        mongo.client.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=10)
    assert facts.transaction_lifetime_s == 60
    assert "transactionLifetimeLimitSeconds is 60" in facts.warnings[0]


def test_a_lost_connection_is_no_verdict_on_the_server(mongo: Mongo) -> None:
    with fail_command(mongo.client, ["find"], close_connection=True), pytest.raises(AutoReconnect):
        probe(mongo)


def test_a_lifetime_that_may_not_be_read_is_unknown_and_no_reason_to_refuse(mongo: Mongo) -> None:
    with fail_command(mongo.client, ["getParameter"], error_code=13):
        assert probe(mongo).transaction_lifetime_s is None


def test_fifty_probes_in_a_row_all_hold(mongo: Mongo) -> None:
    """A snapshot of a collection that was made a moment ago is where a careless probe fails now and then."""
    assert {probe(mongo).set_name for _ in range(50)} == {"rs0"}
