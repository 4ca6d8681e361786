"""``statlib worker backfills``: turns, until the process is told to stop. Any number of them may run, anywhere."""

from __future__ import annotations

from collections.abc import Callable

from statlib.backfills.controls import CHANNEL
from statlib.backfills.health import standard_signals
from statlib.backfills.registry import Registry
from statlib.backfills.service import opened
from statlib.backfills.worker import Worker, work
from statlib.kernel.cancellation import Cancellation
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.postgres.notifications import listening


def run(
    settings: Settings,
    registry: Registry,
    cancellation: Cancellation,
    *,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Work until ``cancellation``. ``started`` is told the worker's name once it may claim.

    Refuses as ``opened`` and ``prepare`` do: a worker without its schema has nothing to wait for.
    """
    with opened(settings, registry, app_name="statlib-worker") as backfills:
        backfills.prepare()
        worker = Worker(backfills.postgres, registry, standard_signals(settings.backfills), cancellation)
        with listening(settings, CHANNEL) as listener:
            started(worker.owner)

            def idle(seconds: float) -> None:
                try:
                    backfills.start_required()
                except Refusal:
                    return  # somebody else is at the row; the next look finds it
                if not listener.wait(seconds) and not listener.healthy:
                    cancellation.wait(seconds)

            work(worker, sleep=idle, idle_s=settings.backfills.poll_s)
