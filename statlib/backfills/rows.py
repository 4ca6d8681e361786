"""The durable row, as it is read. PostgreSQL decides; this only carries what it said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from statlib.backfills.lifecycle import Lifecycle

Position = Sequence[Any]  # a JSON array of the ordering key's values


@dataclass(frozen=True, slots=True)
class BackfillRow:
    """What a worker or an operation needs of a row. ``bound`` is None before the start and empty for an empty set."""

    stable_id: str
    lifecycle: Lifecycle
    generation: int
    bound: Position | None
    checkpoint: Position | None
    validated: Position | None
    attempts: int
    batch_rows: int | None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> BackfillRow:
        return cls(
            stable_id=found["stable_id"],
            lifecycle=Lifecycle(found["lifecycle"]),
            generation=found["generation"],
            bound=found["bound"],
            checkpoint=found["checkpoint"],
            validated=found["validated"],
            attempts=found["attempts"],
            batch_rows=found["batch_rows"],
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that was held when it was returned; only a guarded statement says whether it still is."""

    stable_id: str
    generation: int
    owner: str

    @property
    def guard(self) -> dict[str, Any]:
        return {"stable_id": self.stable_id, "generation": self.generation, "owner": self.owner}


@dataclass(frozen=True, slots=True)
class Claimed:
    """A fresh claim, and the row as it was taken. ``taken_over``: somebody else's had run out."""

    claim: Claim
    row: BackfillRow
    taken_over: bool
    at: datetime


def as_json(position: Position | None) -> Jsonb | None:
    return None if position is None else Jsonb(list(position))
