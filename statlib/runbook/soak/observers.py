"""Observers: what is read, compared, measured and rebuilt beside the savers, each in a thread of its own.

An observation that cannot be made is put on record as put off, with its reason; the next one is made in its turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pymongo.errors import PyMongoError

from statlib.admin.client import AdminClient
from statlib.evidence.soak_captures import DIFFERENCES_MAX
from statlib.kernel.refusals import Fault, Refusal, RefusalKind, StatlibError
from statlib.runbook.soak.editing import STALLED_S, Editor
from statlib.runbook.soak.savers import Rows
from statlib.runbook.soak.schedule import Schedule
from statlib.statistics.hosts import Host

TOGETHER = "all families together"


@dataclass
class Observers:
    """Runs each observation at its interval until stopped. ``disturbances`` counts what could not be observed."""

    stopped: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)
    disturbances: dict[str, int] = field(default_factory=dict)
    capacity_refused: int = 0
    failures: list[BaseException] = field(default_factory=list)

    def every(self, seconds: float, name: str, observe: Callable[[], None]) -> None:
        """Call ``observe`` every ``seconds`` from now on; 0: never."""
        if not seconds:
            return
        thread = threading.Thread(target=self._loop, args=(seconds, name, observe), name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def _loop(self, seconds: float, name: str, observe: Callable[[], None]) -> None:
        due = time.monotonic()
        try:
            while not self.stopped.wait(max(0.0, due - time.monotonic())):
                self._once(name, observe)
                due = max(due + seconds, time.monotonic())
        except BaseException as error:
            self.failures.append(error)
            raise

    def _once(self, name: str, observe: Callable[[], None]) -> None:
        try:
            observe()
        except (StatlibError, PyMongoError) as error:
            reason = error.reason.name if isinstance(error, Refusal) else type(error.__cause__ or error).__name__
            self.disturbances[f"{name}: {reason}"] = self.disturbances.get(f"{name}: {reason}", 0) + 1
            if isinstance(error, Refusal) and error.reason.kind is RefusalKind.CAPACITY:
                self.capacity_refused += 1


def parity(client: AdminClient, project: UUID, families: tuple[str, ...], rows: Rows) -> Callable[[], None]:
    """One comparison of each family, through the boundary."""

    def observe() -> None:
        try:
            compared = client.parity(project, families)
        except (Refusal, Fault) as error:
            reason = error.reason.name if isinstance(error, Refusal) else "Fault"
            for family in families:
                rows.append(_put_off(family, reason))
            raise
        for found in compared:
            if found.compared and not found.scopes:
                continue  # a project without stages, say, has nothing of the family to compare
            rows.append(
                {
                    "family": found.family,
                    "scopes_compared": found.scopes if found.compared else 0,
                    "exact": found.exact,
                    "compared": found.compared,
                    "differences": [d.model_dump() for d in found.differences[:DIFFERENCES_MAX]],
                    "reason": found.reason,
                    "at": datetime.now(UTC).isoformat(),
                }
            )

    return observe


def storage(client: AdminClient, rows: Rows) -> Callable[[], None]:
    """One size of each collection, through the boundary."""

    def observe() -> None:
        sampled = client.storage()
        for size in sampled.collections:
            rows.append(
                {
                    "at": sampled.observed_at_utc.isoformat(),
                    "collection": size.collection,
                    "documents": size.documents,
                    "size_bytes": size.size_bytes,
                    "storage_bytes": size.storage_bytes,
                }
            )

    return observe


def rebuilds(
    client: AdminClient,
    project: UUID,
    families: tuple[str, ...],
    rows: Rows,
    *,
    turn: threading.Lock,
    force: bool = True,
) -> Callable[[], None]:
    """One backfill of all families in one walk, under load, through the boundary: published, or starved and says so.

    ``turn``: those that share it wait for one another, and not for the lease.
    """

    def observe() -> None:
        with turn:
            rebuild()

    def rebuild() -> None:
        started = time.perf_counter()
        outcome: dict[str, Any] = {"published": 0, "races_lost": 0, "reason": None}
        try:
            done = client.backfill_together(project, families, force=force).families
            published = sum(len(one.rebuild.published) for one in done)
            outcome |= {"published": published, "races_lost": max(one.races_lost for one in done)}
        except Refusal as refusal:
            outcome["reason"] = refusal.reason.name
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        rows.append({"at": datetime.now(UTC).isoformat(), "family": TOGETHER, "took_ms": took_ms, **outcome})

    return observe


def pauses(
    schedule: Schedule, backfill: Callable[[], None], compare: Callable[[], None], patience_s: float
) -> Callable[[], None]:
    """One moment of quiet: nothing is submitted while what saves outdated is counted anew and everything compared."""

    def observe() -> None:
        with schedule.held(patience_s) as quiet:
            if quiet and not schedule.stopped:
                backfill()
                compare()

    return observe


def edits(editor: Editor, schedule: Schedule, backfill: Callable[[], None], patience_s: float) -> Callable[[], None]:
    """The edits that are due, each made under load; then a moment of quiet to count anew what it outdated.

    The quiet is not waited for long: a claim that the edit keeps out is under way until the edit is taken back.
    """

    def observe() -> None:
        while editor.make_due(schedule.handed_out):
            with schedule.held(min(patience_s, STALLED_S)):
                backfill()

    return observe


def primary(host: Host, note: Callable[[str], None]) -> Callable[[], None]:
    """Puts on record whenever the replica set's primary is another than before, or is gone."""
    last: list[tuple[str, int] | None] = [host.mongo.client.primary]

    def observe() -> None:
        now = host.mongo.client.primary
        if now != last[0]:
            note(f"the primary is now {_named(now)}; it was {_named(last[0])}")
            last[0] = now

    return observe


def _named(address: tuple[str, int] | None) -> str:
    return f"{address[0]}:{address[1]}" if address else "none"


def _put_off(family: str, reason: str) -> dict[str, Any]:
    return {
        "family": family,
        "scopes_compared": 0,
        "exact": False,
        "compared": False,
        "differences": [],
        "reason": reason,
        "at": datetime.now(UTC).isoformat(),
    }
