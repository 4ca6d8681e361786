"""A worker process for tests that kill and freeze it. Arguments: which definition, and what to do.

``plain`` works until it is killed. ``turn`` takes a turn for each line of input and prints its last step. ``at N`` ends
itself with SIGKILL right before the N-th statement (from 1, the commit included) of its first batch.
"""

from __future__ import annotations

import os
import signal
import sys

from statlib.backfills.registry import Registry, register
from statlib.backfills.worker import Worker
from statlib.kernel.cancellation import Cancellation
from statlib.kernel.settings import load_settings
from statlib.postgres.connection import connected
from statlib.workers import backfills
from tests.backfilling import DEFINITIONS
from tests.statements import interrupted


def main() -> None:
    registry = Registry((DEFINITIONS[sys.argv[1]],))
    mode, number = sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
    settings = load_settings()
    if mode == "plain":
        backfills.run(settings, registry, Cancellation(), started=lambda _: print("ready", flush=True))
        return
    with connected(settings) as postgres, interrupted(number, lambda _: os.kill(os.getpid(), signal.SIGKILL)):
        register(postgres, registry)
        worker = Worker(postgres, registry)
        print("ready", flush=True)
        for _ in sys.stdin:
            turn = worker.turn()
            print(turn.steps[-1] if turn else "nothing", flush=True)


if __name__ == "__main__":
    main()
