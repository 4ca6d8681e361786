"""A host that runs schedules, as ``statlib schedule run`` does; started and killed by ``test_two_schedulers.py``."""

from __future__ import annotations

import os

from statlib.kernel.settings import load_settings
from statlib.mongo.connection import connected
from statlib.schedule.definitions import read_schedules, schedule_file
from statlib.schedule.scheduler import Scheduler
from statlib.statistics.hosts import Role, registered


def main() -> None:
    # Runs and the server that forks them inherit the standard output; the test must see its end when this host dies.
    heard = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def say(line: str) -> None:
        if line.startswith("waiting for"):
            heard.write("draining\n")

    settings = load_settings()
    schedules = read_schedules(schedule_file(settings), settings)
    with connected(settings, app_name="scheduler-host") as mongo:
        scheduler = Scheduler(mongo, schedules, say)
        scheduler.start()
        with registered(mongo, Role.PROJECT_MANAGEMENT):
            heard.write("ready\n")
            scheduler.serve()


if __name__ == "__main__":
    main()
