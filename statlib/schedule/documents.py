"""Stored documents of schedules. Field names follow the seeds' pattern."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from statlib.mongo.documents import Stored, UtcTime
from statlib.schedule.states import SlotReason, SlotState

SCHEDULE = "pmProjectStatisticsSchedule"
SLOT = "pmProjectStatisticsScheduleSlot"
RUN = "pmProjectStatisticsRun"


class HookState(StrEnum):
    NONE = "None"  # the run succeeded, or its schedule tells nobody
    OWED = "Owed"
    DELIVERED = "Delivered"
    UNDELIVERED = "Undelivered"  # every attempt failed; the last failure is kept


class Registration(Stored):
    """One schedule as its hosts share it. The lease of its runs lives in the same document.

    Every slot until ``evaluated_through_utc`` has its record.
    """

    id: dict[str, str] = Field(alias="_id")
    cron: str
    definition_digest: str
    registered_at_utc: UtcTime
    evaluated_through_utc: UtcTime
    lease_generation: int = 0
    owner: str | None = None
    expires_at_utc: UtcTime | None = None


class Slot(Stored):
    """One slot; or, with ``slot_count`` above 1, the range of slots from ``first_slot_at_utc`` to ``slot_at_utc``."""

    id: Any = Field(alias="_id")
    schedule: str
    slot_at_utc: UtcTime
    first_slot_at_utc: UtcTime
    slot_count: int = 1
    state: SlotState
    reason: SlotReason | None = None
    detail: str = ""
    late: bool = False
    claims: int = 0
    attempt: int = 0
    lease_generation: int = 0
    recorded_at_utc: UtcTime
    changed_at_utc: UtcTime


class Run(Stored):
    """One attempt at a slot."""

    id: str = Field(alias="_id")
    schedule: str
    slot_at_utc: UtcTime
    attempt: int
    target_kind: str
    target: str
    principal: str
    host: str
    pid: int
    lease_generation: int
    state: SlotState
    reason: SlotReason | None = None
    detail: str = ""
    exit_code: int | None = None
    report: str | None = None
    counts: dict[str, int] = Field(default_factory=dict)
    started_at_utc: UtcTime
    ended_at_utc: UtcTime | None = None
    hook: HookState = HookState.NONE
    hook_attempts: int = 0
    hook_failure: str = ""
    hook_claimed_until_utc: UtcTime | None = None
