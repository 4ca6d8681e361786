"""``statlib runbook``: what it prints, where, and what it exits with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from statlib.cli.main import main
from statlib.runbook.catalogue import Runbook
from tests.notebooks.conftest import Launches


def command(*words: str) -> Result:
    return CliRunner().invoke(main, ["runbook", *words])


def test_list_names_the_runbooks_that_applications_bring(tiny: Runbook) -> None:
    assert "tiny" in command("list").stdout
    listed = json.loads(command("list", "--json").stdout)["runbooks"]
    assert {"name": "tiny", "summary": "Append lines to a file.", "rollback": None} in listed


def test_show_gives_every_parameter(tiny: Runbook) -> None:
    shown = command("show", "tiny").stdout
    assert "effects (path; must be given)" in shown
    assert "lines (whole number, ≥ 0, ≤ 5; default 1)" in shown
    assert "lines to append" in shown
    names = [one["name"] for one in json.loads(command("show", "tiny", "--json").stdout)["parameters"]]
    assert names == ["apply", "confirm", "effects", "lines", "comparisons_min"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tiny", "-p", "lnies=1"), "refused: ParameterUnknown: no such parameter: lnies (did you mean lines?)"),
        (("tiny", "-p", "effects=f", "-p", "lines=two"), "refused: ParameterMistyped: lines: must be a valid integer"),
        (("tiny",), "refused: ParameterMissing: no value for effects"),
        (("tiny", "-p", "effects=f", "-p", "confirm=token: 12345678"), "refused: ParameterSecret: confirm"),
        (("tiny", "-p", "effects=f", "-p", "apply=true"), "refused: ConfirmationMissing: to act here, confirm must be"),
        (("tiny", "-f", "nowhere.toml"), "refused: ParameterFileUnreadable: nowhere.toml cannot be read"),
        (("tyni",), "refused: RunbookUnknown: no runbook 'tyni'; there are:"),
        (("tiny", "-p", "effects=f", "--resume", "0" * 12), "refused: RunNotFound"),
    ],
)
def test_a_refused_run_says_why_in_one_line_with_the_remedy_and_exits_4(
    tiny: Runbook, launches: Launches, words: tuple[str, ...], said: str
) -> None:
    result = command("run", *words)
    assert result.exit_code == 4
    reason, remedy = result.stderr.splitlines()
    assert reason.startswith(said)
    assert remedy.startswith("remedy: ")
    assert result.stdout == ""
    assert launches.seen == []
    refused = json.loads(command("run", *words, "--json").stdout)["refused"]
    assert refused["reason"] in said


@pytest.mark.parametrize(
    "words", [("-p", "lines"), ("-p", "=1"), ("-p", "lines=1", "-p", "lines=2"), ("--timeout", "0")]
)
def test_bad_usage_exits_2(tiny: Runbook, words: tuple[str, ...]) -> None:
    assert command("run", "tiny", *words).exit_code == 2


def test_a_run_prints_its_verdict_and_where_its_report_is(tiny: Runbook, tmp_path: Path) -> None:
    file = tmp_path / "given.toml"
    file.write_text(f"effects = {str(tmp_path / 'effects.txt')!r}\nlines = 5\n", encoding="utf-8")
    result = command("run", "tiny", "-f", str(file), "-p", "lines=2", "--archive", str(tmp_path / "reports"))
    assert result.exit_code == 0
    verdict, report, verify = result.stdout.splitlines()
    assert verdict == "dry run only"
    path = Path(report.removeprefix("report: "))
    assert path.is_file()
    manifest: Any = json.loads((path.parent / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["predicate"]["parameters"]["lines"] == 2
    assert verify == f"verify: statlib evidence verify {path.parent}"
