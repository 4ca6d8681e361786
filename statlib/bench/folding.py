"""A project that folds, for benchmarks: with a worker in a process of its own, as in a deployment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo, connected
from statlib.passes.audit import Action
from statlib.review.catalogue import REVIEW
from statlib.statistics.documents import MEMBER
from statlib.statistics.fold.batch import Selection, anything
from statlib.statistics.fold_modes import enable_fold
from statlib.statistics.hosts import Host
from statlib.statistics.pending_index import build_pending_index
from statlib.statistics.reasons import OperateReason

WAIT_S = 120.0  # for a worker to be there, and for what is pending to be folded


@contextmanager
def fold_worker(settings: Settings, folder: Path) -> Iterator[None]:
    """``statlib worker fold`` beside the block, with these settings: there when it begins, ended by a signal."""
    chosen = settings.statistics
    config = folder / "worker.toml"
    config.write_text(
        f'[mongo]\nuri = "{settings.mongo.uri.get_secret_value()}"\ndatabase = "{settings.mongo.database}"\n'
        f'[clock]\noffset_file = "{settings.clock.offset_file}"\n'
        f"[statistics]\nwrites = true\nfold = true\nallowlist = {sorted(map(str, chosen.allowlist))}\n"
        f"families = {sorted(chosen.families)}\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-c", "from statlib.cli.main import main; main()", "worker", "fold"]
    worker = subprocess.Popen(  # noqa: S603 - this very interpreter
        command, env={**os.environ, "STATLIB_CONFIG": str(config)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        with connected(settings, app_name="statlib-bench") as mongo:
            _until(lambda: mongo.collection(MEMBER).find_one({"Pid": worker.pid, "FoldWorker": True}) is not None)
        yield
        if worker.poll() is not None:
            raise AssertionError(
                f"the fold worker ended by itself: {worker.stderr.read().decode() if worker.stderr else ''}"
            )
    finally:
        worker.terminate()
        worker.communicate(timeout=WAIT_S)


def fold_from_now(host: Host, project: UUID) -> None:
    """Enable fold mode as an operator does, once a worker shows a sign of life. The grace of that opening is passed by
    advancing the benchmark's own clock: nothing is timed yet."""
    build_pending_index(host.mongo, REVIEW)
    until = time.monotonic() + WAIT_S
    while True:
        try:
            enable_fold(host, REVIEW, project, Action("bench", "bench", "fold.enable", str(project), str(uuid4()), {}))
            break
        except Refusal as refusal:
            if refusal.reason is not OperateReason.FoldFleetUnsupported or time.monotonic() > until:
                raise
            time.sleep(0.2)
    host.mongo.clock.advance(host.mongo.settings.statistics.opening_grace_s)


def wait_until_folded(mongo: Mongo, project: UUID) -> None:
    _until(lambda: not anything(mongo, REVIEW, None, Selection(project)))


def _until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"the benchmark's fold is not where it should be after {WAIT_S:.0f} s")
        time.sleep(0.05)
