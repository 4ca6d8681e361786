"""A host of a run's own: for loads, saves and reads, which an application's process does and an operator does not.

Operators' actions go through ``run.client``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from statlib.kernel.settings import Settings
from statlib.mongo.connection import connected
from statlib.statistics.hosts import Host, Role, registered


@contextmanager
def application_host(settings: Settings) -> Iterator[Host]:
    """An ``api`` host for the length of a block, with the settings given."""
    with connected(settings, app_name="statlib-runbook") as mongo, registered(mongo, Role.API) as host:
        yield host
