"""One database for all tests of this folder that do not ask for one of their own: emptied is faster than created."""

from __future__ import annotations

from pathlib import Path

import pytest

from statlib.kernel.settings import ClockSettings, Settings
from statlib.local.replica_set import ReplicaSet
from statlib.mongo.connection import connected
from statlib.review.documents import STUDIES
from statlib.statistics.pending_index import PENDING_INDEX
from tests.conftest import settings_on


@pytest.fixture(scope="session")
def _one_database(mongo_server: ReplicaSet, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings_on(mongo_server, tmp_path_factory.mktemp("one-database"))


@pytest.fixture
def emptied(_one_database: Settings, tmp_path: Path) -> Settings:
    """Settings of a database whose collections are empty, with the indexes that a start-up makes, and of a clock of the
    test's own."""
    settings = _one_database.model_copy(update={"clock": ClockSettings(offset_file=tmp_path / "clock_offset_ms")})
    with connected(settings) as mongo:
        for name in mongo.database.list_collection_names():
            mongo.collection(name).delete_many({})
        if PENDING_INDEX in mongo.collection(STUDIES).index_information():
            mongo.collection(STUDIES).drop_index(PENDING_INDEX)
    return settings
