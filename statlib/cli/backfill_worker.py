"""``statlib worker backfills``."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import click

from statlib.cli.output import answer, json_option


@click.command()
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve what this process counts for Prometheus, on loopback. 0: any free port.",
)
@json_option
def backfills(metrics_port: int | None) -> None:
    """Advance data backfills that were started, a claim at a time, until a signal ends it.

    It takes over what lost workers left once their claims have run out, and rests while the foreground needs the
    database (backfills.active_sessions_max, lock_waits_max, replication_lag_max_s).
    """
    from statlib.backfills.registry import installed  # noqa: PLC0415 - the extra `postgres`
    from statlib.kernel.cancellation import CancelCause, Cancellation  # noqa: PLC0415
    from statlib.kernel.settings import load_settings  # noqa: PLC0415
    from statlib.workers.backfills import run  # noqa: PLC0415

    cancellation = Cancellation()
    with ExitStack() as stack:
        served = ""
        if metrics_port is not None:
            from statlib.workers.exposition import exposed  # noqa: PLC0415 - needs the extra `metrics`

            served = stack.enter_context(exposed(port=metrics_port))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: cancellation.cancel(CancelCause.STOPPING))
        run(
            load_settings(),
            installed(),
            cancellation,
            started=lambda owner: answer(
                {"owner": owner, "metrics": served or None},
                f"worker {owner} is working" + (f"; metrics: {served}" if served else ""),
            ),
        )
