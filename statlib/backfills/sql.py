"""The engine's own SQL, by name."""

from __future__ import annotations

from statlib.kernel.clock import Clock
from statlib.postgres.statements import at, statements


def statement(name: str, clock: Clock | None = None) -> str:
    """A statement of ``engine.sql``; ``clock`` where it asks for the present."""
    found = statements("statlib.backfills", "engine.sql")[name]
    return at(clock, found) if clock is not None else found
