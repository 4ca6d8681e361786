"""A replica set of local servers: started, initiated, elected, and broken on purpose by fault tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pymongo import MongoClient
from pymongo.errors import AutoReconnect, ConnectionFailure, OperationFailure, PyMongoError

from statlib.kernel.refusals import Fault
from statlib.kernel.settings import Settings, load_settings
from statlib.local import process
from statlib.local.binary import Binary, find_binary
from statlib.local.process import POLL_S, Node, ServerOptions

PRIMARY_TIMEOUT_S = 60.0
STEP_DOWN_S = 5

_NOT_INITIATED = 94
_NOT_A_MEMBER = 93
_TEMPORARY_PREFIX = "statlib-mongo-"


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """One to seven servers on loopback that form one set. Holds no state but the folders: any process may act."""

    binary: Binary
    nodes: tuple[Node, ...]
    options: ServerOptions = field(default_factory=ServerOptions)

    @property
    def uri(self) -> str:
        """The address for a new client; open it after ``start``, since an older one knows no sessions."""
        return f"mongodb://{','.join(node.address for node in self.nodes)}/?replicaSet={self.options.set_name}"

    def start(self) -> Node:
        """Start what does not run, initiate what is new, and return the primary. Raises as ``launch`` does."""
        for node in self.nodes:
            if process.running(node.dbpath) is None:
                process.launch(self.binary, node, self.options)
        self._configure()
        return self.wait_for_primary()

    def wait_for_primary(self, timeout_s: float = PRIMARY_TIMEOUT_S) -> Node:
        """The node that takes writes now. Fault if none does within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if (found := self.primary()) is not None:
                return found
            time.sleep(POLL_S)
        raise Fault(
            f"no primary among {', '.join(node.address for node in self.nodes)} within {timeout_s:.0f} s",
            remedy=f"Read {self.nodes[0].log}.",
        )

    def primary(self) -> Node | None:
        """The node that takes writes at this moment, if one does; frozen and dead ones are passed over."""
        for node in self.nodes:
            if not _answers(node):
                continue
            with contextlib.suppress(PyMongoError), direct_client(node) as client:
                if client.admin.command("hello")["isWritablePrimary"]:
                    return node
        return None

    def secondaries(self) -> tuple[Node, ...]:
        """The nodes that run and are not primary, frozen ones included."""
        primary = self.primary()
        return tuple(node for node in self.nodes if node != primary and process.running(node.dbpath))

    def stop(self, *, grace_s: float = 30.0) -> None:
        """End every server; idempotent."""
        process.stop(*(node.dbpath for node in self.nodes), grace_s=grace_s)

    def kill(self, node: Node) -> None:
        """SIGKILL one server, as a crash of its machine would end it. Fault if it does not run."""
        if not process.kill(node.dbpath):
            raise Fault(f"no server runs in {node.dbpath}")

    def freeze(self, node: Node) -> None:
        """SIGSTOP one server: alive, holding its sockets, answering nobody."""
        process.freeze(node.dbpath)

    def thaw(self, node: Node) -> None:
        """SIGCONT a frozen server."""
        process.thaw(node.dbpath)

    def restart(self, node: Node) -> None:
        """Start a stopped or killed server again on its port; nothing if it runs."""
        if process.running(node.dbpath) is None:
            process.launch(self.binary, node, self.options)

    def step_down(self) -> Node:
        """Make the primary yield; returns the node that was primary, which may be elected again after 5 s."""
        node = self.wait_for_primary()
        # the server closes the connection under the command's answer in some versions
        with direct_client(node) as client, contextlib.suppress(AutoReconnect):
            client.admin.command("replSetStepDown", STEP_DOWN_S, secondaryCatchUpPeriodSecs=2, force=True)
        return node

    def heal(self) -> Node:
        """Thaw and restart everything, and return the primary once there is one and every node has joined."""
        for node in self.nodes:
            if process.running(node.dbpath) is not None:
                process.thaw(node.dbpath)
            self.restart(node)
        found = self.wait_for_primary()
        self._wait_for_members()
        return found

    def _configure(self) -> None:
        """Initiate a new set; give a set whose ports moved its new addresses.

        A server whose stored address is no longer its own says "not initiated" while it looks for itself there:
        for 30 s, if a stranger on that port accepts and stays silent. So it is a new one only without a stored
        configuration; else its final answer is awaited.
        """
        deadline = time.monotonic() + PRIMARY_TIMEOUT_S
        while time.monotonic() < deadline:
            # a server that finds itself outside its set hangs up on everybody; each step may be repeated
            with contextlib.suppress(ConnectionFailure), direct_client(self.nodes[0]) as client:
                if self._is_configured(client):
                    return
            time.sleep(POLL_S)
        raise Fault(
            f"{self.nodes[0].address} did not join its set within {PRIMARY_TIMEOUT_S:.0f} s",
            remedy=f"Read {self.nodes[0].log}.",
        )

    def _is_configured(self, client: MongoClient[dict[str, Any]]) -> bool:
        """Take the one step that the server's state asks for; True once it is a member of its set."""
        if (code := _state_error(client)) is None:
            return True
        stored = client.get_database("local").get_collection("system.replset").find_one()
        if code == _NOT_INITIATED and stored is None:
            client.admin.command("replSetInitiate", self._configuration())
        elif code == _NOT_A_MEMBER and stored is not None:
            self._readdress(client, stored)
        elif code != _NOT_INITIATED:
            raise Fault(f"{self.nodes[0].address} has no usable set (code {code})", remedy=f"Read {self.nodes[0].log}.")
        return False

    def _readdress(self, client: MongoClient[dict[str, Any]], stored: dict[str, Any]) -> None:
        if len(stored["members"]) != len(self.nodes):
            raise Fault(
                f"{self.nodes[0].dbpath} belongs to a set of {len(stored['members'])} servers, not {len(self.nodes)}",
                remedy="Set data_dir to another folder.",
            )
        for member, node in zip(stored["members"], self.nodes, strict=True):
            member["host"] = node.address
        stored["version"] += 1
        client.admin.command("replSetReconfig", stored, force=True)

    def _configuration(self) -> dict[str, Any]:
        members = [{"_id": number, "host": node.address} for number, node in enumerate(self.nodes)]
        configuration: dict[str, Any] = {"_id": self.options.set_name, "members": members}
        if self.options.for_tests and len(self.nodes) > 1:
            configuration["settings"] = {"electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 200}
        return configuration

    def _wait_for_members(self, timeout_s: float = PRIMARY_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        states: list[str] = []
        while time.monotonic() < deadline:
            with contextlib.suppress(PyMongoError), direct_client(self.wait_for_primary()) as client:
                states = [member["stateStr"] for member in client.admin.command("replSetGetStatus")["members"]]
            if states and set(states) <= {"PRIMARY", "SECONDARY"}:
                return
            time.sleep(POLL_S)
        raise Fault(f"the set's members did not all join within {timeout_s:.0f} s: {', '.join(states)}")


def _state_error(client: MongoClient[dict[str, Any]]) -> int | None:
    """The server's error code for having no state to tell, or None if it is a member of its set."""
    try:
        client.admin.command("replSetGetStatus")
    except OperationFailure as error:
        return error.code or 0
    return None


@contextlib.contextmanager
def direct_client(node: Node) -> Iterator[MongoClient[dict[str, Any]]]:
    """A client of this one server, whatever its role; for administration, never for documents."""
    client: MongoClient[dict[str, Any]] = MongoClient(
        process.LOOPBACK,
        node.port,
        directConnection=True,
        serverSelectionTimeoutMS=5000,
        connectTimeoutMS=5000,
        socketTimeoutMS=20000,
    )
    try:
        yield client
    finally:
        client.close()


def describe(
    folder: Path,
    *,
    binary: Binary,
    nodes: int = 1,
    options: ServerOptions | None = None,
    ports: list[int] | None = None,
) -> ReplicaSet:
    """A set whose servers live in ``folder``, one sub-folder each; nothing is started."""
    chosen = ports or process.free_ports(nodes)
    return ReplicaSet(
        binary=binary,
        nodes=tuple(
            Node(dbpath=folder / f"node{number}", log=folder / f"node{number}.log", port=port)
            for number, port in enumerate(chosen)
        ),
        options=options or ServerOptions(),
    )


@contextlib.contextmanager
def replica_set(
    *, nodes: int = 1, for_tests: bool = False, settings: Settings | None = None, folder: Path | None = None
) -> Iterator[ReplicaSet]:
    """A started set for the length of a block; its servers are stopped and a temporary folder is removed.

    What an owner that was killed left behind is swept by the next call: each temporary folder names the
    process that owns it.
    """
    _sweep()
    binary = find_binary(settings or load_settings())
    home = folder or Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX))
    if folder is None:
        _owner_file(home).write_text(f"{os.getpid()} {psutil.Process().create_time()}", encoding="ascii")
    described = describe(home, binary=binary, nodes=nodes, options=ServerOptions(for_tests=for_tests))
    try:
        described.start()
        yield described
    finally:
        described.stop(grace_s=10)
        if folder is None:
            shutil.rmtree(home, ignore_errors=True)


def _owner_file(home: Path) -> Path:
    return home / "owner"


def _sweep() -> None:
    for home in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY_PREFIX}*"):
        if _owned(home):
            continue
        for dbpath in home.glob("node*"):
            if dbpath.is_dir():
                process.kill(dbpath)
        shutil.rmtree(home, ignore_errors=True)


def _owned(home: Path) -> bool:
    """Whether the process that made this temporary folder still lives; when in doubt, it does."""
    try:
        pid, created = _owner_file(home).read_text(encoding="ascii").split()
        return psutil.Process(int(pid)).create_time() == float(created)
    except psutil.NoSuchProcess:
        return False
    except (OSError, ValueError, psutil.Error):
        return True


def _answers(node: Node) -> bool:
    found = process.running(node.dbpath)
    return found is not None and not process.is_frozen(found)
