"""What rebuilding costs: each family against the bare aggregation that feeds it, and all together against the sum.

Within a repeat each family's aggregation and its rebuild follow each other, and the rebuild of all families comes last,
so that every ratio is of neighbours in time. Every rebuild is forced: it publishes every scope.

rebuild_to_bare_max    the worst family's rebuild over its bare aggregation; of each, the median of paired ratios
together_to_sum        all families at once over the sum of their single rebuilds in the same repeat, median
published_scopes       of all families
peak_resident_mb       the most that this process held
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from statlib.bench.language import Cell, Report, environment
from statlib.bench.projects import Shape
from statlib.bench.site import Site, peak_resident_mb, server_facts, server_of_its_own, site
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.mongo.transactions import snapshot
from statlib.review.catalogue import REVIEW
from statlib.statistics.authoritative import PinnedReads
from statlib.statistics.backfill import backfill_together
from statlib.statistics.catalogue import Document
from statlib.statistics.documents import TrackingMode
from statlib.statistics.parity import compare
from statlib.statistics.rebuild import rebuild, rebuild_together

TOGETHER = "all families"


@dataclass(frozen=True, slots=True)
class Plan:
    studies: int = 100_000
    repeats: int = 5
    members: int = 20


QUICK = Plan(studies=5_000, repeats=2)


@dataclass
class _Measured:
    """Of one family, one value per repeat; ``bare_ms`` stays empty for all together."""

    bare_ms: list[float] = field(default_factory=list)
    rebuild_ms: list[float] = field(default_factory=list)
    scopes: int = 0
    commands: int = 0


def run(plan: Plan, *, short_form: bool, settings: Settings, progress: Callable[[str], None]) -> Report:
    """Start a server of its own and measure. Raises AssertionError if what was published is wrong at the end."""
    measured = {name: _Measured() for name in (*REVIEW.families, TOGETHER)}
    with server_of_its_own(settings) as server:
        progress(f"making a project of {plan.studies:,} studies")
        with site(server, Shape(plan.studies, members=plan.members)) as one:
            facts = server_facts(one)
            backfill_together(one.host, REVIEW, one.project, list(REVIEW.families))
            for number in range(plan.repeats):
                progress(f"repeat {number + 1} of {plan.repeats}")
                _repeat(one, measured)
            _require_exact(one)
    cells = [_cell(name, of) for name, of in measured.items()]
    return Report("rebuild", short_form, environment(facts), cells, _figures(measured))


def _repeat(one: Site, measured: dict[str, _Measured]) -> None:
    for family in REVIEW.families:
        of = measured[family]
        of.bare_ms.append(_bare_ms(one, family))
        with counting(one.mongo.client) as sent:
            started = time.perf_counter()
            done = rebuild(one.host, REVIEW, one.project, family, force=True)
            of.rebuild_ms.append((time.perf_counter() - started) * 1000)
        of.scopes, of.commands = len(done.published), sent.total
    of = measured[TOGETHER]
    with counting(one.mongo.client) as sent:
        started = time.perf_counter()
        together = rebuild_together(one.host, REVIEW, one.project, dict.fromkeys(REVIEW.families), force=True)
        of.rebuild_ms.append((time.perf_counter() - started) * 1000)
    if together.lost:
        raise AssertionError(f"nobody saves here, and yet races were lost: {together.lost}")
    of.scopes = sum(len(done.published) for done in together.rebuilt.values())
    of.commands = sent.total


def _bare_ms(one: Site, family: str) -> float:
    """The family's own aggregation, its answer fetched, and nothing else."""
    with snapshot(one.mongo) as session:
        project: Document | None = one.mongo.collection(REVIEW.context_collection).find_one({"_id": one.project})
        if project is None:
            raise AssertionError("the project is gone")
        context = REVIEW.domain.context(project, TrackingMode.TRACKED)
        reads = PinnedReads(one.mongo, session)
        started = time.perf_counter()
        reads.aggregate(REVIEW.source_collection, REVIEW.family(family).aggregation(one.project, context))
        return (time.perf_counter() - started) * 1000


def _require_exact(one: Site) -> None:
    wrong = [found.family for found in compare(one.host, REVIEW, one.project, REVIEW.families) if not found.exact]
    if wrong:
        raise AssertionError(f"wrong after the benchmark: {', '.join(wrong)}")


def _cell(name: str, of: _Measured) -> Cell:
    return {
        "family": name,
        "scopes": of.scopes,
        "bare_ms": statistics.median(of.bare_ms) if of.bare_ms else 0.0,
        "rebuild_ms": statistics.median(of.rebuild_ms),
        "rebuild_to_bare": _rebuild_to_bare(of) if of.bare_ms else 0.0,
        "commands": of.commands,
    }


def _rebuild_to_bare(of: _Measured) -> float:
    return statistics.median(whole / bare for whole, bare in zip(of.rebuild_ms, of.bare_ms, strict=True))


def _figures(measured: dict[str, _Measured]) -> dict[str, float]:
    singles = [of for name, of in measured.items() if name != TOGETHER]
    sums = [sum(of.rebuild_ms[repeat] for of in singles) for repeat in range(len(singles[0].rebuild_ms))]
    together = measured[TOGETHER].rebuild_ms
    return {
        "rebuild_to_bare_max": max(_rebuild_to_bare(of) for of in singles),
        "together_to_sum": statistics.median(one / total for one, total in zip(together, sums, strict=True)),
        "published_scopes": float(measured[TOGETHER].scopes),
        "peak_resident_mb": peak_resident_mb(),
    }
