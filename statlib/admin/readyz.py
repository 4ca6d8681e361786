"""``GET /readyz``: whether this service may be sent ordinary traffic. It says so to anybody, and says no more.

The answer holds one word for each input, and no id, lifecycle or diagnostic: those are for the authorised boundary,
which stays reachable while this is closed. Every input is asked anew; one that cannot be asked is not ready.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from fastapi.concurrency import run_in_threadpool
from pymongo.errors import PyMongoError
from starlette.types import ASGIApp, Receive, Scope, Send

from statlib.backfills.service import Backfills, Check
from statlib.statistics.hosts import Host

PATH = "/readyz"


class ReadyZ:
    """ASGI middleware that answers this one path."""

    def __init__(self, app: ASGIApp, host: Host, backfills: Backfills | None) -> None:
        self._app = app
        self._host = host
        self._backfills = backfills

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] not in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        checks = await run_in_threadpool(self._checks)
        ready = all(check is Check.OK for check in checks.values())
        body = json.dumps({"ready": ready, "checks": {name: check.value for name, check in checks.items()}}).encode()
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": 200 if ready else 503, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _checks(self) -> Mapping[str, Check]:
        documents = {"documents": self._documents()}
        if self._backfills is None:
            return documents
        return documents | dict(self._backfills.checks())

    def _documents(self) -> Check:
        try:
            self._host.mongo.client.admin.command("ping")
        except PyMongoError:
            return Check.UNAVAILABLE
        return Check.OK
