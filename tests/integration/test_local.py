"""The embedded default: up, down and status, as operators and programs use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from click.testing import CliRunner
from pymongo import MongoClient

from statlib.cli.main import main
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings, load_settings
from statlib.local import data_folder
from statlib.local.data_folder import UpOutcome
from statlib.local.process import is_gone
from statlib.local.reasons import LocalReason
from statlib.local.replica_set import ReplicaSet, replica_set
from statlib.mongo.connection import connected
from statlib.mongo.probe import probe


def insert(uri: str, number: int) -> None:
    with MongoClient[dict[str, Any]](uri, w="majority", serverSelectionTimeoutMS=10000) as client:
        client.trial.numbers.insert_one({"_id": number})


def numbers(uri: str) -> list[int]:
    with MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=10000) as client:
        return sorted(document["_id"] for document in client.trial.numbers.find())


def test_up_gives_a_server_that_the_written_settings_reach_and_the_probe_accepts(embedded: Settings) -> None:
    found = data_folder.up(embedded, families=["ProjectScreening"])
    assert found.outcome is UpOutcome.STARTED
    settings = load_settings(found.config)
    assert settings.data_dir == embedded.data_dir
    assert settings.statistics.families == {"ProjectScreening"}
    with connected(settings) as mongo:
        facts = probe(mongo)
    assert (facts.version, facts.transaction_lifetime_s) == (found.version, 10)


def test_the_data_folder_is_closed_to_other_users(embedded: Settings) -> None:
    embedded.data_dir.mkdir(mode=0o755)
    data_folder.up(embedded)
    assert embedded.data_dir.stat().st_mode & 0o777 == 0o700


def test_a_second_up_reuses_the_server(embedded: Settings) -> None:
    first, second = data_folder.up(embedded), data_folder.up(embedded)
    assert second.outcome is UpOutcome.REUSED
    assert (second.pid, second.uri) == (first.pid, first.uri)


def test_down_then_up_keeps_data_port_and_allowlist(embedded: Settings) -> None:
    first = data_folder.up(embedded)
    server = psutil.Process(first.pid)
    project = uuid4()
    insert(first.uri, 1)
    assert data_folder.allow_project(embedded, project)
    assert not data_folder.allow_project(embedded, project)
    assert data_folder.down(embedded)
    assert is_gone(server)
    second = data_folder.up(embedded)
    assert (second.outcome, second.port) == (UpOutcome.STARTED, first.port)
    assert numbers(second.uri) == [1]
    assert load_settings(second.config).statistics.allowlist == {project}


def test_down_is_idempotent_and_makes_no_folder(embedded: Settings) -> None:
    assert not data_folder.down(embedded)
    assert not embedded.data_dir.exists()
    data_folder.up(embedded)
    assert data_folder.down(embedded)
    assert not data_folder.down(embedded)


def test_status_follows_the_server_and_changes_nothing(embedded: Settings) -> None:
    absent = data_folder.status(embedded)
    assert (absent.running, absent.primary, absent.port, absent.uri, absent.config, absent.data_bytes) == (
        *(False, False, None, None, None),
        0,
    )
    assert not embedded.data_dir.exists()
    found = data_folder.up(embedded)
    running = data_folder.status(embedded)
    assert (running.running, running.primary, running.pid, running.port) == (True, True, found.pid, found.port)
    assert (running.version, running.uri, running.config) == (found.version, found.uri, found.config)
    assert running.data_bytes > 1_000_000
    data_folder.down(embedded)
    stopped = data_folder.status(embedded)
    assert (stopped.running, stopped.primary, stopped.pid, stopped.version) == (False, False, None, None)
    assert (stopped.port, stopped.uri) == (found.port, found.uri)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("", encoding="utf-8")
    with pytest.raises(Refusal) as refused:
        data_folder.up(Settings(data_dir=tmp_path / "data"))
    assert refused.value.reason is LocalReason.FolderUnusable


def test_a_project_cannot_be_allowed_where_nothing_was_ever_up(embedded: Settings) -> None:
    with pytest.raises(Refusal) as refused:
        data_folder.allow_project(embedded, uuid4())
    assert refused.value.reason is LocalReason.NotEmbedded


def test_the_server_outlives_the_command_that_started_it(embedded: Settings) -> None:
    environment = os.environ | {"STATLIB__DATA_DIR": str(embedded.data_dir)}
    ran = subprocess.run(
        [sys.executable, "-m", "statlib.cli.main", "up", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    answered = json.loads(ran.stdout)
    process = psutil.Process(answered["pid"])
    assert os.getsid(process.pid) != os.getsid(0)  # a closed terminal does not take it along
    insert(answered["uri"], 1)
    assert numbers(answered["uri"]) == [1]


def test_the_commands_tell_an_operator_what_is(embedded: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATLIB__DATA_DIR", str(embedded.data_dir))

    def say(*words: str) -> str:
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "server    stopped" in say("status")
    up = say("up")
    assert f"settings: {embedded.data_dir / 'statlib.toml'}" in up
    assert f"export STATLIB_CONFIG='{embedded.data_dir / 'statlib.toml'}'" in up
    assert "reused" in say("up")
    assert "server    running, takes writes" in say("status")
    assert json.loads(say("status", "--json"))["running"] is True
    assert say("down") == "stopped\n"
    assert say("down") == "nothing was running\n"
    assert json.loads(say("down", "--json")) == {"stopped": False}


def test_up_says_when_the_environment_names_another_deployment(
    embedded: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = data_folder.up(embedded)
    monkeypatch.setenv("STATLIB_CONFIG", str(found.config))
    assert "note" not in CliRunner().invoke(main, ["up"]).stdout
    monkeypatch.setenv("STATLIB__MONGO__URI", "mongodb://elsewhere/")
    assert "note: STATLIB__MONGO__URI" in CliRunner().invoke(main, ["up"]).stdout


def test_a_temporary_set_is_gone_after_its_block_even_when_the_block_raises() -> None:
    seen: list[ReplicaSet] = []

    def fail_within() -> None:
        with replica_set() as server:
            insert(server.uri, 1)
            seen.append(server)
            raise KeyError

    with pytest.raises(KeyError):
        fail_within()
    (node,) = seen[0].nodes
    assert seen[0].primary() is None
    assert not node.dbpath.parent.exists()


def test_a_set_in_a_named_folder_keeps_its_data_for_the_next_block(tmp_path: Path) -> None:
    with replica_set(folder=tmp_path) as server:
        insert(server.uri, 1)
    with replica_set(folder=tmp_path) as server:
        assert numbers(server.uri) == [1]
