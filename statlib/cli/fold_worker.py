"""``statlib worker fold``."""

from __future__ import annotations

import signal
import threading

import click

from statlib.cli.output import answer, counted, json_option

EXIT_LEFT = 4


@click.command("fold")
@click.option("--once", is_flag=True, help="Fold what is pending now, and exit: 4 if anything had to be left.")
@json_option
def fold(*, once: bool) -> None:
    """Carry what saves left in their documents into rows, until a signal ends it; the batch at hand is finished.

    It works on the projects of statistics.allowlist that fold, or did. Run as many as you like: a project is one
    worker's at a time. While none runs, saves go on, and readers add up what is pending. Where
    statistics.ledger_maintenance is on, it also compacts the ledgers of all projects of the allowlist.
    """
    from statlib.kernel.settings import load_settings  # noqa: PLC0415
    from statlib.mongo.connection import connected  # noqa: PLC0415
    from statlib.mongo.probe import probe  # noqa: PLC0415
    from statlib.review.catalogue import REVIEW  # noqa: PLC0415
    from statlib.workers.fold import FoldWorker, fold_host  # noqa: PLC0415

    stop = threading.Event()
    with connected(load_settings(), app_name="statlib-fold") as mongo:
        probe(mongo)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        with fold_host(mongo) as host:
            worker = FoldWorker(host, REVIEW, stop)
            if once:
                worker.run_once()
            else:
                worker.run(lambda trouble: click.echo(f"not done: {trouble}", err=True))
    worked = worker.worked
    answer(
        worked,
        [
            f"{counted(worked.entries, 'entry', 'entries')} folded in {counted(worked.batches, 'batch', 'batches')}, "
            f"{worked.quarantined:,} put into quarantine",
            *([f"{counted(worked.compacted, 'row')} of ledgers compacted"] if worked.compacted else []),
            *(f"left pending in {project}: {why}" for project, why in worked.left.items()),
        ],
    )
    if once and worked.left:
        raise SystemExit(EXIT_LEFT)
