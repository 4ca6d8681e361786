"""What travels when a run's journal is anchored. JSON names are camelCase."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from statlib.admin.wire import Request, Wire
from statlib.evidence.anchors import Anchor, AnchorPhase
from statlib.evidence.entries import Sha256


class AnchorRequest(Request):
    """Line ``entries`` of the run's journal has the hash ``head``."""

    runbook: str = Field(min_length=1, max_length=120)
    phase: AnchorPhase
    head: Sha256
    entries: int = Field(ge=1, lt=2**63)


class RunAnchor(Wire):
    """One anchor as the audit holds it; ``at`` is the database's time, ``principal`` who sent it."""

    run_id: str
    runbook: str
    phase: AnchorPhase
    head: Sha256
    entries: int
    at: datetime
    principal: str

    def plain(self) -> Anchor:
        return Anchor.model_validate(self.model_dump())
