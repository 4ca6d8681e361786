"""What statistics cost a save: the same submissions in every arm, closed loop, paired within one run.

Each cell is one arm under one load: so many reviewers at once, all on one study or each on studies of their own.
Arms take turns within a repeat, so that a slow minute of the machine hits all of them.

    source-only      statistics do not know the project
    transactional    all reviewers in one process: its saves of a project queue for their transaction
    colliding        each reviewer in a host of its own, as in processes of their own: saves collide in the database
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID, uuid4

from pydantic import SecretStr

from statlib.bench.language import Cell, Report, environment, quantiles
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import MongoSettings, Settings, StatisticsSettings
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


class ArmName(StrEnum):
    SOURCE_ONLY = "source-only"
    TRANSACTIONAL = "transactional"
    COLLIDING = "colliding"


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
        for arm in (ArmName.TRANSACTIONAL, ArmName.COLLIDING):
            _require_exact(sites[arm])
    return measured, commands, facts


@dataclass(frozen=True)
class _Site:
    """One arm's database, project and hosts: one shared, or as many as reviewers."""

    mongo: Mongo
    project: UUID
    studies: tuple[UUID, ...]
    hosts: tuple[Host, ...]


@contextmanager
def _site(server: ReplicaSet, arm: ArmName, plan: Plan) -> Iterator[_Site]:
    project = Project(id=uuid4(), name=f"bench {arm}")
    chosen = StatisticsSettings()
    if arm is not ArmName.SOURCE_ONLY:
        chosen = StatisticsSettings(allowlist=frozenset({project.id}), writes=True, families=frozenset({FAMILY}))
    settings = Settings(
        mongo=MongoSettings(uri=SecretStr(server.uri), database=f"bench_{arm.name.lower()}"), statistics=chosen
    )
    with ExitStack() as stack:
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
        yield _Site(mongo, project.id, studies, hosts)


def _load(site: _Site, plan: Plan, reviewers: int, *, same_study: bool, of: _Measured) -> None:
    """All reviewers start at once; each alternates its decisions, so that every submission moves a counter."""
    barrier, lock = threading.Barrier(reviewers + 1), threading.Lock()

    def review(number: int) -> None:
        writer = ScreeningWriter(site.hosts[number % len(site.hosts)], site.project)
        investigator = uuid4()
        own = site.studies[:1] if same_study else site.studies[1 + number :: reviewers]
        barrier.wait()
        for at in range(plan.submissions):
            decision = Decision.INCLUDE if at // len(own) % 2 == 0 else Decision.EXCLUDE
            started = time.perf_counter()
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
    }


def _figures(measured: dict[_Key, _Measured], commands: dict[ArmName, float]) -> dict[str, float]:
    """Ratios are medians over the repeats of an arm's p95 against source-only in the same repeat; worst cell."""
    figures: dict[str, float] = {
        "commands_per_save_source": commands[ArmName.SOURCE_ONLY],
        "commands_per_save_transactional": commands[ArmName.TRANSACTIONAL],
    }
    for arm in (ArmName.TRANSACTIONAL, ArmName.COLLIDING):
        paired = [
            list(zip(of.p95_ms, measured[_Key(ArmName.SOURCE_ONLY, key.reviewers, key.same_study)].p95_ms, strict=True))
            for key, of in measured.items()
            if key.arm is arm
        ]
        figures[f"{arm.value}_p95_ratio_max"] = max(statistics.median(a / b for a, b in pairs) for pairs in paired)
        figures[f"{arm.value}_p95_added_ms_max"] = max(statistics.median(a - b for a, b in pairs) for pairs in paired)
        figures[f"{arm.value}_exhausted"] = float(
            sum(of.answers["AttemptsExhausted"] for key, of in measured.items() if key.arm is arm)
        )
    return figures
