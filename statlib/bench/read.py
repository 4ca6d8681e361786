"""What a page costs served from statistics and calculated from the source, by size of the project and by family.

Served and calculated reads take turns through the same reader, so that a slow minute of the machine hits both.
Calculated ones go through a catalogue of another version, whose rows none are: the reader then falls back, as it does
for whatever reason. Each size also says what a save costs.

served_to_calculated_{size}   p95 of the calculated bundle of all families over p95 of the served one
read_{large}_to_{small}       medians of the served bundle of all families; flat is 1
save_{large}_to_{small}       medians of a decision saved in the transactional arm
pending_{studies}_to_none     p95 of the served bundle of all families with so many studies pending, over none
peak_resident_mb              the most that this process held
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

from statlib.bench.folding import fold_from_now, fold_worker
from statlib.bench.language import Cell, Report, environment, quantiles
from statlib.bench.projects import Shape
from statlib.bench.site import Site, peak_resident_mb, server_facts, server_of_its_own, site
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, STUDIES
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics.backfill import backfill_together
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.fold.turn import Stopped, fold_project
from statlib.statistics.parity import compare
from statlib.statistics.pending import OLDEST
from statlib.statistics.reader import ALL, Source, read_bundle

ALL_FAMILIES = "all families"
ANOTHER_VERSION = replace(REVIEW, version=REVIEW.version + 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """``rounds`` of one calculated read and ``served_per_round`` served ones, per size and bundle; ``saves`` per
    size; ``pending`` studies of the largest, none first."""

    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    rounds: int = 9
    served_per_round: int = 20
    saves: int = 60
    members: int = 20
    pending: tuple[int, ...] = (0, 32, 128)


QUICK = Plan(sizes=(500, 5_000), rounds=3, served_per_round=10, saves=20)


@dataclass
class _Measured:
    """Of one bundle: ms of each read, and what one read sends."""

    served_ms: list[float] = field(default_factory=list)
    calculated_ms: list[float] = field(default_factory=list)
    scopes: int = 0
    served_commands: int = 0
    calculated_commands: int = 0


def run(plan: Plan, *, short_form: bool, settings: Settings, progress: Callable[[str], None]) -> Report:
    """Start a server of its own and measure. Raises AssertionError if a read came from elsewhere than it should, or if
    served and calculated values differ: a benchmark of a wrong result has no figures."""
    measured: dict[tuple[int, str], _Measured] = {}
    saves_ms: dict[int, list[float]] = {}
    with ExitStack() as stack:
        server = stack.enter_context(server_of_its_own(settings))
        sites: list[Site] = []
        for size in plan.sizes:
            progress(f"making a project of {size:,} studies")
            sites.append(stack.enter_context(site(server, Shape(size, members=plan.members))))
            backfill_together(sites[-1].host, REVIEW, sites[-1].project, list(REVIEW.families))
        facts = server_facts(sites[0])
        bundles = {ALL_FAMILIES: tuple(REVIEW.families), **{family: (family,) for family in REVIEW.families}}
        for number in range(plan.rounds):
            for name, families in bundles.items():
                progress(f"round {number + 1} of {plan.rounds}: {name}")
                for one in sites:
                    _round(one, families, plan.served_per_round, measured.setdefault((one.studies, name), _Measured()))
        for one in sites:
            progress(f"saving in {one.studies:,} studies")
            saves_ms[one.studies] = _saves(one, plan.saves)
            _require_exact(one)
        pending_ms = _with_pending(sites[-1], plan, progress)
    cells = [_cell(size, name, of) for (size, name), of in measured.items()]
    return Report("read", short_form, environment(facts), cells, _figures(plan, measured, saves_ms, pending_ms))


def _with_pending(one: Site, plan: Plan, progress: Callable[[str], None]) -> dict[int, list[list[float]]]:
    """Per number of studies with an entry each, a list per round of what served reads of all families took."""
    with fold_worker(one.settings, one.folder):
        fold_from_now(one.host, one.project)
    backfill_together(one.host, REVIEW, one.project, list(REVIEW.families))
    took_ms: dict[int, list[list[float]]] = {number: [] for number in plan.pending}
    for number in range(plan.rounds):
        progress(f"round {number + 1} of {plan.rounds}: all families, with pending studies")
        unscreened = _unscreened(one, max(plan.pending))
        for studies, rounds in took_ms.items():
            _leave_pending(one, unscreened, studies)
            reads = [
                _read(one, REVIEW, list(REVIEW.families), Source.MATERIALISED) for _ in range(plan.served_per_round)
            ]
            rounds.append([took for took, _ in reads])
        while fold_project(one.host, REVIEW, one.project, min_age_s=0).stopped is Stopped.MORE:
            pass
    _require_exact(one)
    return took_ms


def _unscreened(one: Site, count: int) -> list[UUID]:
    wanted = {"ProjectId": one.project, "Screenings": []}
    return [study["_id"] for study in one.mongo.collection(STUDIES).find(wanted, {"_id": 1}).limit(count)]


def _leave_pending(one: Site, studies: list[UUID], count: int) -> None:
    """A first decision of a member on each of the first ``count`` that has nothing pending yet."""
    project = one.mongo.collection(PROJECTS).find_one({"_id": one.project}, {"Memberships": 1}) or {}
    member = project["Memberships"][0]["InvestigatorId"]
    writer = ScreeningWriter(one.host, one.project)
    done = one.mongo.collection(STUDIES).count_documents({"_id": {"$in": studies}, OLDEST: {"$exists": True}})
    for study in studies[done:count]:
        writer.submit(study, member, Decision.EXCLUDE)


def _round(one: Site, families: Sequence[str], served: int, into: _Measured) -> None:
    with counting(one.mongo.client) as sent:
        took_ms, calculated = _read(one, ANOTHER_VERSION, families, Source.AUTHORITATIVE)
    into.calculated_ms.append(took_ms)
    into.calculated_commands = sent.total
    with counting(one.mongo.client) as sent:
        _, values = _read(one, REVIEW, families, Source.MATERIALISED)
    into.served_commands = sent.total
    if values != calculated:
        raise AssertionError(f"served and calculated values of {families} differ")
    into.scopes = sum(len(scopes) for scopes in values.values())
    into.served_ms += [_read(one, REVIEW, families, Source.MATERIALISED)[0] for _ in range(served)]


def _read(
    one: Site, catalogue: AnyCatalogue, families: Sequence[str], expected: Source
) -> tuple[float, dict[str, dict[str, dict[str, int]]]]:
    started = time.perf_counter()
    bundle = read_bundle(one.host, catalogue, one.project, [(family, ALL) for family in families])
    took_ms = (time.perf_counter() - started) * 1000
    if bundle.source is not expected:
        raise AssertionError(f"{families} came {bundle.source}, because of {bundle.reason}")
    return took_ms, {f: {scope: dict(of) for scope, of in scopes.items()} for f, scopes in bundle.values.items()}


def _saves(one: Site, count: int) -> list[float]:
    """First decisions of one newcomer, each on a study of its own."""
    writer, investigator = ScreeningWriter(one.host, one.project), uuid4()
    studies: list[UUID] = [
        study["_id"]
        for study in one.mongo.collection(STUDIES).find({"ProjectId": one.project}, {"_id": 1}).limit(count)
    ]
    took_ms = []
    for study in studies:
        started = time.perf_counter()
        writer.submit(study, investigator, Decision.EXCLUDE)
        took_ms.append((time.perf_counter() - started) * 1000)
    return took_ms


def _require_exact(one: Site) -> None:
    wrong = [found.family for found in compare(one.host, REVIEW, one.project, REVIEW.families) if found.differences]
    if wrong:
        raise AssertionError(f"wrong after the benchmark: {', '.join(wrong)}")


def _cell(size: int, name: str, of: _Measured) -> Cell:
    served, calculated = quantiles(of.served_ms), quantiles(of.calculated_ms)
    return {
        "bundle": name,
        "studies": size,
        "scopes": of.scopes,
        "served_p50_ms": served.p50,
        "served_p95_ms": served.p95,
        "calculated_p50_ms": calculated.p50,
        "calculated_p95_ms": calculated.p95,
        "times_faster_p95": calculated.p95 / served.p95,
        "served_commands": of.served_commands,
        "calculated_commands": of.calculated_commands,
    }


def _figures(
    plan: Plan,
    measured: dict[tuple[int, str], _Measured],
    saves_ms: dict[int, list[float]],
    pending_ms: dict[int, list[list[float]]],
) -> dict[str, float]:
    smallest, largest = min(plan.sizes), max(plan.sizes)
    whole = {size: measured[size, ALL_FAMILIES] for size in plan.sizes}
    figures = {
        f"served_to_calculated_{size}": quantiles(of.calculated_ms).p95 / quantiles(of.served_ms).p95
        for size, of in whole.items()
    }
    figures[f"read_{largest}_to_{smallest}"] = _median_ratio(whole[largest].served_ms, whole[smallest].served_ms)
    figures[f"save_{largest}_to_{smallest}"] = _median_ratio(saves_ms[largest], saves_ms[smallest])
    figures["save_p50_ms"] = statistics.median(saves_ms[largest])
    for studies, rounds in pending_ms.items():
        p95 = [
            (quantiles(with_some).p95, quantiles(none).p95)
            for with_some, none in zip(rounds, pending_ms[0], strict=True)
        ]
        figures[f"pending_{studies}_p95_ms"] = statistics.median(some for some, _ in p95)
        figures[f"pending_{studies}_to_none"] = statistics.median(some / none for some, none in p95)
    figures["peak_resident_mb"] = peak_resident_mb()
    return figures


def _median_ratio(values: Sequence[float], base: Sequence[float]) -> float:
    return statistics.median(values) / statistics.median(base)
