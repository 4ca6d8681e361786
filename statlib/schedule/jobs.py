"""Jobs: work below the admin boundary that a schedule may run, and the seam at which it registers itself.

A job registers itself as an entry point of the group ``statlib.jobs`` (``name = package.module:JOB``, a ``Job`` of
that name). statlib's own are entry points too, so there is one way in.

Invariant: a job's guarded transactions prove the slot's lease, so that one whose host was frozen past its lease
writes nothing when it is woken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Any

from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Fault, Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease, fence
from statlib.passes.audit import Action
from statlib.schedule.reasons import ScheduleReason

ENTRY_POINT_GROUP = "statlib.jobs"


class PassOutcome(StrEnum):
    """How a scheduled pass ended; the seeds' own words (SCHED-46)."""

    COMPLETED = "completed"
    REFUSED = "refused"
    CAPACITY_REFUSED = "capacity_refused"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class PassReport:
    """What a job did. ``reason`` names why it did not complete; ``counts`` says how many of what."""

    outcome: PassOutcome
    reason: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """A pass that had nothing to do, or was switched off, has not failed."""
        return self.outcome in {PassOutcome.COMPLETED, PassOutcome.SKIPPED}


@dataclass(frozen=True)
class JobContext:
    """What a job is given: its slot, who it is, and the lease that it acts under."""

    mongo: Mongo
    schedule: str
    slot_at_utc: datetime
    principal: str
    deadline: float
    """Seconds on ``mongo.clock.monotonic()`` at which it is ended; a job that works in steps looks at it."""
    lease: Lease

    def fence(self, session: ClientSession) -> None:
        """Prove inside a transaction that the slot is still this run's. Refuses LeaseLost."""
        fence(self.mongo, session, self.lease)

    def action(self, name: str, target: str, request_id: str, payload: Mapping[str, Any]) -> Action:
        """An audited action of this job, as its own principal."""
        return Action(self.principal, "schedule", name, target, request_id, payload)


@dataclass(frozen=True, slots=True)
class Job:
    """``summary`` is one sentence. ``run`` refuses or raises as any operation does."""

    name: str
    summary: str
    run: Callable[[JobContext], PassReport]


def find_job(name: str) -> Job:
    """The installed job of that name. Refuses JobUnknown, naming those there are."""
    points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in points:
        known = ", ".join(sorted(points)) or "none"
        raise Refusal(ScheduleReason.JobUnknown, f"no job {name!r}; there are: {known}")
    job = points[name].load()
    if not isinstance(job, Job) or job.name != name:
        raise Fault(
            f"{points[name].value} is not the job {name}", remedy="Let the entry point name a Job of that name."
        )
    return job
