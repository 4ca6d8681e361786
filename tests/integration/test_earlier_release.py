"""The release that precedes the fold, at a project in fold mode: it serves and publishes nothing, and saves exactly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.catalogue import REVIEW
from statlib.review.screening import Decision
from statlib.statistics.backfill import backfill_together
from statlib.statistics.fold_fleet import read_fold_fleet, stamp_of_fleet
from statlib.statistics.fold_modes import disable_fold, enable_fold
from statlib.statistics.hosts import Role
from statlib.statistics.pending_index import PENDING_INDEX, build_pending_index
from statlib.statistics.reasons import OperateReason
from tests.children import _as_environment as as_environment
from tests.folding import heartbeat, pending
from tests.reviews import ALL_FAMILIES, Review, action, host_of, review

ROOT = Path(__file__).parents[1]
WHEEL = ROOT / "frozen" / "statlib-0.1.0-py3-none-any.whl"
SCRIPT = Path(__file__).with_name("earlier_release.py")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has that release, and nothing that it depends on."""
    folder = tmp_path_factory.mktemp("earlier")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*install, str(WHEEL)], check=True, timeout=120)
    return folder


@pytest.fixture
def folding(emptied: Settings) -> Iterator[Review]:
    """A review in fold mode, every family served, a decision pending."""
    with ExitStack() as stack:
        opened = stack.enter_context(review(emptied, families=ALL_FAMILIES, members=2, fold=True))
        stack.enter_context(host_of(opened.mongo.settings, Role.PROJECT_MANAGEMENT))
        build_pending_index(opened.mongo, REVIEW)
        stack.callback(opened.mongo.collection(REVIEW.source_collection).drop_index, PENDING_INDEX)
        heartbeat(opened.mongo)
        enable_fold(opened.host, REVIEW, opened.project, action())
        opened.mongo.clock.advance(opened.mongo.settings.statistics.opening_grace_s + 1)
        backfill_together(opened.host, REVIEW, opened.project, ALL_FAMILIES)
        opened.writer.submit(opened.studies[0], opened.members[0], Decision.EXCLUDE)
        yield opened


@contextmanager
def told_by(earlier: Path, of: Review, study: UUID) -> Iterator[dict[str, Any]]:
    """What a process of that release says that it did; it lives, as a host, for the length of the block."""
    environment = {**os.environ, **as_environment(of.mongo.settings), "PYTHONPATH": str(earlier)}
    environment.pop("STATLIB__STATISTICS__FOLD", None)
    words = [sys.executable, str(SCRIPT), str(of.project), str(study), str(of.members[1])]
    process = subprocess.Popen(
        words, cwd=earlier, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        told: dict[str, Any] = json.loads(process.stdout.readline())
        assert Path(told["of"]).is_relative_to(earlier)
        yield told
        process.communicate("end\n", timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate(timeout=30)


MODES: dict[str, Callable[[Review], object]] = {
    "Enabled": lambda of: None,
    "Disabling": lambda of: disable_fold(of.host, REVIEW, of.project, action()),
}


@pytest.mark.req("MODE-02", "TRIP-02", "TRIP-03", "TRIP-06", "TRIP-10", "MEMBER-13")
@pytest.mark.parametrize("mode", MODES)
def test_it_serves_and_publishes_nothing_of_a_folding_project_and_saves_exactly(
    earlier: Path, folding: Review, mode: str
) -> None:
    MODES[mode](folding)
    before, waiting = folding.control(), pending(folding.mongo, folding.project)
    assert waiting, "a decision is pending"
    with told_by(earlier, folding, folding.studies[0]) as told:
        for looked in (told["before"], told["after"]):
            assert (looked["source"], looked["reason"]) == ("authoritative", "VersionIncompatible")
        assert told["refused"] == ["VersionIncompatible"] * 4
        assert told["after"]["values"] == folding.whole_truth()
        assert told["after"] != told["before"]
        with pytest.raises(Refusal) as caught:
            stamp_of_fleet(read_fold_fleet(folding.mongo, folding.project))
        assert caught.value.reason is OperateReason.FoldFleetUnsupported, (
            "its record is of a release that does not fold"
        )
    after = folding.control()
    kept = [name for name in before if name.startswith("Fold") or name == "StorageVersion"]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert pending(folding.mongo, folding.project) == waiting, "what was pending in the study survived its save"
    assert folding.decisions(folding.studies[0])[folding.members[1]] is True
    bundle = folding.read_all()
    assert {family: dict(bundle.values[family]) for family in ALL_FAMILIES} == folding.whole_truth()
