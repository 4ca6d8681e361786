"""The client's call for the ledger."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from statlib.admin import ledger_wire
from statlib.admin.wire import Request
from statlib.review.edits import Edit

T = TypeVar("T")


class LedgerCalls:
    """One request; ``request_id`` as everywhere."""

    def _send(
        self,
        method: str,
        path: str,
        asked: Request | Edit,
        type_: type[T],
        request_id: str | None,
        *,
        long: bool = False,
        patient: bool = False,
    ) -> T:
        raise NotImplementedError

    def compact_ledger(self, project: UUID, *, request_id: str | None = None) -> ledger_wire.LedgerPass:
        """One pass; call it again until it answers NoEligibleCompleteRevision."""
        asked = ledger_wire.LedgerRequest()
        return self._send("POST", f"/{project}/delta-maintenance", asked, ledger_wire.LedgerPass, request_id)
