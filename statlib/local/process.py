"""One mongod process of one folder: launched detached, found again, stopped, killed, frozen.

The server's own lock file in the folder is the pid file. Invariant: a pid is believed only while the process
that carries it is a mongod of that very folder, so a recycled pid is never reused and never signalled.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from statlib.kernel.refusals import Fault, Refusal
from statlib.local.binary import Binary
from statlib.local.reasons import LocalReason

LOOPBACK = "127.0.0.1"
LAUNCH_TIMEOUT_S = 120.0  # a killed server replays its journal before it answers
POLL_S = 0.02
LOG_TAIL_BYTES = 256 * 1024

_EXIT_ADDRESS_IN_USE = 48
_EXIT_OTHER_VERSION = 62
_EXIT_FOLDER_IN_USE = 100


@dataclass(frozen=True, slots=True)
class Node:
    """Where one server keeps its documents (``dbpath``), what it writes about itself (``log``), and its port."""

    dbpath: Path
    log: Path
    port: int

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server is started.

    ``for_tests`` allows fail points, runs the TTL monitor each second and lets a set elect within 2 s; it is
    never set on a server that holds anything worth keeping.
    """

    set_name: str = "rs0"
    cache_gb: float = 0.25
    oplog_mb: int = 64
    transaction_lifetime_s: int = 10
    for_tests: bool = False


class PortTaken(Exception):
    """The port is another process's; the caller chooses again."""


def launch(binary: Binary, node: Node, options: ServerOptions) -> psutil.Process:
    """Start the node's server and return once it accepts connections; it outlives this process.

    Raises PortTaken; refuses FolderInUse when another server holds the folder and FolderOfOtherVersion when its
    files are another version's; otherwise Fault with the log's last error. A server that was killed before
    recovers here, from its journal.
    """
    node.dbpath.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        ran = subprocess.run(  # noqa: S603
            [binary.path, *arguments(node, options), "--fork"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LAUNCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Fault(
            f"mongod did not accept connections within {LAUNCH_TIMEOUT_S:.0f} s", remedy=f"Read {node.log}."
        ) from error
    if ran.returncode == 0 and (process := running(node.dbpath)) is not None:
        return process
    raise _did_not_start(ran.returncode, binary, node)


def arguments(node: Node, options: ServerOptions) -> list[str]:
    """The command line, without the binary."""
    parameters = {
        "diagnosticDataCollectionEnabled": "false",
        "shutdownTimeoutMillisForSignaledShutdown": "0",  # else a set's member waits 15 s before it stops
        "transactionLifetimeLimitSeconds": str(options.transaction_lifetime_s),
    }
    if options.for_tests:
        parameters |= {"enableTestCommands": "1", "ttlMonitorSleepSecs": "1"}
    flags: list[str] = ["--replSet", options.set_name, "--dbpath", str(node.dbpath)]
    flags += ["--port", str(node.port), "--bind_ip", LOOPBACK, "--nounixsocket"]
    flags += ["--logpath", str(node.log), "--logappend", "--quiet"]
    flags += ["--wiredTigerCacheSizeGB", str(options.cache_gb), "--oplogSize", str(options.oplog_mb)]
    flags += ["--wiredTigerEngineConfigString", "log=(file_max=8MB,prealloc=false)"]
    for name, value in parameters.items():
        flags += ["--setParameter", f"{name}={value}"]
    return flags


def running(dbpath: Path) -> psutil.Process | None:
    """The live server of this folder, or None; a pid that another program now has is not believed."""
    try:
        pid = int((dbpath / "mongod.lock").read_text(encoding="ascii", errors="replace").strip())
        process = psutil.Process(pid)
        if _is_server_of(process, dbpath):
            return process
    except (OSError, ValueError, psutil.Error):  # no lock, a clean stop's empty lock, or a process that is gone
        return None
    return None


def port_of(process: psutil.Process) -> int:
    """The port that a server was started on. Fault if its command line does not say."""
    value = _option(process.cmdline(), "--port")
    if value is None:
        raise Fault(f"process {process.pid} does not say its port", remedy="Stop it, then run `statlib up`.")
    return int(value)


def stop(*dbpaths: Path, grace_s: float = 30.0) -> int:
    """End the folders' servers together: in order, then by force when ``grace_s`` has passed. Returns how many ran."""
    asked = [(dbpath, process) for dbpath in dbpaths if (process := running(dbpath)) is not None]
    for _, process in asked:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
            process.resume()  # a frozen server does not see its signal
    deadline = time.monotonic() + grace_s
    for dbpath, process in asked:
        if not _gone_within(process, deadline - time.monotonic()):
            kill(dbpath)
    return len(asked)


def kill(dbpath: Path, *, timeout_s: float = 10.0) -> bool:
    """SIGKILL the folder's server and wait until it is gone. False if none ran."""
    process = running(dbpath)
    if process is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    if not _gone_within(process, timeout_s):
        raise Fault(f"process {process.pid} survived SIGKILL for {timeout_s:.0f} s")
    return True


def freeze(dbpath: Path) -> None:
    """SIGSTOP: the server keeps its sockets and its lock, and answers nobody. Fault if it does not run."""
    _required(dbpath).suspend()


def thaw(dbpath: Path) -> None:
    """SIGCONT after ``freeze``. Fault if the server does not run."""
    _required(dbpath).resume()


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody has now, all different; the caller copes if one is taken meanwhile."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def _did_not_start(exit_code: int, binary: Binary, node: Node) -> PortTaken | Refusal | Fault:
    if exit_code == _EXIT_ADDRESS_IN_USE:
        return PortTaken(node.address)
    if exit_code == _EXIT_FOLDER_IN_USE:
        return Refusal(LocalReason.FolderInUse, f"{node.dbpath} is held by another server")
    if exit_code == _EXIT_OTHER_VERSION:
        return Refusal(LocalReason.FolderOfOtherVersion, f"MongoDB {binary.version_text} cannot read {node.dbpath}")
    reason = last_error(node.log)
    return Fault(
        f"mongod ended with {exit_code} while starting{f': {reason}' if reason else ''}",
        remedy=f"Read the end of {node.log}.",
    )


def last_error(log: Path) -> str:
    """The last error that a server wrote to its log, in one line; empty if there is none near the end."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        with contextlib.suppress(ValueError, AttributeError):
            entry = json.loads(line)
            if entry.get("s") in {"E", "F"}:
                attributes = entry.get("attr", {})
                cause = attributes.get("error") or attributes.get("message") or ""
                return " ".join(f"{entry.get('msg', '')} {cause}".split())[:300]
    return ""


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended and let go of its files and port.

    A zombie that no init has collected yet counts as ended once its other threads are gone: until then they
    hold what the process held.
    """
    try:
        if not process.is_running():
            return True
        return bool(process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1)
    except psutil.NoSuchProcess:  # ZombieProcess included: a platform that shows nothing of one
        return True


def is_frozen(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() == psutil.STATUS_STOPPED)
    return False


def _required(dbpath: Path) -> psutil.Process:
    if (process := running(dbpath)) is None:
        raise Fault(f"no server runs in {dbpath}")
    return process


def _is_server_of(process: psutil.Process, dbpath: Path) -> bool:
    if process.status() == psutil.STATUS_ZOMBIE or "mongod" not in process.name():
        return False
    said = _option(process.cmdline(), "--dbpath")
    return said is not None and Path(said).resolve() == dbpath.resolve()


def _option(command_line: Sequence[str], name: str) -> str | None:
    for position, word in enumerate(command_line):
        if word == name and position + 1 < len(command_line):
            return command_line[position + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return None


def _gone_within(process: psutil.Process, timeout_s: float) -> bool:
    """Polled, because the server is nobody's child."""
    deadline = time.monotonic() + timeout_s
    while not is_gone(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
