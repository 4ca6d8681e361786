"""The edge: what holds for every connection, whatever is asked on it.

A body is read whole before anything else happens, up to a limit; a client that goes away while it is being served
cancels what it asked for; every answer tells browsers to keep, frame and guess nothing. No other origin is ever
allowed (there is no CORS).
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from statlib.kernel.cancellation import CancelCause, Cancellation

BODY_BYTES_MAX = 64 * 1024

HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")


class Edge:
    """ASGI middleware around the whole app; leaves ``body``, ``body_whole`` and ``connection`` in a request's state."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answering = _with_headers(send, secure=scope.get("scheme") == "https")
        body, whole = await _read(receive)
        connection = Cancellation()
        scope.setdefault("state", {}).update(body=body, body_whole=whole, connection=connection)
        watch = asyncio.create_task(_watch(receive, connection))
        try:
            await self._app(scope, _replaying(body, connection), answering)
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch


async def _read(receive: Receive) -> tuple[bytes, bool]:
    """The body, and whether that is all of it: what goes beyond ``BODY_BYTES_MAX`` is not kept."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return body, True
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            return b"", False
        if not message.get("more_body", False):
            return body, True


def _replaying(body: bytes, connection: Cancellation) -> Receive:
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        while not connection.cancelled:  # nobody below waits for more; whoever does learns of the end alone
            await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    return receive


async def _watch(receive: Receive, connection: Cancellation) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            connection.cancel(CancelCause.DISCONNECTED)
            return


def _with_headers(send: Send, *, secure: bool) -> Send:
    added = [*HEADERS, STRICT_TRANSPORT] if secure else list(HEADERS)

    async def answering(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *added]
        await send(message)

    return answering
