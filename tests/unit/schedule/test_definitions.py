"""The schedule file is checked whole, and a wrong entry is named with its line, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import load_settings
from statlib.runbook.catalogue import find_runbook
from statlib.runbook.reasons import RunbookReason
from statlib.schedule.bounds import SCHEDULES_MAX
from statlib.schedule.definitions import Misfire, OnInterruption, Schedule, read_schedules
from statlib.schedule.reasons import ScheduleReason
from tests.unit.schedule import example_jobs

REPOSITORY = Path(__file__).resolve().parents[3]
SOUND = '[[schedule]]\nname = "sound"\njob = "example-append"\ncron = "0 0 3 * * ?"\n\n'


@pytest.fixture(autouse=True)
def _jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example_jobs.install(tmp_path, monkeypatch)


def read(text: str, folder: Path) -> tuple[Schedule, ...]:
    path = folder / "schedule.toml"
    path.write_text(text, encoding="utf-8")
    return read_schedules(path, load_settings())


def test_an_entry_is_read_with_every_default_of_its_runbook(tmp_path: Path) -> None:
    entry = (
        '[[schedule]]\nname = "soak"\nrunbook = "soak_evidence"\ncron = "0 30 3 ? * SUN 2026-2030"\nenabled = true\n'
        'misfire = "skip"\non_interruption = "run_again"\nmax_duration_s = 600\nparameters = { studies = 10 }\n'
        'on_failure = { command = ["notify", "--all"] }\n'
    )
    soak, sound = read(entry + SOUND, tmp_path)
    assert (soak.misfire, soak.on_interruption, soak.enabled) == (Misfire.SKIP, OnInterruption.RUN_AGAIN, True)
    assert soak.parameters["studies"] == 10
    assert set(soak.parameters) == set(find_runbook("soak_evidence").parameters.model_fields)
    assert soak.on_failure is not None
    assert soak.on_failure.command == ("notify", "--all")
    assert (sound.misfire, sound.enabled, sound.max_duration_s) == (Misfire.ONE, False, 3600)


def test_the_shipped_file_is_sound_and_switches_nothing_on() -> None:
    found = read_schedules(REPOSITORY / "runbooks" / "schedule.toml", load_settings())
    assert found
    assert not any(schedule.enabled for schedule in found)


def entry(**changes: str | None) -> str:
    lines = {"name": '"wrong"', "job": '"example-append"', "cron": '"0 0 3 * * ?"', **changes}
    return "[[schedule]]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items() if value is not None)


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        (entry(cron='"0 0 3 * *"'), ScheduleReason.CronInvalid, "has 5 fields"),
        (entry(job='"absent"'), ScheduleReason.JobUnknown, "no job 'absent'; there are: example-append"),
        (entry(job=None, runbook='"absent"'), RunbookReason.RunbookUnknown, "no runbook 'absent'"),
        (
            entry(job=None, runbook='"soak_evidence"', parameters="{ studys = 1 }"),
            RunbookReason.ParameterUnknown,
            "studys (did you mean studies?)",
        ),
        (
            entry(job=None, runbook='"soak_evidence"', parameters='{ studies = "many" }'),
            RunbookReason.ParameterMistyped,
            "studies: must be",
        ),
        (
            entry(job=None, runbook='"soak_evidence"', parameters='{ data = "mongodb://u:p@h/" }'),
            RunbookReason.ParameterSecret,
            "data would carry a credential",
        ),
        (entry(name='"sound"'), ScheduleReason.ScheduleDuplicate, "the name is taken by"),
        (entry(name='"Not A Name"'), ScheduleReason.ScheduleInvalid, "name:"),
        (entry(name=None), ScheduleReason.ScheduleInvalid, "name: Field required"),
        (entry(cron=None), ScheduleReason.ScheduleInvalid, "cron: Field required"),
        (entry(runbook='"soak_evidence"'), ScheduleReason.ScheduleInvalid, "give one of runbook and job"),
        (entry(job=None), ScheduleReason.ScheduleInvalid, "give one of runbook and job"),
        (entry(parameters="{ a = 1 }"), ScheduleReason.ScheduleInvalid, "a job takes no parameters"),
        (entry(misfire='"twice"'), ScheduleReason.ScheduleInvalid, "misfire:"),
        (entry(max_duration_s="0"), ScheduleReason.ScheduleInvalid, "max_duration_s:"),
        (entry(enabeld="true"), ScheduleReason.ScheduleInvalid, "enabeld: Extra inputs"),
        (entry(on_failure="{}"), ScheduleReason.ScheduleInvalid, "give one of url, url_variable and command"),
        (entry(on_failure='{ url = "ftp://h/" }'), ScheduleReason.ScheduleInvalid, "no http or https address"),
        (entry(on_failure='{ url = "https://u:p@h/" }'), ScheduleReason.ScheduleInvalid, "carries a credential"),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_refused_with_its_place(
    tmp_path: Path, text: str, reason: RunbookReason | ScheduleReason, detail: str
) -> None:
    with pytest.raises(Refusal) as refused:
        read(SOUND + text, tmp_path)
    assert refused.value.reason is reason
    assert "schedule.toml:6 (entry 2, " in refused.value.detail
    assert detail in refused.value.detail
    assert "u:p@" not in refused.value.detail


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("[[schedule]\n", ScheduleReason.ScheduleFileUnreadable, "line 1"),
        ("name = 1\n", ScheduleReason.ScheduleInvalid, "unknown name"),
        ("schedule = 3\n", ScheduleReason.ScheduleInvalid, "not a list"),
        ("schedule = [3]\n", ScheduleReason.ScheduleInvalid, "entry 1, unnamed"),
        ("[[schedule]]\n" * (SCHEDULES_MAX + 1), ScheduleReason.ScheduleInvalid, f"at most {SCHEDULES_MAX}"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    tmp_path: Path, text: str, reason: ScheduleReason, detail: str
) -> None:
    with pytest.raises(Refusal) as refused:
        read(text, tmp_path)
    assert refused.value.reason is reason
    assert detail in refused.value.detail


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        read_schedules(tmp_path / "absent.toml", load_settings())
    assert refused.value.reason is ScheduleReason.ScheduleFileUnreadable


def test_an_entry_point_that_is_no_job_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="is not the job example-untrue"):
        read(SOUND.replace("example-append", "example-untrue"), tmp_path)


def test_an_address_kept_in_a_variable_is_not_part_of_the_definition(tmp_path: Path) -> None:
    (plain,) = read(SOUND, tmp_path)
    (told,) = read(SOUND + 'on_failure = { url_variable = "WHERE" }\nenabled = true\n', tmp_path)
    assert plain.digest == told.digest
    (other,) = read(SOUND.replace("0 0 3", "0 0 4"), tmp_path)
    assert plain.digest != other.digest
