"""What statistics cost a save: the same submissions in every arm, closed loop, paired within one run.

Each cell is one arm under one load: so many reviewers at once, all on one study or each on studies of their own.
Arms take turns within a repeat, so that a slow minute of the machine hits all of them.

    source-only      statistics do not know the project
    transactional    all reviewers in one process: its saves of a project queue for their transaction
    colliding        each reviewer in a host of its own, as in processes of their own: saves collide in the database
    fold             all reviewers in one process, saving into the study alone; a worker of its own process folds

After the closed loop, source-only and fold are measured in an open loop too: reviewers save at fixed times, together
at a share of what source-only reached, and a save that begins late counts as late from the time it was due.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID, uuid4

from pydantic import SecretStr

from statlib.bench.folding import fold_from_now, fold_worker, wait_until_folded
from statlib.bench.language import Cell, Report, environment, quantiles
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import ClockSettings, MongoSettings, Settings, StatisticsSettings
from statlib.local.replica_set import ReplicaSet, replica_set
from statlib.mongo.command_counter import counting
from statlib.mongo.connection import Mongo, connected
from statlib.mongo.probe import probe
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, STUDIES, Project, Study
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics import storage
from statlib.statistics.backfill import backfill
from statlib.statistics.documents import Mode
from statlib.statistics.hosts import Host, Role, registered
from statlib.statistics.modes import create_under_statistics
from statlib.statistics.outcomes import Cause
from statlib.statistics.parity import compare

FAMILY = "ProjectScreening"
COUNTED_SAVES = 20
GATE_RATIO, GATE_ADDED_MS = 1.1, 2.0  # fold 9, acceptance: within either of them


class ArmName(StrEnum):
    SOURCE_ONLY = "source-only"
    TRANSACTIONAL = "transactional"
    COLLIDING = "colliding"
    FOLD = "fold"


CLOSED, OPEN = "closed", "open"
OPEN_LOAD = 0.7  # of the source-only arm's rate in the same cell
OPEN_ARMS = (ArmName.SOURCE_ONLY, ArmName.FOLD)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. ``submissions`` are per reviewer, cell and repeat."""

    reviewers: tuple[int, ...] = (1, 2, 5, 10)
    repeats: int = 5
    submissions: int = 60
    studies: int = 1_000


QUICK = Plan(reviewers=(1, 5), repeats=1, submissions=25, studies=200)


@dataclass
class _Measured:
    """Of one cell, over all repeats: p95 of each repeat, all latencies, and what became of the submissions."""

    latencies_ms: list[float] = field(default_factory=list)
    p95_ms: list[float] = field(default_factory=list)
    seconds: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)
    causes: Counter[Cause] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Key:
    arm: ArmName
    reviewers: int
    same_study: bool
    loop: str = CLOSED


def run(plan: Plan, *, short_form: bool, settings: Settings, progress: Callable[[str], None]) -> Report:
    """Start a server of its own, measure, compare every count with the source at the end. Raises AssertionError if
    one is wrong: a benchmark of a wrong result has no figures."""
    with replica_set(settings=settings) as server:
        measured, commands, facts = _measure(plan, server, progress)
    cells = [_cell(key, of) for key, of in measured.items()]
    return Report("write", short_form, environment(facts), cells, _figures(measured, commands))


def _measure(
    plan: Plan, server: ReplicaSet, progress: Callable[[str], None]
) -> tuple[dict[_Key, _Measured], dict[ArmName, float], str]:
    measured: dict[_Key, _Measured] = {}
    with ExitStack() as stack:
        sites = {arm: stack.enter_context(_site(server, arm, plan)) for arm in ArmName}
        facts = f"MongoDB {probe(sites[ArmName.SOURCE_ONLY].mongo).version}, one node"
        commands = {arm: _commands_per_save(site) for arm, site in sites.items()}
        for repeat in range(plan.repeats):
            for reviewers in plan.reviewers:
                for same_study in (False, True):
                    progress(f"repeat {repeat + 1} of {plan.repeats}: {reviewers} reviewers, same study {same_study}")
                    for arm, site in sites.items():
                        of = measured.setdefault(_Key(arm, reviewers, same_study), _Measured())
                        _load(site, plan, reviewers, same_study=same_study, of=of)
                    source = measured[_Key(ArmName.SOURCE_ONLY, reviewers, same_study)]
                    due_every_s = reviewers / (OPEN_LOAD * source.answers["saved"] / source.seconds)
                    for arm in OPEN_ARMS:
                        of = measured.setdefault(_Key(arm, reviewers, same_study, OPEN), _Measured())
                        _load(sites[arm], plan, reviewers, same_study=same_study, of=of, due_every_s=due_every_s)
        for arm, site in sites.items():
            if arm is not ArmName.SOURCE_ONLY:
                _require_exact(site)
    return measured, commands, facts


@dataclass(frozen=True)
class _Site:
    """One arm's database, project and hosts: one shared, or as many as reviewers."""

    mongo: Mongo
    project: UUID
    studies: tuple[UUID, ...]
    hosts: tuple[Host, ...]
    folds: bool


@contextmanager
def _site(server: ReplicaSet, arm: ArmName, plan: Plan) -> Iterator[_Site]:
    project = Project(id=uuid4(), name=f"bench {arm}")
    folds = arm is ArmName.FOLD
    chosen = StatisticsSettings()
    if arm is not ArmName.SOURCE_ONLY:
        chosen = StatisticsSettings(
            allowlist=frozenset({project.id}), writes=True, families=frozenset({FAMILY}), fold=folds
        )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="statlib-bench-")))
        settings = Settings(
            mongo=MongoSettings(uri=SecretStr(server.uri), database=f"bench_{arm.name.lower()}"),
            statistics=chosen,
            clock=ClockSettings(offset_file=folder / "clock_offset_ms"),
        )
        count = max(plan.reviewers) if arm is ArmName.COLLIDING else 1
        hosts = tuple(
            stack.enter_context(registered(stack.enter_context(connected(settings)), Role.API)) for _ in range(count)
        )
        mongo = hosts[0].mongo
        storage.initialise(mongo, REVIEW, fleet=Mode.ENABLED)
        mongo.collection(PROJECTS).insert_one(project.to_bson())
        if arm is not ArmName.SOURCE_ONLY:
            create_under_statistics(mongo, REVIEW, project.id)
        studies = tuple(uuid4() for _ in range(plan.studies))
        mongo.collection(STUDIES).insert_many(
            [Study(id=study, project_id=project.id, title="bench").to_bson() for study in studies]
        )
        if arm is not ArmName.SOURCE_ONLY:
            backfill(hosts[0], REVIEW, project.id, FAMILY)
        if folds:
            stack.enter_context(fold_worker(settings, folder))
            fold_from_now(hosts[0], project.id)
            backfill(hosts[0], REVIEW, project.id, FAMILY)
        yield _Site(mongo, project.id, studies, hosts, folds)


def _load(
    site: _Site, plan: Plan, reviewers: int, *, same_study: bool, of: _Measured, due_every_s: float = 0.0
) -> None:
    """All reviewers start at once; each alternates its decisions, so that every submission moves a counter.

    ``due_every_s``: how far apart one reviewer's saves are due; 0 for each after the one before it.
    """
    barrier, lock = threading.Barrier(reviewers + 1), threading.Lock()

    def review(number: int) -> None:
        writer = ScreeningWriter(site.hosts[number % len(site.hosts)], site.project)
        investigator = uuid4()
        own = site.studies[:1] if same_study else site.studies[1 + number :: reviewers]
        barrier.wait()
        begun = time.perf_counter() + due_every_s * number / reviewers
        for at in range(plan.submissions):
            decision = Decision.INCLUDE if at // len(own) % 2 == 0 else Decision.EXCLUDE
            started = time.perf_counter()
            if due_every_s:
                due = begun + at * due_every_s
                time.sleep(max(0.0, due - started))
                started = due
            answer, causes = _submit(writer, own[at % len(own)], investigator, decision)
            took_ms = (time.perf_counter() - started) * 1000
            with lock:
                mine.append(took_ms)
                of.answers[answer] += 1
                of.causes.update(causes)

    mine: list[float] = []
    threads = [threading.Thread(target=review, args=(number,)) for number in range(reviewers)]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    of.seconds += time.perf_counter() - started
    of.latencies_ms += mine
    of.p95_ms.append(quantiles(mine).p95)
    if site.folds:
        wait_until_folded(site.mongo, site.project)


def _submit(
    writer: ScreeningWriter, study: UUID, investigator: UUID, decision: Decision
) -> tuple[str, Sequence[Cause]]:
    try:
        return "saved", writer.submit(study, investigator, decision).failed_attempts
    except Refusal as refusal:
        return refusal.reason.name, [Cause(cause) for cause in refusal.state.get("failedAttempts", [])]


def _commands_per_save(site: _Site) -> float:
    """Of an uncontended first decision: what one save sends."""
    writer, study = ScreeningWriter(site.hosts[0], site.project), site.studies[0]
    with counting(site.hosts[0].mongo.client) as sent:
        for _ in range(COUNTED_SAVES):
            writer.submit(study, uuid4(), Decision.EXCLUDE)
    return sent.total / COUNTED_SAVES


def _require_exact(site: _Site) -> None:
    backfill(site.hosts[0], REVIEW, site.project, FAMILY)
    (found,) = compare(site.hosts[0], REVIEW, site.project, [FAMILY])
    if not found.exact:
        raise AssertionError(f"the counters are wrong after the benchmark: {found.differences}")


def _cell(key: _Key, of: _Measured) -> Cell:
    at = quantiles(of.latencies_ms)
    return {
        "arm": key.arm.value,
        "loop": key.loop,
        "study": "same" if key.same_study else "different",
        "reviewers": key.reviewers,
        "submissions": len(of.latencies_ms),
        "p50_ms": at.p50,
        "p95_ms": statistics.median(of.p95_ms),
        "p99_ms": at.p99,
        "saved_per_s": of.answers["saved"] / of.seconds,
        "saved": of.answers["saved"],
        "exhausted": of.answers["AttemptsExhausted"],
        "stale": of.answers["VersionStale"],
        "source_conflicts": of.causes[Cause.SOURCE],
        "statistics_conflicts": of.causes[Cause.STATISTICS],
        "fold_conflicts": of.causes[Cause.FOLD],
    }


def _figures(measured: dict[_Key, _Measured], commands: dict[ArmName, float]) -> dict[str, float]:
    """Ratios are medians over the repeats of an arm's p95 against source-only in the same repeat; worst cell."""
    figures: dict[str, float] = {
        "commands_per_save_source": commands[ArmName.SOURCE_ONLY],
        "commands_per_save_transactional": commands[ArmName.TRANSACTIONAL],
        "commands_per_save_fold": commands[ArmName.FOLD],
    }
    compared = [(arm, CLOSED) for arm in ArmName if arm is not ArmName.SOURCE_ONLY] + [(ArmName.FOLD, OPEN)]
    for arm, loop in compared:
        cells = {key: of for key, of in measured.items() if (key.arm, key.loop) == (arm, loop)}
        paired = [
            list(zip(of.p95_ms, measured[replace(key, arm=ArmName.SOURCE_ONLY)].p95_ms, strict=True))
            for key, of in cells.items()
        ]
        name = arm.value if loop == CLOSED else f"{arm.value}_{loop}"
        figures[f"{name}_p95_ratio_max"] = max(statistics.median(a / b for a, b in pairs) for pairs in paired)
        figures[f"{name}_p95_added_ms_max"] = max(statistics.median(a - b for a, b in pairs) for pairs in paired)
        figures[f"{name}_exhausted"] = float(sum(of.answers["AttemptsExhausted"] for of in cells.values()))
    figures["fold_gate_failed_cells"] = float(_cells_over_the_gate(measured))
    return figures


def _cells_over_the_gate(measured: dict[_Key, _Measured]) -> int:
    """Cells whose fold arm is more than a tenth and more than two milliseconds over source-only at p95."""
    over = 0
    for key, of in measured.items():
        if key.arm is ArmName.FOLD:
            pairs = list(zip(of.p95_ms, measured[replace(key, arm=ArmName.SOURCE_ONLY)].p95_ms, strict=True))
            over += statistics.median(a / b for a, b in pairs) > GATE_RATIO and (
                statistics.median(a - b for a, b in pairs) > GATE_ADDED_MS
            )
    return over
