"""The embedded default after crashes, recycled pids, taken ports and races; sets that lose and regain members."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings, load_settings
from statlib.local import data_folder, process
from statlib.local.binary import find_binary
from statlib.local.data_folder import UpOutcome
from statlib.local.process import LOOPBACK, Node, ServerOptions, is_gone
from statlib.local.reasons import LocalReason
from statlib.local.replica_set import ReplicaSet, replica_set
from statlib.mongo.connection import Mongo
from tests.integration.test_local import insert, numbers


def lock_of(settings: Settings) -> Path:
    return settings.data_dir / "mongo" / "db" / "mongod.lock"


def test_a_killed_server_comes_up_again_with_its_data_on_its_port(embedded: Settings) -> None:
    first = data_folder.up(embedded)
    insert(first.uri, 1)
    assert process.kill(lock_of(embedded).parent)
    assert lock_of(embedded).read_text(encoding="ascii").strip() == str(first.pid), "the stale pid must be there"
    assert not data_folder.status(embedded).running
    second = data_folder.up(embedded)
    assert (second.outcome, second.port) == (UpOutcome.STARTED, first.port)
    assert numbers(second.uri) == [1]


def _of_this_test(_server: ReplicaSet) -> int:
    return os.getpid()


def _of_another_folders_server(server: ReplicaSet) -> int:
    found = process.running(server.nodes[0].dbpath)
    assert found is not None
    return found.pid


@pytest.mark.parametrize("pid_of", [_of_this_test, _of_another_folders_server])
def test_a_recycled_pid_is_neither_believed_nor_signalled(
    embedded: Settings, mongo_server: ReplicaSet, pid_of: Callable[[ReplicaSet], int]
) -> None:
    data_folder.up(embedded)
    process.kill(lock_of(embedded).parent)
    other = psutil.Process(pid_of(mongo_server))
    lock_of(embedded).write_text(f"{other.pid}\n", encoding="ascii")
    assert not data_folder.status(embedded).running
    assert not data_folder.down(embedded)
    found = data_folder.up(embedded)
    assert (found.outcome, found.pid != other.pid) == (UpOutcome.STARTED, True)
    assert other.is_running()
    assert mongo_server.primary() is not None


@contextmanager
def stranger_on(port: int, *, silent_s: float) -> Iterator[None]:
    """A program that accepts connections on the port and hangs up on each after a silence."""
    leaving = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not leaving.is_set():
            with contextlib.suppress(TimeoutError):
                caller, _ = listener.accept()
                leaving.wait(silent_s)
                caller.close()

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen()
        listener.settimeout(0.2)
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        try:
            yield
        finally:
            leaving.set()
            serving.join(timeout=20)
    assert not serving.is_alive()


@pytest.mark.parametrize("silent_s", [0.0, 2.0])
def test_a_port_that_was_taken_meanwhile_is_left_to_its_owner(embedded: Settings, silent_s: float) -> None:
    first = data_folder.up(embedded)
    insert(first.uri, 1)
    data_folder.down(embedded)
    with stranger_on(first.port, silent_s=silent_s):
        second = data_folder.up(embedded)
    assert second.port != first.port
    assert load_settings(second.config).mongo.uri.get_secret_value() == second.uri
    assert numbers(second.uri) == [1]
    insert(second.uri, 2)
    data_folder.down(embedded)
    third = data_folder.up(embedded)
    assert third.port == second.port
    assert numbers(third.uri) == [1, 2]


def test_a_port_lost_between_choice_and_start_is_chosen_again(
    embedded: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as owner:
        owner.bind((LOOPBACK, 0))
        owner.listen()
        taken = owner.getsockname()[1]
        honest = process.free_ports
        offers = iter([[taken]])
        monkeypatch.setattr(process, "free_ports", lambda count: next(offers, None) or honest(count))
        found = data_folder.up(embedded)
    assert found.port != taken
    insert(found.uri, 1)


def test_two_concurrent_ups_start_one_server(embedded: Settings) -> None:
    environment = os.environ | {"STATLIB__DATA_DIR": str(embedded.data_dir)}
    command = [sys.executable, "-m", "statlib.cli.main", "up", "--json"]
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = []
    for each in both:
        out, err = each.communicate(timeout=120)
        assert each.returncode == 0, err
        answers.append(json.loads(out))
    assert sorted(answer["outcome"] for answer in answers) == ["reused", "started"]
    assert len({(answer["pid"], answer["port"]) for answer in answers}) == 1


def test_an_up_that_cannot_get_the_folder_refuses_and_starts_nothing(
    embedded: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.data_dir.mkdir()
    monkeypatch.setattr(data_folder, "LOCK_TIMEOUT_S", 0.1)
    with FileLock(embedded.data_dir / "lock"), pytest.raises(Refusal) as refused:
        data_folder.up(embedded)
    assert refused.value.reason is LocalReason.StartInProgress
    assert not data_folder.status(embedded).running


def test_an_up_killed_before_it_initiated_the_set_is_completed_by_the_next(embedded: Settings) -> None:
    folder = embedded.data_dir / "mongo"
    folder.mkdir(parents=True)
    (port,) = process.free_ports(1)
    node = Node(dbpath=folder / "db", log=folder / "mongod.log", port=port)
    process.launch(find_binary(embedded), node, ServerOptions())
    assert not data_folder.status(embedded).primary
    found = data_folder.up(embedded)
    assert (found.outcome, found.port) == (UpOutcome.REUSED, port)
    insert(found.uri, 1)


def test_a_frozen_server_is_reported_thawed_by_up_and_stopped_by_down(embedded: Settings) -> None:
    first = data_folder.up(embedded)
    server = psutil.Process(first.pid)
    process.freeze(lock_of(embedded).parent)
    frozen = data_folder.status(embedded)
    assert (frozen.running, frozen.version, frozen.primary) == (True, None, False)
    assert data_folder.up(embedded).pid == first.pid
    insert(first.uri, 1)
    process.freeze(lock_of(embedded).parent)
    assert data_folder.down(embedded)
    assert is_gone(server)
    assert lock_of(embedded).read_text(encoding="ascii") == "", "only an orderly end empties the lock"


def test_a_server_that_ignores_its_signal_is_killed_after_the_grace(embedded: Settings) -> None:
    first = data_folder.up(embedded)
    server = psutil.Process(first.pid)
    insert(first.uri, 1)
    assert data_folder.down(embedded, grace_s=0)
    assert is_gone(server)
    assert lock_of(embedded).read_text(encoding="ascii") != "", "it must not have had the time to end in order"
    assert numbers(data_folder.up(embedded).uri) == [1]


def test_a_folder_held_by_an_unrecognised_server_is_refused(embedded: Settings) -> None:
    first = data_folder.up(embedded)
    lock_of(embedded).write_text("unreadable\n", encoding="ascii")
    try:
        with pytest.raises(Refusal) as refused:
            data_folder.up(embedded)
        assert refused.value.reason is LocalReason.FolderInUse
        assert psutil.pid_exists(first.pid)
    finally:
        lock_of(embedded).write_text(f"{first.pid}\n", encoding="ascii")


def test_a_damaged_folder_is_a_fault_that_quotes_the_servers_log(embedded: Settings) -> None:
    data_folder.up(embedded)
    data_folder.down(embedded)
    (lock_of(embedded).parent / "WiredTiger.turtle").write_bytes(b"damage")
    (lock_of(embedded).parent / "WiredTiger").write_bytes(b"damage")
    with pytest.raises(Fault, match="while starting: ") as fault:
        data_folder.up(embedded)
    assert "mongod.log" in fault.value.remedy


def test_a_temporary_set_whose_owner_was_killed_is_swept_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "from statlib.local.replica_set import replica_set\n"
        "with replica_set() as server:\n    print(server.nodes[0].dbpath, flush=True)\n    input()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    dbpath = Path(owner.stdout.readline().strip())
    with replica_set():
        assert process.running(dbpath) is not None, "an owned set is left alone"
    owner.send_signal(signal.SIGKILL)
    owner.wait(timeout=20)
    owner.stdout.close()
    owner.stdin.close()
    orphan = process.running(dbpath)
    assert orphan is not None, "a killed owner leaves its server"
    with replica_set():
        assert is_gone(orphan)
        assert not dbpath.parent.exists()


def test_three_nodes_elect_again_after_a_kill_and_lose_nothing(mongo_on_three: Mongo, three_nodes: ReplicaSet) -> None:
    mongo_on_three.collection("numbers").insert_one({"_id": 1})
    first = three_nodes.wait_for_primary()
    three_nodes.kill(first)
    second = three_nodes.wait_for_primary()
    assert second != first
    mongo_on_three.collection("numbers").insert_one({"_id": 2})
    assert mongo_on_three.collection("numbers").count_documents({}) == 2
    assert first not in three_nodes.secondaries()
    three_nodes.heal()
    assert len(three_nodes.secondaries()) == 2


def test_three_nodes_elect_another_when_the_primary_steps_down_or_freezes(three_nodes: ReplicaSet) -> None:
    first = three_nodes.step_down()
    second = three_nodes.wait_for_primary()
    assert second != first
    three_nodes.freeze(second)
    third = three_nodes.wait_for_primary()
    assert third != second
    assert second in three_nodes.secondaries()
    three_nodes.thaw(second)
    three_nodes.heal()
    assert len(three_nodes.secondaries()) == 2


def test_a_dead_node_cannot_be_killed_again_and_restarting_a_live_one_does_nothing(three_nodes: ReplicaSet) -> None:
    node = three_nodes.secondaries()[0]
    three_nodes.kill(node)
    with pytest.raises(Fault):
        three_nodes.kill(node)
    three_nodes.restart(node)
    found = process.running(node.dbpath)
    three_nodes.restart(node)
    assert process.running(node.dbpath) == found
