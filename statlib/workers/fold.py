"""The fold worker: turns at whatever project of this host has anything pending, until it is stopped.

It asks the partial index a few times a second and, once a minute, for what it may have missed. Any number of workers
share the work by the projects' leases. Beside it runs the keeper of the projects' ledgers. What cannot be folded now
stays pending and is tried again: saves do not wait for it, and readers overlay it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from pymongo.errors import PyMongoError

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.statistics.bounds import FOLD_MIN_AGE_S, FOLD_POLL_S, FOLD_SWEEP_S, FOLD_TURNS_MAX
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.fold import signal
from statlib.statistics.fold.heartbeat import beating
from statlib.statistics.fold.livelock import Livelock
from statlib.statistics.fold.turn import Folded, Stopped, fold_project
from statlib.statistics.hosts import Host, Role, registered
from statlib.workers.ledger import LedgerKeeper

WORTH_REPEATING = (Stopped.MORE, Stopped.LEASE_LOST)


@dataclass
class Worked:
    """What a worker has done. ``compacted``: rows of ledgers. ``left``: projects that the last look left pending, and
    why."""

    batches: int = 0
    documents: int = 0
    entries: int = 0
    quarantined: int = 0
    disabled: int = 0
    compacted: int = 0
    left: dict[UUID, str] = field(default_factory=dict)

    def add(self, folded: Folded) -> None:
        self.batches += folded.batches
        self.documents += folded.documents
        self.entries += folded.entries
        self.quarantined += folded.quarantined
        self.disabled += folded.disabled
        if folded.stopped is Stopped.DRAINED:
            self.left.pop(folded.project, None)
        else:
            self.left[folded.project] = folded.failure or folded.stopped.value


@contextmanager
def fold_host(mongo: Mongo) -> Iterator[Host]:
    """A host that folds, with its heartbeat."""
    with registered(mongo, Role.PROJECT_MANAGEMENT, fold_worker=True) as host, beating(host):
        yield host


class FoldWorker:
    """Looks and turns. At most ``FOLD_TURNS_MAX`` projects have a turn at a time."""

    def __init__(self, host: Host, catalogue: AnyCatalogue, stop: threading.Event) -> None:
        self.worked = Worked()
        self._host, self._catalogue, self._stop = host, catalogue, stop
        self._livelocks: defaultdict[UUID, Livelock] = defaultdict(Livelock)

    def run(self, tell: Callable[[str], None]) -> None:
        """Work until ``stop`` is set; the batches at hand are finished. ``tell`` gets a line about every trouble."""
        clock, swept_at, trouble = self._host.mongo.clock, float("-inf"), ""
        ledgers = LedgerKeeper(self._host, self._catalogue)
        with ledgers.keeping(tell), ThreadPoolExecutor(FOLD_TURNS_MAX, thread_name_prefix="statlib-fold") as pool:
            while not self._stop.is_set():
                sweeps = clock.monotonic() - swept_at >= FOLD_SWEEP_S
                trouble_now = ""
                try:
                    projects = self.look(sweeps=sweeps, min_age_s=FOLD_MIN_AGE_S)
                    done = self._turns(pool, projects, FOLD_MIN_AGE_S)
                    trouble_now = next((folded.failure for folded in done if folded.failure), "")
                    swept_at = clock.monotonic() if sweeps else swept_at
                except (PyMongoError, Refusal) as error:
                    trouble_now = str(error)
                if trouble_now and trouble_now != trouble:
                    tell(trouble_now)
                trouble = trouble_now
                self._stop.wait(FOLD_POLL_S)
        self.worked.compacted = ledgers.compacted

    def run_once(self) -> None:
        """Fold everything that is pending, however young. What others hold, or must not be folded, is ``left``."""
        with ThreadPoolExecutor(FOLD_TURNS_MAX, thread_name_prefix="statlib-fold") as pool:
            projects = self.look(sweeps=True, min_age_s=0.0)
            while projects and not self._stop.is_set():
                again = [f.project for f in self._turns(pool, projects, 0.0) if f.stopped in WORTH_REPEATING]
                if again:
                    self._stop.wait(FOLD_POLL_S)
                projects = again

    def look(self, *, sweeps: bool, min_age_s: float) -> list[UUID]:
        """The projects that are due for a turn."""
        mongo, allowlist = self._host.mongo, self._host.allowlist
        if not self._host.writes or not allowlist:
            return []
        found = signal.due(mongo, self._catalogue, allowlist, older_than_s=min_age_s)
        missed = signal.sweep(mongo, self._catalogue, allowlist) if sweeps else []
        return list(dict.fromkeys([*found, *missed]))

    def _turns(self, pool: ThreadPoolExecutor, projects: Sequence[UUID], min_age_s: float) -> list[Folded]:
        done = list(pool.map(lambda project: self._turn(project, min_age_s), projects))
        for folded in done:
            self.worked.add(folded)
        return done

    def _turn(self, project: UUID, min_age_s: float) -> Folded:
        try:
            return fold_project(
                self._host,
                self._catalogue,
                project,
                min_age_s=min_age_s,
                livelock=self._livelocks[project],
                stopping=self._stop.is_set,
            )
        except (PyMongoError, Refusal) as error:  # of this project alone: the others have their turns
            return Folded(project, Stopped.FAILED, failure=f"project {project}: {error}")
