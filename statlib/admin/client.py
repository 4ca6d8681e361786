"""The one client of the boundary: for notebooks, commands and tests alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID, uuid4

import httpx
from pydantic import TypeAdapter

from statlib.admin import backfill_wire, wire, wire_records
from statlib.admin.edit_client import EditCalls
from statlib.admin.fold_client import FoldCalls
from statlib.admin.ledger_client import LedgerCalls
from statlib.admin.reasons import AdminReason
from statlib.admin.run_wire import AnchorRequest, RunAnchor
from statlib.backfills.lifecycle import Operator
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.retention import Kept
from statlib.evidence.anchors import AnchorPhase
from statlib.kernel.refusals import Fault, Refusal, StatlibError, find_reason
from statlib.passes.audit import Outcome
from statlib.passes.retention import Records
from statlib.postgres.reasons import PostgresReason
from statlib.review.edits import Edit

T = TypeVar("T")
PREFIX = "/api/admin/project-statistics"
BACKFILLS = "/api/admin/backfills"
BACKFILL_RETENTION = "/api/admin/backfill-records/retention"
WHOLE_PATHS = (BACKFILLS, BACKFILL_RETENTION)
SYSTEMS = (BackfillReason, PostgresReason)  # imported, so that a refusal of theirs is met as what it is
TIMEOUT_S = 60.0  # longer than the boundary's own deadline, so that its typed answer is met
_LONG = httpx.Timeout(TIMEOUT_S, read=None)  # a long operation answers when it has ended; the server hears us leave


class AdminClient(EditCalls, FoldCalls, LedgerCalls):
    """Typed calls. A refusal comes back as the Refusal that the server raised, with its current state.

    ``request_id`` makes a repeat of an accepted call return its first outcome; without one every call is its own.
    ``run`` names the runbook's run in the audit. A long call that is interrupted (KeyboardInterrupt) cancels its
    operation and waits until that holds nothing any more, before the interruption goes on.
    """

    def __init__(self, url: str, token: str, *, run: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} | ({"X-Run-Id": run} if run else {})
        try:
            self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=TIMEOUT_S)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise Refusal(AdminReason.BoundaryUnreachable, "admin.url or admin.token cannot be sent") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def status(self, project: UUID) -> wire.Status:
        return self._get(f"/{project}/status", wire.Status)

    def why(self, project: UUID, families: Sequence[str] = ()) -> wire_records.Why:
        """Every gate between the project's pages and its stored statistics, in order."""
        return self._get(f"/{project}/why", wire_records.Why, family=list(families))

    def set_fleet_mode(self, *, enabled: bool, request_id: str | None = None) -> wire.FleetMode:
        return self._send("PUT", "/fleet-mode", wire.FleetModeRequest(enabled=enabled), wire.FleetMode, request_id)

    def set_narrow_gate(self, project: UUID, *, enabled: bool, request_id: str | None = None) -> wire.NarrowGate:
        asked = wire.NarrowGateRequest(enabled=enabled)
        return self._send("POST", f"/{project}/narrow-gate", asked, wire.NarrowGate, request_id)

    def backfill(
        self, project: UUID, family: str, *, force: bool = False, request_id: str | None = None
    ) -> wire.Backfill:
        asked = wire.FamilyRequest(family=family, force=force)
        return self._send("POST", f"/{project}/backfill", asked, wire.Backfill, request_id, long=True)

    def backfill_together(
        self, project: UUID, families: Sequence[str] = (), *, force: bool = False, request_id: str | None = None
    ) -> wire.Backfills:
        """Several families in one walk over the source; all that the deployment keeps, if none is named."""
        asked = wire.FamiliesRequest(families=tuple(families), force=force)
        return self._send("POST", f"/{project}/backfill-families", asked, wire.Backfills, request_id, long=True)

    def rebuild(
        self, project: UUID, family: str, *, force: bool = False, request_id: str | None = None
    ) -> wire.Rebuild:
        asked = wire.FamilyRequest(family=family, force=force)
        return self._send("POST", f"/{project}/rebuild", asked, wire.Rebuild, request_id, long=True)

    def parity(self, project: UUID, families: Sequence[str], *, request_id: str | None = None) -> list[wire.Parity]:
        own_id = request_id or str(uuid4())
        response = self._cancellable(
            own_id, "GET", f"/{project}/parity", params={"family": list(families)}, headers={"X-Request-Id": own_id}
        )
        return self._answer(response, list[wire.Parity])

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

    def audit(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        target: str | None = None,
        principal: str | None = None,
        run: str | None = None,
        request_id: str | None = None,
        outcome: Outcome | None = None,
        page_size: int | None = None,
    ) -> Iterator[wire_records.AuditEntry]:
        """Control attempts, newest first, page by page. ``run``: the operations of one run of a runbook."""
        asked: dict[str, object] = {
            "since": since.isoformat() if since else None,
            "until": until.isoformat() if until else None,
            "target": target,
            "principal": principal,
            "run": run,
            "request": request_id,
            "outcome": outcome.value if outcome else None,
            "limit": page_size,
        }
        query = {key: value for key, value in asked.items() if value is not None}
        while True:
            page = self._get("/audit", wire_records.AuditPage, **query)
            yield from page.entries
            if page.next is None:
                return
            query["after"] = page.next

    def operations(self) -> list[wire_records.Operation]:
        """Long operations under way."""
        return self._get("/operations", list[wire_records.Operation])

    def cancel(self, request_id: str) -> wire_records.Cancelled:
        """Tell the long operation under a request id to stop. Refuses OperationUnknown."""
        path = f"/operations/{request_id}/cancel"
        return self._send("POST", path, wire_records.CancelRequest(), wire_records.Cancelled, None)

    def prune(self, records: Records, *, request_id: str | None = None) -> wire_records.Pruned:
        """One bounded pass over records that are older than their retention."""
        asked = wire_records.RetentionRequest(records=records)
        return self._send("POST", "/retention", asked, wire_records.Pruned, request_id)

    def anchor(
        self, run_id: str, *, runbook: str, phase: AnchorPhase, head: str, entries: int, request_id: str | None = None
    ) -> RunAnchor:
        """Put the head of a run's journal on record. Refuses RunAnchoredOtherwise."""
        asked = AnchorRequest(runbook=runbook, phase=phase, head=head, entries=entries)
        return self._send("POST", f"/runs/{run_id}/anchor", asked, RunAnchor, request_id)

    def anchors(self, run_id: str) -> list[RunAnchor]:
        """Every anchor of the run, oldest first."""
        return self._get(f"/runs/{run_id}/anchors", list[RunAnchor])

    def storage(self) -> wire.Storage:
        return self._get("/storage", wire.Storage)

    def server_time(self) -> datetime:
        return self._get("/time", datetime)

    def backfills(self) -> list[backfill_wire.Backfill]:
        """Every data backfill as PostgreSQL has it now."""
        return self._get(BACKFILLS, list[backfill_wire.Backfill])

    def data_backfill(self, stable_id: str) -> backfill_wire.Backfill:
        """One data backfill. Refuses BackfillUnknown."""
        return self._get(f"{BACKFILLS}/{stable_id}", backfill_wire.Backfill)

    def move_backfill(
        self, operator: Operator, stable_id: str, *, generation: int | None = None, request_id: str | None = None
    ) -> backfill_wire.Moved:
        """Start, pause, resume or retry; ``generation``: only if that is still the current one."""
        asked = backfill_wire.ControlRequest(generation=generation)
        path = f"{BACKFILLS}/{stable_id}/{operator.value}"
        return self._send("POST", path, asked, backfill_wire.Moved, request_id)

    def validate_backfill(self, stable_id: str, *, request_id: str | None = None) -> backfill_wire.Validation:
        """Run the definition's proof now. Exactly one typed outcome; what is lost is asked for again, never guessed."""
        path = f"{BACKFILLS}/{stable_id}/{Operator.VALIDATE.value}"
        asked = backfill_wire.ValidateRequest()
        return self._send("POST", path, asked, backfill_wire.Validation, request_id, patient=True)

    def preview_backfill(self, stable_id: str) -> backfill_wire.Preview:
        """What a start would meet: an estimate, the key's index, locks, and a sample of what would change."""
        return self._get(f"{BACKFILLS}/{stable_id}/preview", backfill_wire.Preview)

    def prune_backfill_records(self, records: Kept, *, request_id: str | None = None) -> backfill_wire.Pruned:
        """One bounded pass over records of data backfills that are older than their retention."""
        asked = backfill_wire.RetentionRequest(records=records)
        return self._send("POST", BACKFILL_RETENTION, asked, backfill_wire.Pruned, request_id)

    def backfill_audit(self, stable_id: str) -> Iterator[backfill_wire.Control]:
        """Control attempts on one data backfill, newest first, page by page; ``records:audit`` and ``records:requests``
        for who pruned which records."""
        query: dict[str, object] = {}
        while True:
            page = self._get(f"{BACKFILLS}/{stable_id}/audit", backfill_wire.ControlPage, **query)
            yield from page.entries
            if page.next is None:
                return
            query["before"] = page.next

    def _get(self, path: str, type_: type[T], **query: Any) -> T:
        return self._answer(self._request("GET", path, params=query), type_)

    def _send(
        self,
        method: str,
        path: str,
        asked: wire.Request | Edit,
        type_: type[T],
        request_id: str | None,
        *,
        long: bool = False,
        patient: bool = False,
    ) -> T:
        own_id = request_id or str(uuid4())
        arguments: dict[str, Any] = {
            "json": asked.model_dump(mode="json", by_alias=True),
            "headers": {"X-Request-Id": own_id},
        }
        if long:
            return self._answer(self._cancellable(own_id, method, path, **arguments), type_)
        if patient:
            arguments["timeout"] = _LONG
        return self._answer(self._request(method, path, **arguments), type_)

    def _cancellable(self, request_id: str, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._request(method, path, timeout=_LONG, **arguments)
        except KeyboardInterrupt:
            self._cancel_quietly(request_id)
            raise

    def _cancel_quietly(self, request_id: str) -> None:
        try:
            self.cancel(request_id)
        except StatlibError:
            return  # it has ended, or the server noticed that we left: either way there is nothing to add

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._http.request(method, path if path.startswith(WHOLE_PATHS) else PREFIX + path, **arguments)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
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
        body = _body(response)
        if "reason" in body:
            known = find_reason(str(body["reason"]))
            if known is None:
                detail = f"{body['reason']}: {body.get('remedy', '')}"
                raise Refusal(AdminReason.RefusedByServer, detail, state=body.get("state"))
            raise Refusal(known, body.get("detail", ""), state=body.get("state"), remedy=str(body.get("remedy", "")))
        correlation = body.get("correlation", "none")
        raise Fault(
            f"the boundary failed with status {response.status_code}",
            remedy=f"Look for correlation {correlation} in its log.",
        )


def _body(response: httpx.Response) -> Mapping[str, Any]:
    """What the boundary said; nothing, if something in between answered in its place."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
