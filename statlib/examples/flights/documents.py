"""Source documents: one per flight, and one per logbook, which is this domain's project."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from statlib.mongo.documents import Audit, Stored, UtcTime

LOGBOOKS = "exLogbook"
FLIGHTS = "exFlight"


class Status(StrEnum):
    SCHEDULED = "Scheduled"
    DEPARTED = "Departed"
    CANCELLED = "Cancelled"


class Logbook(Stored):
    """The airports and carriers that are counted, and from how many minutes on a departure counts as late."""

    id: UUID = Field(alias="_id")
    name: str
    origins: tuple[str, ...] = ()
    carriers: tuple[str, ...] = ()
    late_from_minutes: int = Field(default=15, ge=1)
    audit: Audit = Audit()


class Flight(Stored):
    """One scheduled flight. ``delay_minutes`` is that of its departure, negative if early; None before and without."""

    id: UUID = Field(alias="_id")
    project_id: UUID
    origin: str
    destination: str
    carrier: str
    number: int
    tail: str | None = None
    scheduled_utc: UtcTime
    status: Status = Status.SCHEDULED
    delay_minutes: int | None = None
    audit: Audit = Audit()
