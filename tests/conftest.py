"""Fixtures that every tier shares. Nothing here starts a server unless a test asks for one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from statlib.kernel.identifiers import new_token
from statlib.kernel.settings import ClockSettings, MongoSettings, Settings
from statlib.local import process
from statlib.local.postgres import postgres_server
from statlib.local.replica_set import ReplicaSet, replica_set
from statlib.mongo.connection import Mongo, connected
from tests.postgres import Database, Databases


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A developer's own environment, statlib.toml or running server never reaches a test."""
    for name in [name for name in os.environ if name.startswith("STATLIB_")]:
        monkeypatch.delenv(name)
    empty = tmp_path_factory.getbasetemp() / "empty.toml"
    empty.touch()
    monkeypatch.setenv("STATLIB_CONFIG", str(empty))


@pytest.fixture(scope="session")
def mongo_server() -> Iterator[ReplicaSet]:
    """One single-node replica set for the session, with fail points allowed and a one-second TTL monitor."""
    with replica_set(for_tests=True, settings=Settings(mongo=MongoSettings())) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """One PostgreSQL for the session, with a migrated template that tests' databases are copied from."""
    with postgres_server(settings=Settings()) as server:
        databases = Databases(server)
        databases.prepare(tmp_path_factory.mktemp("postgres"))
        yield databases


@pytest.fixture
def database(postgres_databases: Databases, tmp_path: Path) -> Iterator[Database]:
    """A migrated, empty PostgreSQL database of the test's own; dropped afterwards."""
    made = postgres_databases.new(tmp_path)
    yield made
    postgres_databases.drop(made.name)


@pytest.fixture
def settings(mongo_server: ReplicaSet, tmp_path: Path) -> Settings:
    """Settings of a fresh, uniquely named database and of a clock that the test may advance."""
    return settings_on(mongo_server, tmp_path)


@pytest.fixture
def mongo(settings: Settings) -> Iterator[Mongo]:
    """A connected, empty database with a client of its own; dropped afterwards."""
    with connected(settings, app_name="statlib-tests") as opened:
        yield opened
        opened.client.drop_database(opened.database)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Settings]:
    """Settings of a data folder that has no server yet; one that the test starts is stopped afterwards."""
    settings = Settings(data_dir=tmp_path / "data folder")
    yield settings
    process.kill(settings.data_dir / "mongo" / "db")


def settings_on(server: ReplicaSet, folder: Path) -> Settings:
    """Settings that point at ``server`` and keep everything else in ``folder``."""
    return Settings(
        data_dir=folder / "data",
        mongo=MongoSettings(uri=SecretStr(server.uri), database=f"t{new_token()}"),
        clock=ClockSettings(offset_file=folder / "clock_offset_ms"),
    )
