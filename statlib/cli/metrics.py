"""``statlib metrics``: the deployment as Prometheus sees it."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack

import click

from statlib.cli.output import answer, json_option
from statlib.kernel.settings import load_settings
from statlib.mongo.connection import connected

LOOPBACK = "127.0.0.1"
PORT_DEFAULT = 9464  # where exporters of OpenTelemetry listen


@click.command()
@click.option("--address", default=LOOPBACK, show_default=True, help="Where to listen. The endpoint asks for no token.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT_DEFAULT, show_default=True, help="0: any free port."
)
@json_option
def metrics(address: str, port: int) -> None:
    """Serve the deployment's metrics for Prometheus until a signal ends it.

    Gauges are read from the database when somebody scrapes: families by state and gate, room in the ledger, live
    hosts, slots of schedules; and from PostgreSQL, where one is configured, data backfills by lifecycle, their
    progress, claims, failures and validations. No label carries an identifier. Alert rules, a dashboard: docs/deploy.
    """
    from statlib.workers.deployment_gauges import DeploymentGauges  # noqa: PLC0415 - needs the extra `metrics`
    from statlib.workers.exposition import exposed  # noqa: PLC0415

    stop = threading.Event()
    settings = load_settings()
    with (
        connected(settings, app_name="statlib-metrics") as mongo,
        exposed(address=address, port=port) as url,
        ExitStack() as stack,
    ):
        DeploymentGauges(mongo).declare()
        if settings.postgres.url.get_secret_value():
            from statlib.backfills.registry import installed  # noqa: PLC0415 - needs the extra `postgres`
            from statlib.workers.backfill_gauges import backfill_gauges  # noqa: PLC0415

            stack.enter_context(backfill_gauges(settings, installed())).declare()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        answer({"url": url}, f"metrics: {url}")
        stop.wait()
