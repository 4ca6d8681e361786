"""``statlib worker``: processes that work in the background until a signal ends them."""

from __future__ import annotations

import os
import shlex
import signal
import threading

import click

from statlib.cli.backfill_worker import backfills
from statlib.cli.fold_worker import fold
from statlib.cli.output import answer, json_option
from statlib.kernel.settings import OutboxSettings, load_settings
from statlib.mongo.connection import connected
from statlib.passes.delivery import Command, Receiver, Webhook

EXIT_NOT_TAKEN = 4


@click.group()
def worker() -> None:
    """Run a background worker. Run as many of each as you like: they share the work."""


@worker.command()
@click.option("--once", is_flag=True, help="Deliver what is owed now, and exit: 4 if a delivery failed.")
@json_option
def outbox(*, once: bool) -> None:
    """Tell a receiver which families of which project to read again, at least once, until a signal ends it.

    The receiver is outbox.url (a webhook, or outbox.url_variable if the address is a secret) or outbox.command, which
    reads the message from standard input. Changes between two deliveries are told as one.
    """
    from statlib.mongo.probe import probe  # noqa: PLC0415
    from statlib.workers.outbox import Round, dispatch_due  # noqa: PLC0415

    settings = load_settings()
    receiver = _receiver(settings.outbox)
    stop = threading.Event()
    taken = failed = 0
    last = Round(0, 0)
    with connected(settings, app_name="statlib-outbox") as mongo:
        probe(mongo)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        while not stop.is_set():
            last = dispatch_due(mongo, receiver, timeout_s=settings.outbox.timeout_s)
            taken, failed = taken + last.taken, failed + last.failed
            if last.failure:
                click.echo(f"not taken: {last.failure}", err=True)
            if once:
                break
            stop.wait(settings.outbox.poll_s)
    answer({"taken": taken, "failed": failed, "failure": last.failure}, f"{taken} taken, {failed} failed")
    if once and last.failed:
        raise SystemExit(EXIT_NOT_TAKEN)


def _receiver(settings: OutboxSettings) -> Receiver:
    if sum(map(bool, (settings.url, settings.url_variable, settings.command))) != 1:
        raise click.UsageError("set exactly one of outbox.url, outbox.url_variable and outbox.command")
    if settings.command:
        return Command(shlex.split(settings.command))
    url = settings.url or os.environ.get(settings.url_variable, "")
    if not url:
        raise click.UsageError(f"outbox.url_variable names {settings.url_variable}, which is not set")
    return Webhook(url)


worker.add_command(backfills)
worker.add_command(fold)
