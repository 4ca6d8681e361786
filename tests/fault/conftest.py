"""Three real servers for tests that kill, freeze and step down; started by the first test that asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statlib.kernel.settings import MongoSettings, Settings
from statlib.local.replica_set import ReplicaSet, replica_set
from statlib.mongo.connection import Mongo, connected
from tests.conftest import settings_on


@pytest.fixture(scope="session")
def _three_servers() -> Iterator[ReplicaSet]:
    with replica_set(nodes=3, for_tests=True, settings=Settings(mongo=MongoSettings())) as servers:
        yield servers


@pytest.fixture
def three_nodes(_three_servers: ReplicaSet) -> Iterator[ReplicaSet]:
    """A three-node replica set with a primary and two joined secondaries, whole again after each test."""
    _three_servers.heal()
    yield _three_servers
    _three_servers.heal()


@pytest.fixture
def mongo_on_three(three_nodes: ReplicaSet, tmp_path: Path) -> Iterator[Mongo]:
    """Like ``mongo``, on the three-node set."""
    with connected(settings_on(three_nodes, tmp_path), app_name="statlib-tests") as opened:
        yield opened
        three_nodes.heal()
        opened.client.drop_database(opened.database)
