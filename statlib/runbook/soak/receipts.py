"""The receipts of a soak, read back through the boundary and captured."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from statlib.evidence import soak_captures as soak
from statlib.runbook.run import Run


def receipts_since(run: Run[Any], project: UUID, since: datetime) -> int:
    """Capture every receipt observed since then. Returns how many."""
    found = 0
    with run.captures.lines(soak.RECEIPTS) as rows:
        for receipt in run.client.receipts(project, since, run.client.server_time()):
            rows.append(
                soak.ReceiptRow(
                    namespace=receipt.namespace,
                    operation_id=receipt.operation_id,
                    expected=receipt.expected,
                    before=receipt.before,
                    after=receipt.after,
                    digest=receipt.digest,
                )
            )
            found += 1
    return found
