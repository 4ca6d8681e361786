"""The anchor: a journal's head as the database's audit recorded it, out of reach of whoever rewrites a folder.

A run asks the boundary to record its head twice: when it starts, and when its journal is closed. The audit is only
ever added to. Invariant: every anchor of a run must agree with its folder; a second, other one is a contradiction and
never a correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from statlib.evidence.entries import Sha256

ANCHOR_ACTION = "runbook-run"


class AnchorPhase(StrEnum):
    """``started``: right after the journal's first lines; ``closed``: after RunClosed."""

    STARTED = "started"
    CLOSED = "closed"


class Anchor(BaseModel):
    """One record: line ``entries`` of the run's journal had the hash ``head``, at ``at`` by the database's clock."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    runbook: str
    phase: AnchorPhase
    head: Sha256
    entries: int = Field(ge=1)
    at: AwareDatetime
    principal: str


def closing(anchors: Sequence[Anchor]) -> Anchor | None:
    """The anchor of the closed journal, which alone vouches for a verdict."""
    return next((anchor for anchor in anchors if anchor.phase is AnchorPhase.CLOSED), None)
