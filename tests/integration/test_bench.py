"""The benchmarks in miniature, on servers and kernels of their own: the shape of their answers and their counts."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from click.testing import CliRunner, Result

from statlib.bench import fold, projects, read, rebuild, runbook, trivial_book, write
from statlib.bench.language import Quantiles, quantiles, table
from statlib.bench.write import ArmName
from statlib.cli.main import main
from statlib.kernel.settings import load_settings
from statlib.review.annotation import tallies_after
from statlib.review.catalogue import REVIEW
from statlib.review.documents import Study
from statlib.review.screening import inclusion_info

WRITE = write.Plan(reviewers=(1, 2), repeats=2, submissions=4, studies=10)
READ = read.Plan(sizes=(60, 120), rounds=1, served_per_round=2, saves=3, members=3, pending=(0, 2))
FOLD = fold.Plan(saves=6, repeats=1)
REBUILD = rebuild.Plan(studies=120, repeats=2, members=3)
RUNBOOK = runbook.Plan(pairs=1, sizes=(runbook.SMALL, 120), updates=2)
UNDER_STATISTICS = (ArmName.TRANSACTIONAL, ArmName.COLLIDING, ArmName.FOLD)
COMPARED = (*UNDER_STATISTICS, "fold_open")
WRITE_FIGURES = {
    "commands_per_save_source",
    "commands_per_save_transactional",
    "commands_per_save_fold",
    "fold_gate_failed_cells",
    *(f"{name}_{what}" for name in COMPARED for what in ("p95_ratio_max", "p95_added_ms_max", "exhausted")),
}
RUNBOOK_FIGURES = {"added_to_papermill_s", "site_120_to_100_ratio"}
ENVIRONMENT = {"statlib", "pymongo", "python", "platform", "cpus", "server"}


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "QUICK", WRITE)
    monkeypatch.setattr(read, "QUICK", READ)
    monkeypatch.setattr(fold, "QUICK", FOLD)
    monkeypatch.setattr(rebuild, "QUICK", REBUILD)
    monkeypatch.setattr(runbook, "QUICK", RUNBOOK)


def test_the_write_benchmark_measures_every_arm_under_every_load_with_figures_of_its_cells() -> None:
    report = _report(_bench("write", "--quick", "--json"))
    assert (report["bench"], report["short_form"], set(report["environment"])) == ("write", True, ENVIRONMENT)
    assert report["environment"]["server"].startswith("MongoDB ")
    cells = report["cells"]
    assert sorted((cell["arm"], cell["loop"], cell["reviewers"], cell["study"]) for cell in cells) == sorted(
        (arm, loop, reviewers, study)
        for arm, loop in [*((arm, "closed") for arm in ArmName), *((arm, "open") for arm in write.OPEN_ARMS)]
        for reviewers in WRITE.reviewers
        for study in ("same", "different")
    )
    for cell in cells:
        assert cell["submissions"] == cell["reviewers"] * WRITE.repeats * WRITE.submissions
        assert cell["saved"] + cell["exhausted"] + cell["stale"] == cell["submissions"]
        assert 0 < cell["p50_ms"] <= cell["p99_ms"]
        assert cell["p95_ms"] > 0
        assert cell["saved_per_s"] > 0
        if cell["reviewers"] == 1:
            assert cell["saved"] == cell["submissions"]
        if cell["arm"] == ArmName.SOURCE_ONLY:
            assert cell["statistics_conflicts"] == 0
    figures = report["figures"]
    assert set(figures) == WRITE_FIGURES
    assert 0 < figures["commands_per_save_source"] < figures["commands_per_save_transactional"]
    assert figures["commands_per_save_fold"] == figures["commands_per_save_source"]
    for arm in UNDER_STATISTICS:
        assert figures[f"{arm}_p95_ratio_max"] > 0
        exhausted = sum(cell["exhausted"] for cell in cells if (cell["arm"], cell["loop"]) == (arm, "closed"))
        assert figures[f"{arm}_exhausted"] == exhausted


def test_the_write_benchmark_prints_its_table_and_figures() -> None:
    ran = _bench("write", "--quick")
    assert "repeat 2 of 2: 2 reviewers, same study True" in ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0] == "bench write (short form: for a look, not for figures)"
    assert lines[3].split()[:4] == ["arm", "loop", "study", "reviewers"]
    assert len(_cells(lines)) == (len(ArmName) + len(write.OPEN_ARMS)) * len(WRITE.reviewers) * 2
    assert _figures(lines) == WRITE_FIGURES


def test_the_read_benchmark_measures_each_bundle_served_and_calculated_at_each_size() -> None:
    report = _report(_bench("read", "--quick", "--json"))
    assert (report["bench"], report["short_form"], set(report["environment"])) == ("read", True, ENVIRONMENT)
    cells = report["cells"]
    assert sorted((cell["bundle"], cell["studies"]) for cell in cells) == sorted(
        (bundle, size) for bundle in (read.ALL_FAMILIES, *REVIEW.families) for size in READ.sizes
    )
    for cell in cells:
        assert (cell["served_commands"], cell["calculated_commands"]) == (1, 2)
        assert 0 < cell["served_p50_ms"] <= cell["served_p95_ms"]
        assert cell["times_faster_p95"] == pytest.approx(cell["calculated_p95_ms"] / cell["served_p95_ms"])
    whole = {cell["studies"]: cell for cell in cells if cell["bundle"] == read.ALL_FAMILIES}
    by_family = [cell["scopes"] for cell in cells if cell["bundle"] != read.ALL_FAMILIES and cell["studies"] == 60]
    assert whole[60]["scopes"] == sum(by_family)
    figures = report["figures"]
    assert set(figures) == {
        *(f"served_to_calculated_{size}" for size in READ.sizes),
        *(f"pending_{studies}_{what}" for studies in READ.pending for what in ("p95_ms", "to_none")),
        *("read_120_to_60", "save_120_to_60", "save_p50_ms", "peak_resident_mb"),
    }
    for size in READ.sizes:
        assert figures[f"served_to_calculated_{size}"] == pytest.approx(whole[size]["times_faster_p95"])
    assert 20 < figures["peak_resident_mb"] < 2_000


def test_the_fold_benchmark_drains_what_was_saved_and_tells_how_far_rows_lag() -> None:
    report = _report(_bench("fold", "--quick", "--json"))
    assert (report["bench"], report["short_form"], set(report["environment"])) == ("fold", True, ENVIRONMENT)
    (cell,) = report["cells"]
    assert 0 < cell["lag_p50_ms"] <= cell["lag_p95_ms"] == report["figures"]["lag_p95_ms"]
    assert report["figures"]["folded_to_source_saves"] == pytest.approx(
        cell["folded_per_s"] / cell["source_saves_per_s"]
    )


def test_the_rebuild_benchmark_holds_each_family_to_its_aggregation_and_all_to_their_sum() -> None:
    report = _report(_bench("rebuild", "--quick", "--json"))
    assert (report["bench"], report["short_form"], set(report["environment"])) == ("rebuild", True, ENVIRONMENT)
    *families, together = report["cells"]
    assert [cell["family"] for cell in families] == list(REVIEW.families)
    assert together["family"] == rebuild.TOGETHER
    assert together["scopes"] == sum(cell["scopes"] for cell in families) == report["figures"]["published_scopes"]
    assert together["commands"] < sum(cell["commands"] for cell in families)
    for cell in families:
        assert cell["bare_ms"] > 0
        assert cell["rebuild_to_bare"] > 1
    figures = report["figures"]
    assert figures["rebuild_to_bare_max"] == pytest.approx(max(cell["rebuild_to_bare"] for cell in families))
    assert 0 < figures["together_to_sum"] < 2
    lines = _bench("rebuild", "--quick").stdout.splitlines()
    assert _figures(lines) == set(figures)


def test_generated_studies_are_stored_as_writers_store_them() -> None:
    """The same ones for the same seed, and documents that a model of this release keeps as they are."""
    shape = projects.Shape(150, members=4)
    project = projects.generated_project(shape)
    made = list(projects.generated_studies(project, shape))
    assert made == list(projects.generated_studies(project, shape))
    assert made != list(projects.generated_studies(project, shape, seed=2))
    for study in made:
        parsed = Study.from_bson(study)
        assert _as_read(parsed.to_bson()) == _as_read(study)
        assert parsed.tallies == tallies_after(parsed, parsed.sessions, parsed.slot_reservations)
        assert parsed.inclusion_info == inclusion_info(parsed.screenings, project.agreement_threshold)


def test_the_runbook_benchmark_measures_pairs_and_archives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ran = _bench("runbook", "--quick", "--json")
    assert os.environ["PYTHONPATH"] == str(tmp_path)
    assert "pair 1 of 1: papermill, then the runner" in ran.stderr
    assert "making an archive of 120 runs" in ran.stderr
    report = _report(ran)
    assert (report["bench"], report["short_form"], set(report["environment"])) == ("runbook", True, ENVIRONMENT)
    assert [(cell["what"], cell["archived_runs"], cell["count"]) for cell in report["cells"]] == [
        ("papermill", 0, RUNBOOK.pairs),
        ("runbook", 0, RUNBOOK.pairs),
        *(("site", size, RUNBOOK.updates) for size in RUNBOOK.sizes),
    ]
    assert all(0 < cell["p50_ms"] <= cell["p95_ms"] <= cell["p99_ms"] for cell in report["cells"])
    papermill, ours, small, largest = (cell["p50_ms"] for cell in report["cells"])
    assert set(report["figures"]) == RUNBOOK_FIGURES
    assert report["figures"]["added_to_papermill_s"] == pytest.approx((ours - papermill) / 1000)
    assert report["figures"]["site_120_to_100_ratio"] == pytest.approx(largest / small)


def test_a_runbook_benchmark_that_is_stopped_leaves_the_path_of_kernels_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def stop(line: str) -> None:
        assert os.environ["PYTHONPATH"], line
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runbook.run(RUNBOOK, short_form=True, settings=load_settings(), progress=stop)
    assert "PYTHONPATH" not in os.environ


def test_the_trivial_runbook_is_found_by_its_entry_point(tmp_path: Path) -> None:
    trivial_book.install(tmp_path)
    (metadata,) = tmp_path.iterdir()
    assert f"{trivial_book.NAME} = statlib.bench.trivial_book" in (metadata / "entry_points.txt").read_text()


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0], Quantiles(3.0, 3.0, 3.0)), ([float(at) for at in range(101)], Quantiles(50.0, 95.0, 99.0))],
)
def test_quantiles_lie_between_order_statistics(values: Sequence[float], expected: Quantiles) -> None:
    found = quantiles(values)
    assert (found.p50, found.p95, found.p99) == pytest.approx((expected.p50, expected.p95, expected.p99))


def test_a_table_is_aligned_with_numbers_to_the_right() -> None:
    assert table([]) == []
    assert table([{"what": "one", "count": 1_000, "ms": 2.5}, {"what": "other", "count": 7}]) == [
        "what   count    ms",
        "one    1,000  2.50",
        "other      7",
    ]


def _as_read(document: dict[str, Any]) -> dict[str, Any]:
    codec: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
    return bson.decode(bson.encode(document, codec_options=codec), codec)


def _bench(*arguments: str) -> Result:
    ran = CliRunner().invoke(main, ["bench", *arguments], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran


def _report(ran: Result) -> Any:
    return json.loads(ran.stdout)


def _cells(lines: Sequence[str]) -> Sequence[str]:
    """The rows of the table: after two lines, a blank and the table's head, until the next blank."""
    return lines[4 : lines.index("", 4)]


def _figures(lines: Sequence[str]) -> set[str]:
    return {line.split()[0] for line in lines[lines.index("", 4) + 1 :]}
