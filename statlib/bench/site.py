"""A generated project under statistics, on a server of the benchmark's own: where reads and rebuilds are measured."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from pydantic import SecretStr

from statlib.bench.projects import Shape, generated_project, insert_project, insert_studies
from statlib.kernel.settings import ClockSettings, MongoSettings, Settings, StatisticsSettings
from statlib.local.replica_set import ReplicaSet, replica_set
from statlib.mongo.connection import Mongo, connected
from statlib.mongo.probe import probe
from statlib.review.catalogue import REVIEW
from statlib.review.documents import Project
from statlib.statistics import storage
from statlib.statistics.documents import Mode
from statlib.statistics.hosts import Host, Role, registered
from statlib.statistics.modes import create_under_statistics

CACHE_GB = 1  # holds 100,000 studies, as a deployment's own would


@dataclass(frozen=True, slots=True)
class Site:
    """A project of ``studies`` studies and a host on it; nothing is backfilled yet."""

    host: Host
    settings: Settings
    folder: Path
    project: UUID
    studies: int

    @property
    def mongo(self) -> Mongo:
        return self.host.mongo


@contextmanager
def server_of_its_own(settings: Settings) -> Iterator[ReplicaSet]:
    with replica_set(settings=settings) as server:
        with connected(_settings(server, "admin")) as mongo:
            mongo.client.admin.command("setParameter", 1, wiredTigerEngineRuntimeConfig=f"cache_size={CACHE_GB}G")
        yield server


@contextmanager
def site(server: ReplicaSet, shape: Shape) -> Iterator[Site]:
    """A database of its own per size. The project is born under statistics, with every family on."""
    project = generated_project(shape)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="statlib-bench-")))
        settings = _settings(server, f"bench_{shape.studies}", project).model_copy(
            update={"clock": ClockSettings(offset_file=folder / "clock_offset_ms")}
        )
        host = stack.enter_context(registered(stack.enter_context(connected(settings)), Role.API))
        storage.initialise(host.mongo, REVIEW, fleet=Mode.ENABLED)
        insert_project(host.mongo, project)
        create_under_statistics(host.mongo, REVIEW, project.id)
        insert_studies(host.mongo, project, shape)
        yield Site(host, settings, folder, project.id, shape.studies)


def server_facts(one: Site) -> str:
    return f"MongoDB {probe(one.mongo).version}, one node, cache {CACHE_GB} GB"


def peak_resident_mb() -> float:
    """The most that this process ever held, its generator of studies included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _settings(server: ReplicaSet, database: str, project: Project | None = None) -> Settings:
    chosen = StatisticsSettings()
    if project is not None:
        chosen = StatisticsSettings(
            allowlist=frozenset({project.id}), writes=True, fold=True, families=frozenset(REVIEW.families)
        )
    return Settings(mongo=MongoSettings(uri=SecretStr(server.uri), database=database), statistics=chosen)
