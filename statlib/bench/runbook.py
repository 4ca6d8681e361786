"""What the runbook framework costs: a run over bare papermill, and one more run in an archive of any size.

added_to_papermill_s        the smallest whole runbook through the headless runner (parameters, journal, a step, a
                            gate, verdict, report, seal) over a notebook of as many cells through papermill alone;
                            median of the differences of paired runs, in one process, without a deployment
site_10000_to_100_ratio     ``reports site`` after one new run: medians in an archive of 10,000 over one of 100; the
                            short form has no 10,000 and gives ``site_1000_to_100_ratio``
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import papermill

from statlib.bench import trivial_book
from statlib.bench.archives import KINDS, NEWEST, leave_run, leave_runs
from statlib.bench.language import Cell, Report, environment, quantiles
from statlib.evidence.verdicts import Verdict
from statlib.kernel.settings import EvidenceSettings, MongoSettings, Settings
from statlib.runbook.archive import RunFolder
from statlib.runbook.catalogue import Runbook
from statlib.runbook.execution import run_headless
from statlib.runbook.site.build import update_site

SMALL = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """``pairs`` of runs; ``sizes`` of archives, each updated ``updates`` times with one new run."""

    pairs: int = 7
    sizes: tuple[int, ...] = (10, SMALL, 1_000, 10_000)
    updates: int = 21


QUICK = Plan(pairs=2, sizes=(10, SMALL, 1_000), updates=7)


def run(plan: Plan, *, short_form: bool, settings: Settings, progress: Callable[[str], None]) -> Report:
    """Measure in a folder of its own. Raises AssertionError if a run did not pass: a wrong result has no figures."""
    alone = settings.model_copy(
        update={"mongo": MongoSettings(), "evidence": EvidenceSettings(), "admin": type(settings.admin)()}
    )
    with tempfile.TemporaryDirectory(prefix="statlib-bench-") as name:
        bare_s, ours_s = _pairs(Path(name), plan, alone, progress)
        updates = {size: _updates(Path(name) / f"archive-{size}", size, plan, progress) for size in plan.sizes}
    largest = max(plan.sizes)
    figures = {
        "added_to_papermill_s": statistics.median(ours - bare for bare, ours in zip(bare_s, ours_s, strict=True)),
        f"site_{largest}_to_{SMALL}_ratio": statistics.median(updates[largest]) / statistics.median(updates[SMALL]),
    }
    cells = [
        _cell("papermill", 0, bare_s),
        _cell("runbook", 0, ours_s),
        *(_cell("site", size, times) for size, times in updates.items()),
    ]
    return Report("runbook", short_form, environment("none"), cells, figures)


def _pairs(
    folder: Path, plan: Plan, settings: Settings, progress: Callable[[str], None]
) -> tuple[Sequence[float], Sequence[float]]:
    """Seconds of each, alternately; the first pair is not counted, since it imports what the others find there."""
    bare = trivial_book.write_notebook(folder / "bare.ipynb", trivial_book.BARE_CELLS)
    whole = trivial_book.write_notebook(folder / "whole.ipynb", trivial_book.CELLS)
    book = replace(trivial_book.RUNBOOK, notebook=whole)
    bare_s, ours_s = [], []
    with _known_to_kernels(folder / "installed"):
        for pair in range(plan.pairs + 1):
            progress(f"pair {pair} of {plan.pairs}: papermill, then the runner")
            bare_s.append(_timed(lambda: _papermill(bare, folder / "executed.ipynb")))
            ours_s.append(_timed(lambda: _runner(book, folder / "reports", settings)))
    return bare_s[1:], ours_s[1:]


def _papermill(notebook: Path, executed: Path) -> None:
    papermill.execute_notebook(notebook, executed, parameters={"number": 2}, progress_bar=False, log_output=False)


def _runner(book: Runbook, archive: Path, settings: Settings) -> None:
    ended = run_headless(book, trivial_book.Parameters(), settings=settings, archive=archive)
    if ended.conclusion.verdict is not Verdict.PASSED:
        raise AssertionError(f"the measured run ended as {ended.conclusion.verdict}: {ended.conclusion.halted}")


def _updates(archive: Path, size: int, plan: Plan, progress: Callable[[str], None]) -> Sequence[float]:
    """Seconds of each update with one new run, once the archive has settled and its pages are there."""
    progress(f"making an archive of {size:,} runs")
    archive.mkdir()
    for _ in leave_runs(archive, size):
        pass
    update_site(archive)
    chance, seconds = random.Random(size), []  # noqa: S311 - invents numbers, keeps no secret
    for number in range(plan.updates):
        kind = KINDS[number % len(KINDS)]
        at = (NEWEST + timedelta(minutes=number + 1)).replace(microsecond=0)
        leave_run(RunFolder(archive, kind.runbook, at, f"{chance.getrandbits(48):012x}"), kind, chance)
        seconds.append(_timed(lambda: _one_more(archive)))
    return seconds


def _one_more(archive: Path) -> None:
    if update_site(archive).added != 1:
        raise AssertionError("the update did not find the new run")


def _cell(what: str, archived: int, seconds: Sequence[float]) -> Cell:
    at = quantiles([one * 1000 for one in seconds])
    return {
        "what": what,
        "archived_runs": archived,
        "count": len(seconds),
        "p50_ms": at.p50,
        "p95_ms": at.p95,
        "p99_ms": at.p99,
    }


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@contextmanager
def _known_to_kernels(folder: Path) -> Iterator[None]:
    """Kernels inherit this process's environment; it is as it was afterwards."""
    trivial_book.install(folder)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
