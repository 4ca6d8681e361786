"""The schedule file: what runs when, checked as a whole before anything runs.

Invariant: a ``Schedule`` has a cron expression with slots, a target that exists, and parameters that the target's
own model has accepted.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from statlib.kernel.digests import digest
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.runbook.catalogue import find_runbook, notebook_folder
from statlib.runbook.credentials import credentials_in
from statlib.runbook.parameters import parse_parameters, plain_parameters
from statlib.schedule.bounds import DURATION_MAX_S, SCHEDULES_MAX
from statlib.schedule.cron import QuartzCron
from statlib.schedule.jobs import find_job
from statlib.schedule.reasons import ScheduleReason

FILE_NAME = "schedule.toml"
_HEADER = re.compile(r"^\s*\[\[\s*schedule\s*\]\]", re.MULTILINE)


class Misfire(StrEnum):
    """What becomes of the newest slot that nobody was there for. Older ones are recorded as missed either way."""

    ONE = "one"  # it is run, once, when a scheduler is back
    SKIP = "skip"  # it is recorded as missed


class OnInterruption(StrEnum):
    """What follows when a run's host was lost."""

    LEAVE = "leave"  # the slot stays interrupted; the next one runs in its time
    RUN_AGAIN = "run_again"  # its slot is run once more


class TargetKind(StrEnum):
    RUNBOOK = "runbook"
    JOB = "job"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Hook(_Part):
    """Whom to tell of a run that did not succeed: exactly one of a webhook and a command.

    ``url_variable`` names the environment variable that holds the webhook's address, for one that is a secret.
    """

    url: str | None = Field(default=None, max_length=2000)
    url_variable: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    command: tuple[str, ...] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(way is not None for way in (self.url, self.url_variable, self.command)) != 1:
            raise ValueError("give one of url, url_variable and command")
        if self.url is not None:
            parts = urlsplit(self.url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("url is no http or https address")
            if parts.username or parts.password:
                raise ValueError("url carries a credential; keep it in the variable that url_variable names")
        return self


class Schedule(_Part):
    """One entry. ``parameters`` are plain JSON values, complete with defaults once the file was read."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,62}$")
    runbook: str | None = None
    job: str | None = None
    cron: str
    parameters: Mapping[str, JsonValue] = Field(default_factory=dict)
    enabled: bool = False
    misfire: Misfire = Misfire.ONE
    on_interruption: OnInterruption = OnInterruption.LEAVE
    max_duration_s: float = Field(default=3600.0, gt=0, le=DURATION_MAX_S)
    on_failure: Hook | None = None

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.runbook is None) == (self.job is None):
            raise ValueError("give one of runbook and job")
        if self.job is not None and self.parameters:
            raise ValueError("a job takes no parameters; it reads the settings")
        return self

    @property
    def target(self) -> str:
        return self.runbook or self.job or ""

    @property
    def kind(self) -> TargetKind:
        return TargetKind.RUNBOOK if self.runbook else TargetKind.JOB

    @property
    def slots(self) -> QuartzCron:
        return QuartzCron.parse(self.cron)

    @property
    def digest(self) -> str:
        """Of everything that decides what runs and when; hooks and the switch may change without a new definition."""
        return digest(self.model_dump(mode="json", exclude={"on_failure", "enabled"}))


def schedule_file(settings: Settings) -> Path:
    """The file that ``schedule.file`` names, else ``schedule.toml`` beside the runbooks."""
    return settings.schedule.file or notebook_folder() / FILE_NAME


def read_schedules(path: Path, settings: Settings) -> tuple[Schedule, ...]:
    """Every schedule of the file, enabled or not, in its order.

    Refuses, naming the entry and its line: ScheduleFileUnreadable, ScheduleInvalid, ScheduleDuplicate, CronInvalid,
    JobUnknown, and what the runbook's own parameters refuse.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(ScheduleReason.ScheduleFileUnreadable, f"{path} cannot be read") from error
    except tomllib.TOMLDecodeError as error:
        raise Refusal(ScheduleReason.ScheduleFileUnreadable, f"{path}: {error}") from error
    if foreign := sorted(set(document) - {"schedule"}):
        raise Refusal(ScheduleReason.ScheduleInvalid, f"{path}: unknown {', '.join(foreign)}; entries are [[schedule]]")
    entries = document.get("schedule", [])
    if not isinstance(entries, list) or len(entries) > SCHEDULES_MAX:
        raise Refusal(ScheduleReason.ScheduleInvalid, f"{path}: not a list of at most {SCHEDULES_MAX} [[schedule]]")
    places = _places(path, text, entries)
    found = tuple(_read(entry, place, settings) for entry, place in zip(entries, places, strict=True))
    seen: dict[str, str] = {}
    for schedule, place in zip(found, places, strict=True):
        if schedule.name in seen:
            raise Refusal(ScheduleReason.ScheduleDuplicate, f"{place}: the name is taken by {seen[schedule.name]}")
        seen[schedule.name] = place
    return found


def _places(path: Path, text: str, entries: list[Any]) -> list[str]:
    """Where each entry is, for people; without a line where a text in the file looks like an entry's header."""
    lines = [text.count("\n", 0, match.end()) + 1 for match in _HEADER.finditer(text)]
    known: list[int | None] = [*lines] if len(lines) == len(entries) else [None] * len(entries)
    places = []
    for number, (entry, line) in enumerate(zip(entries, known, strict=True), start=1):
        name = entry.get("name", "unnamed") if isinstance(entry, dict) else "unnamed"
        where = f"{path}:{line}" if line else f"{path}"
        places.append(f"{where} (entry {number}, {name})")
    return places


def _read(entry: Any, place: str, settings: Settings) -> Schedule:
    try:
        schedule = Schedule.model_validate(entry)
    except ValidationError as error:
        problems = "; ".join(_problem(problem) for problem in error.errors(include_input=False, include_url=False))
        raise Refusal(ScheduleReason.ScheduleInvalid, f"{place}: {problems}") from error
    try:
        QuartzCron.parse(schedule.cron)
        return schedule.model_copy(update={"parameters": _parameters(schedule, settings)})
    except Refusal as refusal:
        raise Refusal(refusal.reason, f"{place}: {refusal.detail}") from refusal


def _parameters(schedule: Schedule, settings: Settings) -> Mapping[str, JsonValue]:
    if schedule.job is not None:
        find_job(schedule.job)
        return {}
    book = find_runbook(schedule.target)
    given, secrets = dict(schedule.parameters), credentials_in(settings)
    return plain_parameters(parse_parameters(book.parameters, given, secrets=secrets, runbook=book.name))


def _problem(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
