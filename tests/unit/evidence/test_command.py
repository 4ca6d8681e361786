"""``statlib evidence verify``: a table for people, a document for programs, an exit code for both."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from statlib.cli.main import main
from tests.unit.evidence.soak_run import Raw, Story, leave_bundle, parity


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return leave_bundle(tmp_path / "run", Story())


def test_an_accepted_folder_ends_with_0_and_says_what_that_proves(folder: Path) -> None:
    result = CliRunner().invoke(main, ["evidence", "verify", str(folder)])
    assert result.exit_code == 0
    assert "Report intact. Verdict of the run: rehearsal passed; " in result.output
    assert "Neither signed nor anchored" in result.output


def test_a_refused_folder_ends_with_3_and_names_what_is_wrong(folder: Path) -> None:
    (folder / "evidence/captures/window.json").unlink()
    result = CliRunner().invoke(main, ["evidence", "verify", str(folder)])
    assert result.exit_code == 3
    assert "evidence/captures/window.json" in result.output
    assert "Refused" in result.output
    assert "intact" not in result.output


def test_a_run_that_failed_is_not_called_accepted(tmp_path: Path) -> None:
    failed = leave_bundle(tmp_path / "run", Story(raw=replace(Raw(), parity=[parity(exact=False)] * 3)))
    result = CliRunner().invoke(main, ["evidence", "verify", str(failed)])
    assert result.exit_code == 0
    assert "Report intact. Verdict of the run: failed; " in result.output


def test_of_an_empty_folder_nothing_is_called_in_order(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["evidence", "verify", str(tmp_path)])
    assert result.exit_code == 3
    said = dict(line.split(maxsplit=1) for line in result.output.splitlines() if line[:1].islower())
    assert said["files"] == said["captures"] == "not looked at"
    assert "ok" not in said.values()


def test_a_file_of_a_report_is_answered_with_its_folder(folder: Path) -> None:
    result = CliRunner().invoke(main, ["evidence", "verify", str(folder / "report.html")])
    assert result.exit_code == 2
    assert f"give its folder, {folder}" in result.output


@pytest.mark.parametrize(("damaged", "code"), [(False, 0), (True, 3)])
def test_json_says_the_same(damaged: bool, code: int, folder: Path) -> None:
    if damaged:
        (folder / "report.html").write_text("")
    result = CliRunner().invoke(main, ["evidence", "verify", str(folder), "--json"])
    told = json.loads(result.output)
    assert result.exit_code == code
    assert told["ok"] is not damaged
    assert told["assurance"] == "undamaged"
    assert {finding["subject"] for finding in told["findings"]} == ({"report.html"} if damaged else set())
