"""Two runs side by side, and the archive as a list."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from statlib.bench.archives import KINDS, NEWEST, leave_runs
from statlib.cli.main import main
from statlib.evidence.bundle import Bundle, KeyFigure, RunEvidence
from statlib.evidence.checks.files import read_manifest
from statlib.kernel.refusals import Refusal
from statlib.runbook.archive import RunFolder, find_runs
from statlib.runbook.reasons import RunbookReason
from statlib.runbook.site.comparison import compare, key_figures
from tests.unit.evidence.soak_run import THRESHOLDS, Raw, Story, leave_bundle, parity


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    stricter = THRESHOLDS.model_copy(update={"reads_min": 9})
    bad = Story(raw=replace(Raw(), parity=[parity(exact=False)] * 4), thresholds=stricter)
    return leave_bundle(folder / "a", Story()), leave_bundle(folder / "b", bad)


def test_gates_are_paired_and_those_that_turned_are_marked(pair: tuple[Path, Path]) -> None:
    found = compare(*pair)
    assert (found.a.verdict, found.b.verdict) == ("rehearsal passed", "failed")
    assert (found.a.verified, found.b.verified) == (True, True)
    by_key = {gate.key: gate for gate in found.gates}
    assert [key for key, gate in by_key.items() if gate.turned] == ["parity_mismatches"]
    assert by_key["parity_mismatches"].change == 4
    assert by_key["comparisons_per_family"].change == 1
    assert by_key["fallback_rate"].change == 0


def test_the_table_says_the_same_in_words(pair: tuple[Path, Path]) -> None:
    result = CliRunner().invoke(main, ["reports", "compare", *map(str, pair)])
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if "Parity mismatches" in line]
    assert line.split() == ["*", "Parity", "mismatches", "0", "4", "✕", "4"]
    assert "DOES NOT VERIFY" not in result.output


def test_json_says_the_same_to_programs(pair: tuple[Path, Path]) -> None:
    result = CliRunner().invoke(main, ["reports", "compare", *map(str, pair), "--json"])
    told = json.loads(result.output)
    assert {gate["key"]: gate["change"] for gate in told["gates"]}["parity_mismatches"] == 4
    assert told["b"]["verdict"] == "failed"
    assert told["parameters"] == []


def test_key_figures_are_shown_with_their_ratio(tmp_path: Path) -> None:
    runs = [run for run in leave_runs(tmp_path, 60) if run.runbook == KINDS[0].runbook]
    results = [CliRunner().invoke(main, ["reports", "compare", str(runs[0].final), str(run.final)]) for run in runs]
    assert all(result.exit_code == 0 for result in results)
    assert any("× " in result.output and "Time a scope" in result.output for result in results)


def test_parameters_that_differ_are_shown_and_no_others(pair: tuple[Path, Path], tmp_path: Path) -> None:
    dry = leave_bundle(tmp_path / "dry", Story(apply=False))
    found = compare(pair[0], dry)
    assert [(value.name, value.a, value.b) for value in found.parameters] == [("apply", "true", "false")]
    assert found.environment == ()
    assert "apply: true → false" in CliRunner().invoke(main, ["reports", "compare", str(pair[0]), str(dry)]).output


def test_a_folder_that_does_not_verify_is_compared_and_said_to_be_so(pair: tuple[Path, Path], tmp_path: Path) -> None:
    forged = leave_bundle(tmp_path / "c", Story())
    (forged / "report.html").write_text("edited")
    assert not compare(pair[0], forged).b.verified
    assert "DOES NOT VERIFY" in CliRunner().invoke(main, ["reports", "compare", str(pair[0]), str(forged)]).output


def test_runs_of_different_runbooks_are_not_compared(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (other,) = leave_runs(tmp_path, 1)
    with pytest.raises(Refusal) as refused:
        compare(pair[0], other.final)
    assert refused.value.reason is RunbookReason.RunDiffers
    with pytest.raises(Refusal) as refused:
        compare(pair[0], tmp_path)
    assert refused.value.reason is RunbookReason.RunNotFound


def test_the_list_is_newest_first_across_runbooks_and_bounded(tmp_path: Path) -> None:
    made = [run.run_id for run in leave_runs(tmp_path, 12)]
    result = CliRunner().invoke(main, ["reports", "list", "--archive", str(tmp_path), "--last", "5", "--json"])
    told = json.loads(result.output)["runs"]
    assert [run["run_id"] for run in told] == made[:-6:-1]
    assert {"verdict", "duration_s", "measures", "words", "deployment"} <= told[0].keys()


def test_the_list_can_be_of_one_runbook_or_of_nothing(tmp_path: Path) -> None:
    list(leave_runs(tmp_path, 12))
    name = KINDS[0].runbook
    told = CliRunner().invoke(main, ["reports", "list", "--archive", str(tmp_path), "--runbook", name])
    lines = told.output.splitlines()
    assert len(lines) == len(list(find_runs(tmp_path, runbook=name)))
    assert all(name in line for line in lines)
    nothing = CliRunner().invoke(main, ["reports", "list", "--archive", str(tmp_path / "none")])
    assert (nothing.exit_code, nothing.output) == (0, f"no runs in {tmp_path / 'none'}\n")


def test_a_start_in_the_list_is_the_runs_own(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, "soak_evidence", (NEWEST - timedelta(days=1)).replace(microsecond=0), "0" * 12)
    leave_bundle(run.final, Story())
    assert (
        "Rehearsal passed: 12 of 12 gates"
        in CliRunner().invoke(main, ["reports", "list", "--archive", str(tmp_path)]).output
    )


def test_a_key_figure_is_paired_by_its_label_whatever_its_unit(tmp_path: Path) -> None:
    def evidence(**units: str) -> RunEvidence:
        statement, _ = read_manifest(Bundle(leave_bundle(tmp_path / "-".join(units.values()), Story())))
        assert statement
        figures = tuple(KeyFigure(label=label, value=4, unit=unit) for label, unit in units.items())
        return statement.predicate.model_copy(update={"highlights": figures})

    found = list(key_figures(evidence(Rebuilds="of 4", Latency="ms"), evidence(Rebuilds="of 6", Latency="ms")))
    assert [(pair.label, pair.unit, pair.a, pair.b) for pair in found] == [
        ("Rebuilds", "", 4, 4),
        ("Latency", "ms", 4, 4),
    ]
