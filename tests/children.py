"""Child processes for tests that freeze and kill: started on the test's own settings, driven line by line."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from statlib.kernel.settings import Settings

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Child:
    """A running module. ``lines`` fills with what it prints."""

    process: subprocess.Popen[str]
    lines: queue.Queue[str]

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self, timeout_s: float = 60.0) -> str:
        """The next line it prints; raises queue.Empty if none comes in time."""
        return self.lines.get(timeout=timeout_s)

    def ask(self, line: str) -> str:
        self.say(line)
        return self.hear()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and only return once it is gone."""
        self.process.kill()
        self.process.wait(timeout=30)


@contextmanager
def child(module: str, settings: Settings, *arguments: str) -> Iterator[Child]:
    """``python -m module arguments`` under ``settings``; has said its first line, "ready", when the block begins."""
    environment = {**os.environ, **_as_environment(settings)}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines: queue.Queue[str] = queue.Queue()
    listener = threading.Thread(target=_listen, args=(process, lines), daemon=True)
    listener.start()
    running = Child(process, lines)
    try:
        assert running.hear() == "ready"
        yield running
    finally:
        process.kill()
        process.wait(timeout=30)
        listener.join(timeout=30)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _listen(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.rstrip("\n"))


def _as_environment(settings: Settings) -> dict[str, str]:
    chosen = settings.statistics
    postgres = {
        "STATLIB__POSTGRES__URL": settings.postgres.url.get_secret_value(),
        "STATLIB__POSTGRES__ADMIN_URL": settings.postgres.admin_url.get_secret_value(),
        "STATLIB__BACKFILLS__CLAIM_TTL_S": str(settings.backfills.claim_ttl_s),
        "STATLIB__BACKFILLS__POLL_S": str(settings.backfills.poll_s),
        "STATLIB__BACKFILLS__TURN_S": str(settings.backfills.turn_s),
        "STATLIB__BACKFILLS__AUTOMATIC": str(settings.backfills.automatic).lower(),
    }
    ledger = {"STATLIB__STATISTICS__LEDGER_MAINTENANCE": "true"}  # only where on: earlier releases know no such setting
    given = (postgres if settings.postgres.url.get_secret_value() else {}) | (
        ledger if chosen.ledger_maintenance else {}
    )
    return given | {
        "STATLIB__DATA_DIR": str(settings.data_dir),
        "STATLIB__MONGO__URI": settings.mongo.uri.get_secret_value(),
        "STATLIB__MONGO__DATABASE": settings.mongo.database,
        "STATLIB__CLOCK__OFFSET_FILE": str(settings.clock.offset_file),
        "STATLIB__STATISTICS__ALLOWLIST": json.dumps([str(project) for project in chosen.allowlist]),
        "STATLIB__STATISTICS__WRITES": str(chosen.writes).lower(),
        "STATLIB__STATISTICS__FAMILIES": json.dumps(sorted(chosen.families)),
        "STATLIB__STATISTICS__FOLD": str(chosen.fold).lower(),
    }
