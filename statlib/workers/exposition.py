"""The meter of this process as a page that Prometheus scrapes.

``statlib metrics`` serves one with the deployment's gauges. An application calls ``exposed`` in each of its
processes, for what those count themselves: saves, bundles, renewals.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server

from statlib.kernel.refusals import Fault

PREFIX = "statlib"
LOOPBACK = "127.0.0.1"


@contextmanager
def exposed(*, address: str = LOOPBACK, port: int = 0) -> Iterator[str]:
    """Serve ``/metrics`` until the block ends; yields its URL. ``port`` 0: any free one.

    The endpoint asks nobody who they are: bind it to loopback, or to a network that only Prometheus reaches. Once in
    a process, because a process has one meter. Fault if the port is taken.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise Fault(f"cannot listen on {address}:{port}", remedy="Give another --port or --address.") from error
    provider = MeterProvider(
        metric_readers=[
            PrometheusMetricReader(disable_target_info=True, prefix=PREFIX, scope_info_enabled=False, registry=registry)
        ]
    )
    metrics.set_meter_provider(provider)
    try:
        yield f"http://{address}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        provider.shutdown()
