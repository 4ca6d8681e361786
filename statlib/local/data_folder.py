"""The embedded default: one real single-node replica set that belongs to a data folder.

``up`` and ``down`` may be called by any process, at any time, any number of times; a file lock lets one act at
a time. Invariant: a folder has at most one server, and what a killed one had committed is there again after
the next ``up``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from uuid import UUID

import psutil
from filelock import FileLock, Timeout
from pymongo.errors import PyMongoError

from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.local import config_file, process
from statlib.local.binary import Binary, find_binary
from statlib.local.process import Node, PortTaken, ServerOptions
from statlib.local.reasons import LocalReason
from statlib.local.replica_set import ReplicaSet, direct_client

LOCK_TIMEOUT_S = 180.0  # longer than the longest start, so that a second `up` waits for the first
STOP_GRACE_S = 30.0
PORT_ATTEMPTS_MAX = 5


class UpOutcome(StrEnum):
    """What ``up`` had to do."""

    STARTED = "started"
    REUSED = "reused"


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """A data folder's server as it is now. ``port`` and ``uri`` of a stopped one are those it will try again."""

    data_dir: Path
    running: bool
    primary: bool
    pid: int | None
    port: int | None
    version: str | None
    uri: str | None
    data_bytes: int
    config: Path | None


@dataclass(frozen=True, slots=True)
class Up:
    """The answer of ``up``: a server that takes writes, and the settings file that points at it."""

    outcome: UpOutcome
    uri: str
    port: int
    pid: int
    version: str
    config: Path

    def __str__(self) -> str:
        return f"MongoDB {self.version} {self.outcome.value} on port {self.port}; its data are in {self.config.parent}"


def up(settings: Settings, *, families: Iterable[str] = ()) -> Up:
    """Make the data folder's server run, and return once it takes writes.

    A running server is reused; a stopped or killed one is started again, on the port that it had if that is
    free. The server outlives this process. ``families`` go into a new ``statlib.toml``. Refuses as
    ``find_binary`` and ``launch`` do, and FolderUnusable, StartInProgress.
    """
    folder = _prepared(settings)
    with _locked(folder):
        binary = find_binary(settings)
        outcome = UpOutcome.STARTED
        if (found := process.running(_dbpath(folder))) is None:
            found = _started(folder, binary)
        else:
            outcome = UpOutcome.REUSED
            found.resume()  # an operator may have stopped it with a signal
        server = _set(folder, binary, process.port_of(found))
        server.start()
        config = config_file.write_embedded(folder, uri=server.uri, database=settings.mongo.database, families=families)
        answered = _asked(server.nodes[0])
    return Up(
        outcome=outcome,
        uri=server.uri,
        port=server.nodes[0].port,
        pid=found.pid,
        version=answered.version if answered else binary.version_text,
        config=config,
    )


def down(settings: Settings, *, grace_s: float = STOP_GRACE_S) -> bool:
    """Stop the data folder's server, in order, then by force after ``grace_s``. False if none ran."""
    folder = _folder(settings)
    if not folder.is_dir():
        return False
    with _locked(folder):
        return process.stop(_dbpath(folder), grace_s=grace_s) > 0


def status(settings: Settings) -> LocalStatus:
    """The folder's server as it is now. Changes nothing, and does not wait for a server that is frozen."""
    folder = _folder(settings)
    found = process.running(_dbpath(folder))
    port = process.port_of(found) if found else _remembered_port(folder)
    node = _node(folder, port) if port else None
    answered = _asked(node) if node and found and not process.is_frozen(found) else None
    config = folder / config_file.FILE_NAME
    return LocalStatus(
        data_dir=folder,
        running=found is not None,
        primary=answered is not None and answered.primary,
        pid=found.pid if found else None,
        port=port,
        version=answered.version if answered else None,
        uri=f"mongodb://{node.address}/?replicaSet={ServerOptions().set_name}" if node else None,
        data_bytes=_size(_dbpath(folder)),
        config=config if config.is_file() else None,
    )


def allow_project(settings: Settings, project_id: UUID) -> bool:
    """Add a project to the allowlist of the folder's ``statlib.toml``. True if it was not yet there.

    Processes read their allowlist once: those that run keep theirs. Refuses NotEmbedded, StartInProgress.
    """
    folder = _folder(settings)
    if not folder.is_dir():
        raise Refusal(LocalReason.NotEmbedded, f"{folder} does not exist")
    with _locked(folder):
        return config_file.add_to_allowlist(folder, project_id)


def _started(folder: Path, binary: Binary) -> psutil.Process:
    port = _remembered_port(folder)
    for _ in range(PORT_ATTEMPTS_MAX):
        if port is None:
            (port,) = process.free_ports(1)
        try:
            found = process.launch(binary, _node(folder, port), ServerOptions())
        except PortTaken:
            port = None
            continue
        _port_file(folder).write_text(f"{port}\n", encoding="ascii")
        return found
    raise Fault(f"{PORT_ATTEMPTS_MAX} loopback ports were each taken before the server had them", remedy="Try again.")


def _set(folder: Path, binary: Binary, port: int) -> ReplicaSet:
    return ReplicaSet(binary=binary, nodes=(_node(folder, port),))


def _node(folder: Path, port: int) -> Node:
    return Node(dbpath=_dbpath(folder), log=folder / "mongo" / "mongod.log", port=port)


def _folder(settings: Settings) -> Path:
    return settings.data_dir.expanduser().absolute()


def _dbpath(folder: Path) -> Path:
    return folder / "mongo" / "db"


def _port_file(folder: Path) -> Path:
    return folder / "mongo" / "port"


def _prepared(settings: Settings) -> Path:
    """The folder, closed to other users: it holds the documents, and settings that may carry secrets."""
    folder = _folder(settings)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        (folder / "mongo").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Refusal(LocalReason.FolderUnusable, f"{folder}: {error.strerror}") from error
    return folder


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / "lock", timeout=LOCK_TIMEOUT_S)
    try:
        lock.acquire()
    except Timeout as error:
        raise Refusal(LocalReason.StartInProgress, f"{folder} was locked for {LOCK_TIMEOUT_S:.0f} s") from error
    try:
        yield
    finally:
        lock.release()


def _remembered_port(folder: Path) -> int | None:
    try:
        port = int(_port_file(folder).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return port if 0 < port < 65536 else None


@dataclass(frozen=True, slots=True)
class _Answer:
    version: str
    primary: bool


def _asked(node: Node) -> _Answer | None:
    with contextlib.suppress(PyMongoError), direct_client(node) as client:
        primary = bool(client.admin.command("hello")["isWritablePrimary"])
        return _Answer(version=str(client.server_info()["version"]), primary=primary)
    return None


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # the server removes files as it goes
            total += path.stat().st_size if path.is_file() else 0
    return total
