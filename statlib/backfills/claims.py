"""Claims: exclusive, expiring by PostgreSQL's clock, and fenced by a generation that every new claim raises."""

from __future__ import annotations

from statlib.backfills.registry import Registry
from statlib.backfills.rows import BackfillRow, Claim, Claimed
from statlib.backfills.sql import statement
from statlib.backfills.telemetry import ClaimEvent, count_claim
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import transact


def acquire(postgres: Postgres, registry: Registry, owner: str) -> Claimed | None:
    """Claim the due and free row that waited longest, of those that this process knows; None if there is none."""
    ttl_s = postgres.settings.backfills.claim_ttl_s
    acquiring = statement("acquire", postgres.clock)
    found = transact(postgres, lambda session: session.one(acquiring, known=registry.ids, owner=owner, ttl_s=ttl_s))
    if found is None:
        return None
    row = BackfillRow.of(found)
    count_claim(ClaimEvent.TAKEN_OVER if found["taken_over"] else ClaimEvent.ACQUIRED)
    return Claimed(Claim(row.stable_id, row.generation, owner), row, found["taken_over"], found["claimed_at"])


def release(postgres: Postgres, claim: Claim) -> bool:
    """Let the next one in at once; harmless when it is no longer ours."""
    releasing = statement("release", postgres.clock)
    return transact(postgres, lambda session: session.run(releasing, **claim.guard)) == 1
