"""``statlib schedule``: its answers, and runbooks as what it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from statlib.cli.main import main
from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo, connected
from statlib.passes.audit import server_time
from statlib.runbook.catalogue import Runbook
from tests.children import _as_environment
from tests.notebooks.conftest import ACT_CELL, CLOSE_CELL, PREFLIGHT_CELL, WriteNotebook
from tests.notebooks.conftest import tiny as tiny  # noqa: PLC0414 - a fixture
from tests.notebooks.conftest import write_notebook as write_notebook  # noqa: PLC0414 - a fixture


@pytest.fixture
def mongo(emptied: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mongo]:
    for name, value in _as_environment(emptied).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STATLIB__SCHEDULE__FILE", str(tmp_path / "schedule.toml"))
    monkeypatch.setenv("STATLIB__SCHEDULE__ARCHIVE", str(tmp_path / "reports"))
    monkeypatch.setenv("STATLIB__SCHEDULE__POLL_S", "0.2")
    with connected(emptied, app_name="statlib-tests") as opened:
        yield opened


def schedule_tiny(folder: Path, *, enabled: bool = True, max_duration_s: int = 120, **parameters: Any) -> None:
    given = {"apply": True, "confirm": "review-tests", "effects": str(folder / "effects.txt"), **parameters}
    lines = [f"parameters.{name} = {json.dumps(value)}" for name, value in given.items()]
    entry = ["[[schedule]]", 'name = "tiny-hourly"', 'runbook = "tiny"', 'cron = "0 0 * * * ?"',
             f"enabled = {str(enabled).lower()}", f"max_duration_s = {max_duration_s}", *lines]  # fmt: skip
    (folder / "schedule.toml").write_text("\n".join(entry), encoding="utf-8")


def command(*words: str) -> Result:
    return CliRunner().invoke(main, ["schedule", *words, "--json"])


def told(*words: str) -> Any:
    result = command(*words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def run_one_slot(mongo: Mongo) -> dict[str, Any]:
    """Register, pass a slot, and run it; returns the newest record of history."""
    told("run", "--once")
    mongo.clock.advance(3600)
    told("run", "--once")
    newest: dict[str, Any] = told("history", "-n", "1")["history"][0]
    return newest


@pytest.mark.parametrize(
    ("parameters", "state", "reason", "exit_code"),
    [
        ({}, "Succeeded", None, 0),
        ({"comparisons_min": 2}, "Failed", "GateFailed", 3),
        ({"lines": 4}, "Failed", "Refused", 4),
    ],
)
@pytest.mark.usefixtures("tiny")
def test_a_scheduled_runbook_is_archived_and_its_verdict_becomes_the_slot_s(
    mongo: Mongo, tmp_path: Path, parameters: dict[str, Any], state: str, reason: str | None, exit_code: int
) -> None:
    schedule_tiny(tmp_path, **parameters)
    newest = run_one_slot(mongo)
    run = newest["run"]
    assert (newest["state"], newest["reason"], run["exit_code"]) == (state, reason, exit_code)
    assert (Path(run["report"]) / "report.html").is_file()
    assert run["principal"].startswith("job:tiny@")


def test_a_runbook_that_takes_too_long_is_stopped_with_its_report(
    mongo: Mongo, tmp_path: Path, tiny: Runbook, write_notebook: WriteNotebook
) -> None:
    write_notebook(PREFLIGHT_CELL, "import threading\nthreading.Event().wait()", ACT_CELL, CLOSE_CELL)
    schedule_tiny(tmp_path, max_duration_s=5)
    newest = run_one_slot(mongo)
    assert (newest["state"], newest["reason"]) == ("Interrupted", "TooLong")
    assert (Path(newest["run"]["report"]) / "report.html").is_file()
    assert not (tmp_path / "effects.txt").exists()
    assert tiny.name == newest["run"]["target"]


@pytest.mark.usefixtures("tiny")
def test_what_is_to_come_is_told_by_the_server_s_clock(mongo: Mongo, tmp_path: Path) -> None:
    schedule_tiny(tmp_path)
    mongo.clock.advance(86_400)
    slots = told("next", "-n", "2")["next"][0]["slots"]
    now = server_time(mongo).isoformat()
    assert now < slots[0] < slots[1]
    assert slots[0][13:] == ":00:00+00:00"


@pytest.mark.usefixtures("tiny")
def test_the_list_shows_what_is_off_too_and_nothing_of_it_is_run(mongo: Mongo, tmp_path: Path) -> None:
    schedule_tiny(tmp_path, enabled=False)
    (listed,) = told("list")["schedules"]
    assert (listed["name"], listed["enabled"], listed["parameters"]["lines"]) == ("tiny-hourly", False, 1)
    assert told("next") == {"next": []}
    refused = command("run", "--once")
    assert (refused.exit_code, json.loads(refused.stdout)["refused"]["reason"]) == (4, "NothingScheduled")
    assert told("history") == {"history": []}
    assert mongo.database.list_collection_names() is not None


@pytest.mark.usefixtures("tiny", "mongo")
def test_a_schedule_that_the_file_lacks_is_refused(tmp_path: Path) -> None:
    schedule_tiny(tmp_path)
    refused = command("next", "tiny-houly")
    assert json.loads(refused.stdout)["refused"]["reason"] == "ScheduleUnknown"
    assert refused.exit_code == 4


@pytest.mark.usefixtures("tiny", "mongo")
def test_a_wrong_file_is_refused_before_anything_runs(tmp_path: Path) -> None:
    schedule_tiny(tmp_path, lines="many")
    refused = command("run", "--once")
    assert (refused.exit_code, json.loads(refused.stdout)["refused"]["reason"]) == (2, "ParameterMistyped")
    assert "schedule.toml:1 (entry 1, tiny-hourly)" in refused.stderr
