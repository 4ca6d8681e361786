"""What the notebook ``how_the_fold_works`` shows: a small review, its fold by hand, and one counter in three places.

Every sample is of one snapshot: what the row holds, what is pending, what a reader would be served and what the studies
give cannot be of different moments.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Self
from uuid import UUID

from statlib.admin import embedded
from statlib.admin.client import AdminClient
from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Fault
from statlib.kernel.settings import load_settings
from statlib.mongo.connection import Mongo, connected
from statlib.mongo.transactions import snapshot
from statlib.passes.audit import server_time
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.review.families.project_screening import NAME as FAMILY
from statlib.review.loading.registration import register
from statlib.review.loading.simulated import SimulatedReview
from statlib.review.loading.store import store
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.runbook.fragments import Column, Figure, Fragment, KeyValues, Table, Value, stylesheet_fragment
from statlib.runbook.look import quantities as q
from statlib.runbook.look.plots.folding import FoldPoint, fold_over_time
from statlib.runbook.look.plots.shares import Row, parts, shares
from statlib.runbook.refusing import show_refusals_briefly
from statlib.runbook.shell import show
from statlib.statistics.authoritative import PinnedReads
from statlib.statistics.documents import RECEIPT
from statlib.statistics.fold.turn import Folded, fold_project
from statlib.statistics.hosts import Host, Role, registered
from statlib.statistics.pending import OLDEST, Entry, parse_entry, pending_of
from statlib.statistics.reader import authoritative_values, judged, read_moment
from statlib.workers.fold import FoldWorker, fold_host

COUNTER = "Inclusions"
SETTLED_BEFORE = 12  # decisions that are in the row before the fold begins
STREAM_PAUSE_S, SAMPLE_PAUSE_S = 0.08, 0.05
BESIDE_S = 120.0  # longest that a stream takes, and then that its threads are waited for


@dataclass(frozen=True, repr=False)
class Sample(Fragment):
    """``COUNTER`` at one moment. ``reason``: why readers were served a count of the studies instead, else empty."""

    point: FoldPoint
    reason: str

    def html(self) -> str:
        return self._figure().html()

    def text(self) -> str:
        return self._figure().text()

    def _figure(self) -> Figure:
        at = self.point
        served_of = "the studies themselves" if self.reason else "its row and what is pending"
        how = f" ({self.reason})" if self.reason else ""
        rows = [
            Row("In the row", {"stored": at.stored}),
            Row(
                f"Served{how}",
                {"counted": at.served} if self.reason else {"stored": at.stored, "pending": at.served - at.stored},
            ),
            Row("Counted from the studies", {"counted": at.counted}),
        ]
        entries = q.plural(at.pending, "entry", "entries")
        return shares(
            f"sample-{new_token()[:8]}",
            COUNTER,
            rows,
            parts("stored", "counted", "pending"),
            finding=f"{q.number(at.served)} served from {served_of}, with {entries} pending",
            source="one snapshot",
            unit="decisions to include",
        )


@dataclass(frozen=True, repr=False)
class Stream(Fragment):
    """Samples while decisions were saved and folded. ``saved``: how many there were."""

    points: tuple[FoldPoint, ...]
    saved: int

    @property
    def exact(self) -> bool:
        """Whether every reader would have been served what the studies gave at that moment."""
        return all(point.exact for point in self.points)

    def html(self) -> str:
        return self._figure().html()

    def text(self) -> str:
        return self._figure().text()

    def _figure(self) -> Figure:
        source = f"{q.plural(len(self.points), 'snapshot')} during {q.plural(self.saved, 'save')}"
        return fold_over_time(self.points, counter=COUNTER, source=source)


class FoldTour:
    """A review of its own with one application's host and an operator's client. ``close`` leaves it."""

    def __init__(self, host: Host, operator: AdminClient, review: tuple[UUID, list[UUID], list[UUID]]) -> None:
        self.host, self.operator = host, operator
        self.project, self.studies, self.members = review
        self.writer = ScreeningWriter(host, self.project)
        self._opened = ExitStack()
        self._worker: tuple[Host, ExitStack] | None = None
        self._undecided: Iterator[tuple[UUID, UUID]] = product(self.members, self.studies)

    @classmethod
    def begin(cls, *, studies: int = 60) -> Self:
        """Load a simulated review under statistics, and be a host beside it. Refuses as ``registered`` does."""
        show_refusals_briefly()
        loaded = SimulatedReview(studies=studies, name=f"Fold tour {new_token()[:6]}", seed=_seed()).load()
        members = [member.investigator_id for member in loaded.project.memberships]
        with connected(load_settings(), app_name="statlib-load") as mongo:
            store(loaded, mongo, before_studies=lambda project: register(project, mongo, mongo.settings))
        settings = load_settings()  # again: the review is in the allowlist now
        with ExitStack() as opened:
            mongo = opened.enter_context(connected(settings, app_name="statlib-host"))
            host = opened.enter_context(registered(mongo, Role.API))
            operator = opened.enter_context(embedded.boundary(settings, REVIEW))
            tour = cls(host, operator, (loaded.project.id, [study.id for study in loaded.studies], members))
            tour._opened = opened.pop_all()
        show(stylesheet_fragment())
        for _ in range(SETTLED_BEFORE):
            tour.include()
        return tour

    @property
    def mongo(self) -> Mongo:
        return self.host.mongo

    def close(self) -> None:
        self.stop_worker()
        self._opened.close()

    # --- who folds

    def start_worker(self) -> str:
        """A fold worker's host with its sign of life. It folds when it is told to: ``fold``, ``stream``."""
        with ExitStack() as opened:
            mongo = opened.enter_context(connected(self.mongo.settings, app_name="statlib-fold"))
            worker = opened.enter_context(fold_host(mongo))
            self._worker = worker, opened.pop_all()
        return worker.member_id

    def stop_worker(self) -> None:
        if self._worker is not None:
            self._worker[1].close()
            self._worker = None

    def fold(self) -> Folded:
        """One turn, however young the entries are."""
        return fold_project(self._folder, REVIEW, self.project, min_age_s=0.0)

    def standing(self) -> Fragment:
        """How the project's fold stands, by the admin boundary."""
        found = self.operator.fold(self.project)
        return KeyValues(
            (
                ("Fold mode", found.fold_mode),
                ("Index of pending entries", found.index),
                ("Fold worker", "live" if found.worker_live else "none live"),
            )
        )

    # --- what is saved

    def include(self) -> None:
        """The next decision to include, of a member who has not decided on that study."""
        member, study = next(self._undecided)
        self.writer.submit(study, member, Decision.INCLUDE)

    def next_study(self) -> tuple[UUID, UUID]:
        """(study, member) of the next decision."""
        member, study = next(self._undecided)
        return study, member

    # --- what is there

    def pending(self) -> Fragment:
        """Every pending entry of the project, a line for each change that it names."""
        rows = [row for _, entry in self._entries() for row in _changes(entry)]
        return _table(("Operation", "Revision", "What changed", "Of it"), rows, "Pending entries")

    def receipts(self, latest: int = 1) -> Fragment:
        """The receipts that were left last."""
        found = self.mongo.collection(RECEIPT).find({"ProjectId": self.project}).sort("ObservedAtUtc", -1)
        rows: list[tuple[Value, ...]] = [
            (
                _short(one["OperationId"]),
                f"{one['CommittedSourceBeforeRevision']} → {one['CommittedSourceAfterRevision']}",
            )
            for one in found.limit(latest)
        ]
        return _table(("Operation", "Revision"), rows, "Latest receipt")

    def sample(self) -> Sample:
        """``COUNTER`` in its three places, in one snapshot."""
        asked = {FAMILY: ["project"]}
        at = server_time(self.mongo)
        with snapshot(self.mongo) as session:
            reads = PinnedReads(self.mongo, session)
            moment = read_moment(self.host, reads, REVIEW, self.project, asked)
            verdict = judged(self.host, REVIEW, self.project, moment, asked)
            counted = authoritative_values(reads, REVIEW, self.project, moment.context, asked)[FAMILY]["project"]
        row = moment.rows.get((FAMILY, "project"))
        stored = row.values if row else {}
        served = counted if verdict.reason else verdict.value_of(moment, FAMILY, "project")
        why = ", ".join(str(why) for why in (verdict.reason and verdict.reason.name, verdict.detail) if why)
        point = FoldPoint(
            at,
            served=served.get(COUNTER, 0),
            stored=stored.get(COUNTER, 0),
            counted=counted.get(COUNTER, 0),
            pending=moment.fingerprint.entries,
        )
        return Sample(point, why)

    def stream(self, saves: int) -> Stream:
        """Save ``saves`` decisions with the worker folding beside it, and sample until nothing is pending.

        Raises what the saver raised, and Fault where entries are still pending after ``BESIDE_S``."""
        points: list[FoldPoint] = []
        with self._folding(), self._saving(saves) as saved:
            pause, until = threading.Event(), time.monotonic() + BESIDE_S
            while not saved.is_set() or points[-1].pending:
                points.append(self.sample().point)
                pause.wait(SAMPLE_PAUSE_S)
                if time.monotonic() > until:
                    raise Fault("the stream was not folded in time", remedy="Call fold() to see what holds it up.")
        return Stream(tuple(points), saves)

    @property
    def _folder(self) -> Host:
        return self._worker[0] if self._worker else self.host

    @contextmanager
    def _folding(self) -> Iterator[None]:
        stop = threading.Event()
        worker = FoldWorker(self._folder, REVIEW, stop)
        thread = threading.Thread(target=worker.run, args=(_unheard,), name="fold-tour-worker")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(BESIDE_S)

    @contextmanager
    def _saving(self, saves: int) -> Iterator[threading.Event]:
        done, failed, pause = threading.Event(), [], threading.Event()

        def save() -> None:
            try:
                for _ in range(saves):
                    self.include()
                    pause.wait(STREAM_PAUSE_S)
            except BaseException as error:
                failed.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=save, name="fold-tour-saver")
        thread.start()
        try:
            yield done
        finally:
            thread.join(BESIDE_S)
        if failed:
            raise failed[0]

    def _entries(self) -> Iterator[tuple[UUID, Entry]]:
        for study in self.mongo.collection(STUDIES).find({"ProjectId": self.project, OLDEST: {"$exists": True}}):
            for raw in pending_of(study).entries:
                yield study["_id"], parse_entry(raw)


def _changes(entry: Entry) -> Iterator[tuple[Value, ...]]:
    """A line for each transition, with the names of what it tells: images before and after, never moves."""
    moved = f"{entry.source_revision_before} → {entry.source_revision_after}"
    for change in entry.transitions:
        yield _short(entry.operation_id), moved, change.kind, ", ".join(change.payload)
    for intent in entry.invalidations:
        yield _short(entry.operation_id), moved, "to be staled", f"{intent.family} {intent.scope or '(all of it)'}"


def _short(operation: str) -> str:
    return operation if len(operation) <= 20 else f"{operation[:19]}…"


def _table(names: tuple[str, ...], rows: list[tuple[Value, ...]], caption: str) -> Fragment:
    return Table(caption, tuple(Column(name) for name in names), tuple(rows))


def _seed() -> int:
    return int.from_bytes(new_token().encode()[:3], "big")


def _unheard(trouble: str) -> None:
    """The worker's troubles: samples show what came of them."""
    del trouble
