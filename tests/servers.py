"""Fault injection on real servers: MongoDB's own fail points, always switched off again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient
from pymongo.errors import ConnectionFailure

FAIL_COMMAND = "failCommand"


@dataclass(frozen=True, slots=True)
class FailPoint:
    """A fail point that is on; its counts are barriers for tests that would otherwise sleep."""

    server: MongoClient[dict[str, Any]]
    entered_before: int

    def wait_entered(self, times: int = 1, *, timeout_s: float = 20.0) -> None:
        """Return once the fail point has taken ``times`` commands since it was switched on."""
        self.server.admin.command(
            {
                "waitForFailPoint": FAIL_COMMAND,
                "timesEntered": self.entered_before + times,
                "maxTimeMS": round(timeout_s * 1000),
            }
        )


@contextmanager
def fail_command(
    client: MongoClient[dict[str, Any]],
    commands: Sequence[str],
    *,
    error_code: int | None = None,
    error_labels: Sequence[str] | None = None,
    close_connection: bool = False,
    write_concern_error: int | None = None,
    block_ms: int | None = None,
    times: int | None = None,
    skip: int | None = None,
    app_name: str | None = None,
    namespace: str | None = None,
) -> Iterator[FailPoint]:
    """Make the current primary fail or delay the named commands while the block runs.

    ``times`` stops after that many, ``skip`` lets that many pass first; one of the two at most. ``app_name``
    spares every client but the one connected under that name, ``namespace`` ("database.collection") every other
    collection; without it ``find`` also hits the find by which the server itself looks up a session that sends
    its first retryable write. The server it was set on, and no other, is
    reset at the end, even if the primary has moved. A server that died meanwhile has forgotten it anyway.
    """
    if times is not None and skip is not None:
        raise ValueError("the server counts either times or skip, not both")
    data: dict[str, Any] = {"failCommands": list(commands), "closeConnection": close_connection}
    if error_code is not None:
        data["errorCode"] = error_code
    if error_labels is not None:
        data["errorLabels"] = list(error_labels)
    if write_concern_error is not None:
        data["writeConcernError"] = {"code": write_concern_error, "errmsg": "injected by a test"}
    if block_ms is not None:
        data |= {"blockConnection": True, "blockTimeMS": block_ms}
    if app_name is not None:
        data["appName"] = app_name
    if namespace is not None:
        data["namespace"] = namespace
    mode: Any = "alwaysOn"
    if times is not None:
        mode = {"times": times}
    if skip is not None:
        mode = {"skip": skip}
    client.admin.command("ping")
    address = client.primary
    assert address is not None, "a fail point needs a primary to be set on"
    server: MongoClient[dict[str, Any]] = MongoClient(*address, directConnection=True, serverSelectionTimeoutMS=5000)
    try:
        on = server.admin.command({"configureFailPoint": FAIL_COMMAND, "mode": mode, "data": data})
        try:
            yield FailPoint(server=server, entered_before=int(on["count"]))
        finally:
            _switch_off(server)
    finally:
        server.close()


def _switch_off(server: MongoClient[dict[str, Any]]) -> None:
    try:
        server.admin.command({"configureFailPoint": FAIL_COMMAND, "mode": "off"})
    except ConnectionFailure:
        return  # killed by the test: a new process starts with every fail point off
