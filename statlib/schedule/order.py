"""What a scheduler hands to the process that carries a run out: a claim, as one JSON document."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from statlib.mongo.leases import Lease
from statlib.schedule.definitions import Schedule
from statlib.schedule.documents import SCHEDULE
from statlib.schedule.slot_store import lease_id
from statlib.schedule.slots import Claim


class Order(BaseModel):
    """A claim on the wire."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schedule: Schedule
    slot_at_utc: datetime
    claims: int
    attempt: int
    owner: str
    generation: int
    expires_at_utc: datetime

    @classmethod
    def of(cls, claim: Claim) -> Order:
        return cls(
            schedule=claim.schedule,
            slot_at_utc=claim.slot_at_utc,
            claims=claim.claims,
            attempt=claim.attempt,
            owner=claim.lease.owner,
            generation=claim.lease.generation,
            expires_at_utc=claim.lease.expires_at_utc,
        )

    def claim(self) -> Claim:
        identity = lease_id(self.schedule.name)
        lease = Lease(SCHEDULE, identity, self.owner, self.generation, self.expires_at_utc)
        return Claim(self.schedule, self.slot_at_utc, self.claims, self.attempt, lease)
