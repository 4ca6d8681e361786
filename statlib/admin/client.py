"""The one client of the boundary: for notebooks, commands and tests alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID, uuid4

import httpx
from pydantic import TypeAdapter

from statlib.admin import wire
from statlib.admin.reasons import AdminReason
from statlib.kernel.refusals import Fault, Refusal, find_reason

T = TypeVar("T")
PREFIX = "/api/admin/project-statistics"
TIMEOUT_S = 120.0


class AdminClient:
    """Typed calls. A refusal comes back as the Refusal that the server raised, with its current state.

    ``request_id`` makes a repeat of an accepted call return its first outcome; without one every call is its own.
    """

    def __init__(self, url: str, token: str) -> None:
        self._http = httpx.Client(
            base_url=url.rstrip("/"), headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def status(self, project: UUID) -> wire.Status:
        return self._get(f"/{project}/status", wire.Status)

    def set_fleet_mode(self, *, enabled: bool, request_id: str | None = None) -> wire.FleetMode:
        return self._send("PUT", "/fleet-mode", wire.FleetModeRequest(enabled=enabled), wire.FleetMode, request_id)

    def set_narrow_gate(self, project: UUID, *, enabled: bool, request_id: str | None = None) -> wire.NarrowGate:
        asked = wire.NarrowGateRequest(enabled=enabled)
        return self._send("POST", f"/{project}/narrow-gate", asked, wire.NarrowGate, request_id)

    def backfill(
        self, project: UUID, family: str, *, force: bool = False, request_id: str | None = None
    ) -> wire.Backfill:
        asked = wire.FamilyRequest(family=family, force=force)
        return self._send("POST", f"/{project}/backfill", asked, wire.Backfill, request_id)

    def rebuild(
        self, project: UUID, family: str, *, force: bool = False, request_id: str | None = None
    ) -> wire.Rebuild:
        asked = wire.FamilyRequest(family=family, force=force)
        return self._send("POST", f"/{project}/rebuild", asked, wire.Rebuild, request_id)

    def parity(self, project: UUID, families: Sequence[str]) -> list[wire.Parity]:
        return self._get(f"/{project}/parity", list[wire.Parity], family=list(families))

    def receipts(self, project: UUID, since: datetime, until: datetime) -> Iterator[wire.ReceiptLine]:
        """Every receipt observed in [since, until), page by page."""
        window = {"since": since.isoformat(), "until": until.isoformat()}
        cursor: dict[str, str] = {}
        while True:
            page = self._get(f"/{project}/receipts", wire.ReceiptPage, **window, **cursor)
            yield from page.receipts
            if page.next is None:
                return
            cursor = {"after": page.next}

    def storage(self) -> wire.Storage:
        return self._get("/storage", wire.Storage)

    def server_time(self) -> datetime:
        return self._get("/time", datetime)

    def _get(self, path: str, type_: type[T], **query: Any) -> T:
        return self._answer(self._request("GET", path, params=query), type_)

    def _send(self, method: str, path: str, asked: wire.Request, type_: type[T], request_id: str | None) -> T:
        body = asked.model_dump(mode="json", by_alias=True)
        headers = {"X-Request-Id": request_id or str(uuid4())}
        return self._answer(self._request(method, path, json=body, headers=headers), type_)

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._http.request(method, PREFIX + path, **arguments)
        except httpx.ConnectError as error:
            raise Refusal(AdminReason.BoundaryUnreachable, str(self._http.base_url)) from error
        except httpx.HTTPError as error:
            raise Fault(
                f"no answer from the boundary to {method} {path}",
                remedy="Repeat the call with the same request id: an accepted one returns its first outcome.",
            ) from error

    @staticmethod
    def _answer(response: httpx.Response, type_: type[T]) -> T:
        if response.is_success:
            return TypeAdapter(type_).validate_json(response.content)
        try:
            body: dict[str, Any] = response.json()
        except ValueError:
            body = {}
        if "reason" in body:
            known = find_reason(body["reason"])
            detail = body.get("detail", "") if known else f"{body['reason']}: {body.get('remedy', '')}"
            raise Refusal(known or AdminReason.RefusedByServer, detail, state=body.get("state"))
        correlation = body.get("correlation", "none")
        raise Fault(
            f"the boundary failed with status {response.status_code}",
            remedy=f"Look for correlation {correlation} in its log.",
        )
