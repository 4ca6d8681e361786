"""What travels over the boundary about the fold. JSON names are camelCase."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from statlib.admin.wire import Request, Wire
from statlib.statistics.documents import ProjectControl
from statlib.statistics.pending_index import PendingIndex


class FoldRequest(Request):
    """Nothing but the project is asked."""


class FoldControl(Wire):
    fold_mode: str
    protocol: int
    storage_version: int
    opening_count: int
    enabled_at_utc: datetime | None
    disabling_since_utc: datetime | None
    opened_at_utc: datetime | None

    @classmethod
    def of(cls, control: ProjectControl) -> Self:
        return cls(
            fold_mode=control.fold_mode,
            protocol=control.fold_protocol_version,
            storage_version=control.storage_version,
            opening_count=control.opening_count,
            enabled_at_utc=control.fold_enabled_at_utc,
            disabling_since_utc=control.fold_disabling_since_utc,
            opened_at_utc=control.opened_at_utc,
        )


class IndexStanding(Wire):
    """``built``: by this very call; ``seconds``: how long that took, to be kept beside the size of the collection."""

    state: str
    built: bool
    seconds: float

    @classmethod
    def of(cls, index: PendingIndex) -> Self:
        return cls(state=index.state, built=index.built, seconds=index.seconds)
