"""What a soak captures beyond what its gates are derived from: for figures, highlights and the record alone."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel

from statlib.kernel.plurals import plural

PROGRESS, REBUILDS, DISTURBANCES, NOT_LOADED = "progress", "rebuilds", "disturbances", "not_loaded"
EDITS = "edits"


class ProgressRow(BaseModel):
    """Studies of each screening class, as a bundle read them."""

    at: AwareDatetime
    studies: dict[str, int]


class RebuildRow(BaseModel):
    """One backfill under load: scopes published after so many lost races, or the refusal's reason."""

    at: AwareDatetime
    family: str
    took_ms: float
    published: int
    races_lost: int
    reason: str | None


class EditRow(BaseModel):
    """One edit of the project under load."""

    at: AwareDatetime
    edit: str
    took_ms: float


class NotLoaded(BaseModel):
    """Rows of an export that could not be read: how many, and the first of them with their reasons."""

    rows: int
    named: list[str]

    def lines(self) -> tuple[str, ...]:
        more = self.rows - len(self.named)
        return (*self.named, *([f"and {plural(more, 'row')} more"] if more else []))


class Disturbances(BaseModel):
    """What could not be observed when it was due, by observer and reason."""

    counts: dict[str, int]
