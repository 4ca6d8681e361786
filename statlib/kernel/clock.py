"""Time. Authority is the database's clock; this module yields the expressions that ask it.

Invariant: no lease, grace or expiry is ever decided by a process's own clock. In production the offset is
zero. Tests and rehearsals advance an offset kept in a small file that every process re-reads at each use, so
that kernels, workers and servers move together; what ran on an advanced clock is labelled as accelerated.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from statlib.kernel.refusals import Fault


@dataclass(frozen=True, slots=True)
class Clock:
    """The one source of "now". ``offset_file`` holds whole milliseconds as decimal text; absent means zero."""

    offset_file: Path | None = None

    @property
    def offset_ms(self) -> int:
        """Milliseconds by which every reading is shifted; never negative. Raises Fault if the file is not a number."""
        if self.offset_file is None:
            return 0
        try:
            text = self.offset_file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return 0
        try:
            return max(0, int(text or "0"))
        except ValueError as error:
            raise Fault(
                f"the clock file {self.offset_file} does not hold a whole number of milliseconds",
                remedy="Delete the file to run on real time.",
            ) from error

    def mongo_now(self) -> Any:
        """The aggregation expression for the server's time (fixed for one command)."""
        offset = self.offset_ms
        return {"$add": ["$$NOW", offset]} if offset else "$$NOW"

    def mongo_in(self, seconds: float) -> Any:
        """The aggregation expression for the server's time ``seconds`` from now (negative: ago)."""
        return {"$add": ["$$NOW", self.offset_ms + round(seconds * 1000)]}

    def postgres_now(self) -> str:
        """The SQL expression for PostgreSQL's wall clock, which moves within a transaction as claims do."""
        offset = self.offset_ms
        return f"(clock_timestamp() + interval '{offset} milliseconds')" if offset else "clock_timestamp()"

    def monotonic(self) -> float:
        """Seconds for deadlines inside this process; shifted alike, so that an advance also expires deadlines."""
        return time.monotonic() + self.offset_ms / 1000

    def local_utc(self) -> datetime:
        """This process's idea of UTC, for labels in reports only; never for a decision."""
        return datetime.now(UTC) + timedelta(milliseconds=self.offset_ms)

    def advance(self, seconds: float) -> None:
        """Move every process that shares the offset file forward. Refused (Fault) on a clock without one."""
        if self.offset_file is None:
            raise Fault("this clock has no offset file", remedy="Set clock.offset_file; only rehearsals advance time.")
        value = self.offset_ms + round(seconds * 1000)
        temporary = self.offset_file.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(str(value), encoding="ascii")
        temporary.replace(self.offset_file)
