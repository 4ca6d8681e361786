"""Keeping the ledgers of a host's projects short, beside the fold: looks, and passes at whatever is old enough.

Any number of workers may do it. Of two that meet at one project one loses its pass, which changes nothing. What
refuses a pass, a backfill say, is waited out until the next look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from uuid import UUID

from pymongo.errors import PyMongoError

from statlib.kernel import telemetry
from statlib.kernel.refusals import Refusal, RefusalKind
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import back_off
from statlib.statistics.bounds import LEDGER_LOOK_MIN_S, LEDGER_LOSSES_MAX, LEDGER_PASS_PAUSE_S
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import CONTROL, ProjectControl
from statlib.statistics.hosts import Host
from statlib.statistics.ledger import rows_of
from statlib.statistics.ledger_maintenance import Compaction, compact_ledger
from statlib.statistics.reasons import LedgerReason
from statlib.workers.ledger_cadence import Cadence, Seen, cadence

_WORTH_REPEATING = (LedgerReason.ConcurrentStatisticsWrite, MongoReason.CommitOutcomeUnknown)


class LookEnd(StrEnum):
    """Why a look at a project ended."""

    DONE = "Done"  # nothing more is old enough, or the look has made its passes
    REFUSED = "Refused"
    LOST = "Lost"  # saves came first too often
    FAILED = "Failed"


class LedgerKeeper:
    """Looks at each project when its cadence says so. ``compacted``: rows so far."""

    def __init__(self, host: Host, catalogue: AnyCatalogue) -> None:
        self.compacted = 0
        self._host, self._catalogue = host, catalogue
        self._ended = threading.Event()
        self._seen: dict[UUID, Seen] = {}
        self._due: dict[UUID, float] = {}

    @contextmanager
    def keeping(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Keep them in a thread for the length of the block, where settings ask for it; the pass at hand is finished.

        ``tell`` gets a line about what somebody should see to.
        """
        if not self._host.mongo.settings.statistics.ledger_maintenance or not self._host.writes:
            yield
            return
        thread = threading.Thread(target=self._run, args=(tell,), name="statlib-ledger")
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _run(self, tell: Callable[[str], None]) -> None:
        while not self._ended.is_set():
            self._ended.wait(self.look(tell))

    def look(self, tell: Callable[[str], None]) -> float:
        """Compact what is due. Returns the seconds until anything is due again; an unreachable server is tried again
        then."""
        clock = self._host.mongo.clock
        try:
            controls = self._controls()
        except PyMongoError as error:
            tell(f"ledgers: {error}")
            return LEDGER_LOOK_MIN_S
        for control in controls:
            now_s = clock.monotonic()
            if self._ended.is_set():
                break
            if self._due.get(control.id, now_s) <= now_s:
                self._keep(control, now_s, tell)
        now_s = clock.monotonic()
        due = [self._due[control.id] for control in controls if control.id in self._due]
        return max(0.0, min([*due, now_s + LEDGER_LOOK_MIN_S]) - now_s)

    def _controls(self) -> list[ProjectControl]:
        wanted = {"_id": {"$in": sorted(self._host.allowlist)}}
        return [ProjectControl.from_bson(found) for found in self._host.mongo.collection(CONTROL).find(wanted)]

    def _keep(self, control: ProjectControl, now_s: float, tell: Callable[[str], None]) -> None:
        seen = Seen(now_s, rows_of(control), control.committed_projection_revision)
        chosen = cadence(self._seen.get(control.id), seen, self._host.ledger.rows_max)
        deleted, end = self._compact(control.id, chosen, tell)
        telemetry.count("ledger.looks", end=end)
        self.compacted += deleted
        self._seen[control.id] = Seen(now_s, max(0, seen.rows - deleted), seen.revision)
        self._due[control.id] = now_s + (chosen.next_look_s if end is LookEnd.DONE else LEDGER_LOOK_MIN_S)

    def _compact(self, project: UUID, chosen: Cadence, tell: Callable[[str], None]) -> tuple[int, LookEnd]:
        """Rows deleted, and how it ended."""
        deleted = passes = losses = 0
        while passes < chosen.passes and not self._ended.is_set():
            try:
                done = compact_ledger(self._host, self._catalogue, project)
            except Refusal as refusal:
                if refusal.reason not in _WORTH_REPEATING:
                    if refusal.reason.kind is not RefusalKind.CONTENTION:
                        tell(f"ledger of project {project}: {refusal}")
                    return deleted, LookEnd.REFUSED
                losses += 1
                if losses > LEDGER_LOSSES_MAX:
                    return deleted, LookEnd.LOST
                back_off(losses)
                continue
            except PyMongoError as error:
                tell(f"ledger of project {project}: {error}")
                return deleted, LookEnd.FAILED
            passes, losses = passes + 1, 0
            deleted += done.deleted
            if done.outcome is Compaction.NO_ELIGIBLE_COMPLETE_REVISION:
                break
            self._ended.wait(LEDGER_PASS_PAUSE_S)
        return deleted, LookEnd.DONE
