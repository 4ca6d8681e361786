"""What the fold keeps up with: how fast it drains, beside how fast saves come; and how far rows lag behind saves.

drain   as many studies with an entry each as were saved, folded by one process with nothing beside it
lag     saves at a share of the source-only rate, beside a worker of its own process: from an entry's making to its
        receipt, by the server's clock
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID, uuid4

from pydantic import SecretStr

from statlib.bench.folding import fold_from_now, fold_worker, wait_until_folded
from statlib.bench.language import Cell, Report, environment, quantiles
from statlib.kernel.settings import ClockSettings, MongoSettings, Settings, StatisticsSettings
from statlib.local.replica_set import ReplicaSet, replica_set
from statlib.mongo.connection import Mongo, connected
from statlib.mongo.probe import probe
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, STUDIES, Project, Study
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics import storage
from statlib.statistics.backfill import backfill
from statlib.statistics.documents import RECEIPT, Mode, Receipt
from statlib.statistics.fold.turn import Stopped, fold_project
from statlib.statistics.hosts import Host, Role, registered
from statlib.statistics.modes import create_under_statistics
from statlib.statistics.parity import compare

FAMILY = "ProjectScreening"
LOAD = 0.7


@dataclass(frozen=True, slots=True)
class Plan:
    """``saves`` are of one repeat and arm, each on a study of its own."""

    saves: int = 2_000
    repeats: int = 5


QUICK = Plan(saves=300, repeats=1)


@dataclass(frozen=True)
class _Site:
    host: Host
    settings: Settings
    folder: Path
    project: UUID
    studies: tuple[UUID, ...]

    @property
    def mongo(self) -> Mongo:
        return self.host.mongo


@dataclass
class _Repeat:
    source_per_s: float
    fold_save_per_s: float
    drained_per_s: float
    lag_ms: list[float]


def run(plan: Plan, *, short_form: bool, settings: Settings, progress: Callable[[str], None]) -> Report:
    """Start a server of its own, measure, compare every count with the source at the end. Raises AssertionError if
    one is wrong: a benchmark of a wrong result has no figures."""
    repeats: list[_Repeat] = []
    with ExitStack() as stack:
        server = stack.enter_context(replica_set(settings=settings))
        source = stack.enter_context(_site(server, plan, under_statistics=False))
        folding = stack.enter_context(_site(server, plan, under_statistics=True))
        with fold_worker(folding.settings, folding.folder):
            fold_from_now(folding.host, folding.project)
        backfill(folding.host, REVIEW, folding.project, FAMILY)
        facts = f"MongoDB {probe(source.mongo).version}, one node"
        for number in range(plan.repeats):
            progress(f"repeat {number + 1} of {plan.repeats}")
            repeats.append(_measure(source, folding))
        (found,) = compare(folding.host, REVIEW, folding.project, [FAMILY])
        if not found.exact:
            raise AssertionError(f"the counters are wrong after the benchmark: {found.differences}")
    return Report(
        "fold", short_form, environment(facts), [_cell(n, r) for n, r in enumerate(repeats, 1)], _figures(repeats)
    )


def _measure(source: _Site, folding: _Site) -> _Repeat:
    saves = len(source.studies)
    source_s = _save_all(source)
    fold_s = _save_all(folding)
    started = time.perf_counter()
    while (folded := fold_project(folding.host, REVIEW, folding.project, min_age_s=0)).stopped is Stopped.MORE:
        pass
    drained_s = time.perf_counter() - started
    if folded.stopped is not Stopped.DRAINED:
        raise AssertionError(f"the fold stopped: {folded.stopped} {folded.failure}")
    since = folding.mongo.collection(RECEIPT).count_documents({"ProjectId": folding.project})
    with fold_worker(folding.settings, folding.folder):
        _save_all(folding, every_s=source_s / saves / LOAD)
        wait_until_folded(folding.mongo, folding.project)
    return _Repeat(saves / source_s, saves / fold_s, saves / drained_s, _lags(folding, since))


def _save_all(site: _Site, every_s: float = 0.0) -> float:
    """One newcomer's decisions, one after the other. ``every_s``: when each is due after the one before it."""
    writer, investigator = ScreeningWriter(site.host, site.project), uuid4()
    begun = time.perf_counter()
    for at, study in enumerate(site.studies):
        if every_s:
            time.sleep(max(0.0, begun + at * every_s - time.perf_counter()))
        writer.submit(study, investigator, Decision.INCLUDE)
    return time.perf_counter() - begun


def _lags(site: _Site, after: int) -> list[float]:
    """Of the receipts that came after so many: ms from the making of the entry to its receipt."""
    found = site.mongo.collection(RECEIPT).find({"ProjectId": site.project}).sort("ObservedAtUtc", 1).skip(after)
    receipts = [Receipt.from_bson(receipt) for receipt in found]
    return [(one.observed_at_utc - one.created_at_utc).total_seconds() * 1000 for one in receipts]


@contextmanager
def _site(server: ReplicaSet, plan: Plan, *, under_statistics: bool) -> Iterator[_Site]:
    project = Project(id=uuid4(), name="bench fold")
    chosen = StatisticsSettings()
    if under_statistics:
        chosen = StatisticsSettings(
            allowlist=frozenset({project.id}), writes=True, families=frozenset({FAMILY}), fold=True
        )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="statlib-bench-")))
        settings = Settings(
            mongo=MongoSettings(uri=SecretStr(server.uri), database=f"bench_{under_statistics}".lower()),
            statistics=chosen,
            clock=ClockSettings(offset_file=folder / "clock_offset_ms"),
        )
        host = stack.enter_context(registered(stack.enter_context(connected(settings)), Role.API))
        storage.initialise(host.mongo, REVIEW, fleet=Mode.ENABLED)
        host.mongo.collection(PROJECTS).insert_one(project.to_bson())
        if under_statistics:
            create_under_statistics(host.mongo, REVIEW, project.id)
        studies = tuple(uuid4() for _ in range(plan.saves))
        host.mongo.collection(STUDIES).insert_many(
            [Study(id=study, project_id=project.id, title="bench").to_bson() for study in studies]
        )
        yield _Site(host, settings, folder, project.id, studies)


def _cell(number: int, of: _Repeat) -> Cell:
    lag = quantiles(of.lag_ms)
    return {
        "repeat": number,
        "source_saves_per_s": of.source_per_s,
        "fold_saves_per_s": of.fold_save_per_s,
        "folded_per_s": of.drained_per_s,
        "lag_p50_ms": lag.p50,
        "lag_p95_ms": lag.p95,
    }


def _figures(repeats: list[_Repeat]) -> dict[str, float]:
    return {
        "folded_to_source_saves": statistics.median(one.drained_per_s / one.source_per_s for one in repeats),
        "lag_p95_ms": statistics.median(quantiles(one.lag_ms).p95 for one in repeats),
    }
