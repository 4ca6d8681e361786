"""Fold workers in processes of their own, killed or frozen at an exact command of a turn. The kit is the savers'."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import SecretStr

from statlib.kernel.settings import ClockSettings, MongoSettings, Settings, StatisticsSettings
from statlib.review.catalogue import REVIEW
from statlib.statistics.fold.turn import fold_project
from tests.fault.savers import Signal, serve
from tests.interruptions import Interrupter, When, host_with

APP_NAME = "statlib-tests-folder"


@dataclass(frozen=True)
class FoldJob:
    """One turn at ``project``, during which the process sends itself ``signal`` at a command."""

    settings: Settings
    project: UUID
    signal: Signal
    when: When
    number: int

    def to_wire(self) -> dict[str, Any]:
        return {
            "uri": self.settings.mongo.uri.get_secret_value(),
            "database": self.settings.mongo.database,
            "clock": str(self.settings.clock.offset_file),
            "families": sorted(self.settings.statistics.families),
            "project": str(self.project),
            "signal": self.signal.value,
            "when": self.when.value,
            "number": self.number,
        }


def _fold(wire: Mapping[str, Any]) -> str:
    project, number = UUID(wire["project"]), signal.Signals[wire["signal"]].value
    settings = Settings(
        mongo=MongoSettings(uri=SecretStr(wire["uri"]), database=wire["database"]),
        clock=ClockSettings(offset_file=Path(wire["clock"])),
        statistics=StatisticsSettings(
            allowlist=frozenset({project}), families=frozenset(wire["families"]), writes=True
        ),
    )
    interrupter = Interrupter()
    with (
        host_with(settings, interrupter, app_name=APP_NAME) as host,
        interrupter.armed(When(wire["when"]), wire["number"], lambda: os.kill(os.getpid(), number)),
    ):
        return fold_project(host, REVIEW, project).stopped.value


if __name__ == "__main__":
    serve(_fold)
