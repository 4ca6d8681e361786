"""What travels of edits, fences and operations over many studies. JSON names are camelCase."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, Field

from statlib.admin.wire import Request, Wire
from statlib.review.documents import Study
from statlib.review.edits import Name
from statlib.review.screening import Decision
from statlib.statistics.documents import TrackingMode

ROWS_MAX = 1_000  # of one request; more than its body may hold

_OWN_FIELDS = frozenset(field.alias for field in Study.model_fields.values())


def _free(name: str) -> str:
    if name in _OWN_FIELDS:
        raise ValueError(f"{name} is a study's own field")
    return name


FieldName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,63}$"), AfterValidator(_free)]
FieldText = Annotated[str, Field(max_length=20_000)]


class TrackingModeRequest(Request):
    mode: TrackingMode


class DecisionLine(Request):
    study: UUID
    investigator: UUID
    decision: Decision
    at: datetime | None = None


class DecisionsRequest(Request):
    rows: Annotated[tuple[DecisionLine, ...], Field(max_length=ROWS_MAX)]


class StudyLine(Request):
    """``fields``: bibliographic ones beyond the title, kept under their names."""

    id: UUID
    title: Annotated[str, Field(max_length=20_000)] = ""
    fields: Annotated[dict[FieldName, FieldText], Field(max_length=100, default_factory=dict)]


class SearchRequest(Request):
    """``complete``: these are the last studies; until then the import stays in force."""

    search: UUID
    name: Name
    source: Annotated[str, Field(max_length=400)] = ""
    studies: Annotated[tuple[StudyLine, ...], Field(max_length=ROWS_MAX)]
    complete: bool = True


class RemovalRequest(Request):
    pass


class ReleaseRequest(Request):
    pass


class Tracking(Wire):
    reviewer_tracking_mode: str
    reviewer_tracking_epoch: int


class Scope(Wire):
    family: str
    scope: str


class Edited(Wire):
    """What was staled: ``families`` whole, else single ``scopes``."""

    project: UUID
    changed: bool
    revision: int
    families: tuple[str, ...]
    scopes: tuple[Scope, ...]


class Rewritten(Wire):
    kind: str
    visited: int
    changed: int
    resumed: bool
    edited: Edited | None


class RefusedLine(Wire):
    row: int
    reason: str
    detail: str


class DecisionsApplied(Wire):
    rows: int
    applied: int
    unchanged: int
    refused: tuple[RefusedLine, ...]
    resumed: bool
    abandoned: dict[str, Any] | None


class Imported(Wire):
    search: UUID
    inserted: int
    present: int
    elsewhere: tuple[UUID, ...]
    complete: bool
    resumed: bool
    abandoned: dict[str, Any] | None


class Removed(Wire):
    search: UUID
    studies: int
    resumed: bool
    abandoned: dict[str, Any] | None


class Fence(Wire):
    """An operation in force. ``interrupted``: its lease has run out, and nobody carries it on."""

    kind: str
    interrupted: bool
    families: tuple[str, ...]
    started_at_utc: datetime
    expires_at_utc: datetime
    intent: dict[str, Any]
    progress: dict[str, int]


class Released(Wire):
    """``completed``: what it hid is right again; otherwise what it had done stays."""

    kind: str
    completed: bool
    visited: int
    changed: int
