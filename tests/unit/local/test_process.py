"""What is believed about a server's process, and how a failed start is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from statlib.kernel.refusals import Fault, Refusal
from statlib.local import process
from statlib.local.binary import Binary, BinarySource
from statlib.local.process import LOOPBACK, Node, PortTaken, ServerOptions, arguments, launch
from statlib.local.reasons import LocalReason


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(dbpath=tmp_path / "db", log=tmp_path / "log", port=40000)


def that_exits(folder: Path, code: int) -> Binary:
    path = folder / "mongod"
    path.write_text(f"#!/bin/sh\nexit {code}\n", encoding="utf-8")
    path.chmod(0o755)
    return Binary(path=path, version=(6, 0, 5), source=BinarySource.SETTING)


@pytest.mark.parametrize(
    "text", [None, "", "no number", pytest.param(str(os.getpid()), id="this process"), "999999999", "-1", "0"]
)
def test_a_pid_of_no_server_of_the_folder_is_not_believed(node: Node, text: str | None) -> None:
    node.dbpath.mkdir()
    if text is not None:
        (node.dbpath / "mongod.lock").write_text(text, encoding="ascii")
    assert process.running(node.dbpath) is None
    assert process.stop(node.dbpath) == 0
    assert not process.kill(node.dbpath)
    with pytest.raises(Fault):
        process.freeze(node.dbpath)


def test_another_program_that_names_the_folder_is_not_its_server(node: Node) -> None:
    node.dbpath.mkdir()
    command = [sys.executable, "-c", "input()", "--dbpath", str(node.dbpath)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as other:
        (node.dbpath / "mongod.lock").write_text(str(other.pid), encoding="ascii")
        assert process.running(node.dbpath) is None
        other.communicate(b"\n", timeout=20)


@pytest.mark.parametrize(("code", "reason"), [(100, LocalReason.FolderInUse), (62, LocalReason.FolderOfOtherVersion)])
def test_a_folder_that_the_server_cannot_have_is_refused(
    node: Node, tmp_path: Path, code: int, reason: LocalReason
) -> None:
    with pytest.raises(Refusal) as refused:
        launch(that_exits(tmp_path, code), node, ServerOptions())
    assert refused.value.reason is reason


def test_a_taken_port_is_told_apart(node: Node, tmp_path: Path) -> None:
    with pytest.raises(PortTaken):
        launch(that_exits(tmp_path, 48), node, ServerOptions())


def test_any_other_end_is_a_fault_with_the_last_error_of_the_log(node: Node, tmp_path: Path) -> None:
    node.log.write_text(
        '{"s":"E","msg":"Old","attr":{"error":"older"}}\n'
        '{"s":"F","msg":"Storage","attr":{"error":"no space left"}}\n'
        '{"s":"I","msg":"Bye"}\nhalf a li',
        encoding="utf-8",
    )
    with pytest.raises(Fault, match="ended with 14 while starting: Storage no space left") as fault:
        launch(that_exits(tmp_path, 14), node, ServerOptions())
    assert str(node.log) in fault.value.remedy


def test_a_start_that_claims_success_without_a_server_is_a_fault(node: Node, tmp_path: Path) -> None:
    with pytest.raises(Fault):
        launch(that_exits(tmp_path, 0), node, ServerOptions())


def test_only_test_servers_take_test_commands(node: Node) -> None:
    plain, for_tests = (arguments(node, ServerOptions(for_tests=flag)) for flag in (False, True))
    assert "enableTestCommands=1" not in plain
    assert "ttlMonitorSleepSecs=1" not in plain
    assert {"enableTestCommands=1", "ttlMonitorSleepSecs=1"} <= set(for_tests)
    for each in (plain, for_tests):
        assert "transactionLifetimeLimitSeconds=10" in each
        assert each[each.index("--bind_ip") + 1] == LOOPBACK


def test_free_ports_all_differ() -> None:
    ports = process.free_ports(5)
    assert len(set(ports)) == 5
