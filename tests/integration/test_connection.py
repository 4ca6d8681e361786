"""What a connection guarantees whatever its address says, and what its counter counts."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from pydantic import SecretStr
from pymongo import MongoClient, ReadPreference

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.local.replica_set import ReplicaSet
from statlib.mongo.command_counter import CommandCount, counting
from statlib.mongo.connection import Mongo, connect, connected, mongo_of
from statlib.mongo.reasons import MongoReason
from tests.servers import fail_command


def at(settings: Settings, uri: str) -> Settings:
    mongo = settings.mongo.model_copy(update={"uri": SecretStr(uri), "server_selection_timeout_s": 2.0})
    return settings.model_copy(update={"mongo": mongo})


def test_an_address_cannot_weaken_the_concerns(settings: Settings, mongo_server: ReplicaSet) -> None:
    weaker = "&w=1&readPreference=secondary&readConcernLevel=local&retryWrites=false&uuidRepresentation=csharpLegacy"
    with connected(at(settings, mongo_server.uri + weaker)) as mongo:
        for source in (mongo.client, mongo.database, mongo.collection("c")):
            assert source.write_concern.document == {"w": "majority"}
            assert source.read_concern.document == {"level": "majority"}
            assert source.read_preference == ReadPreference.PRIMARY
        assert mongo.client.options.retry_writes
        project = uuid4()
        mongo.collection("c").insert_one({"_id": project})
        stored = mongo.collection("c").aggregate([{"$project": {"is": {"$type": "$_id"}}}]).next()
        assert stored["_id"] == project
        assert stored["_id"].bytes == project.bytes
        mongo.client.drop_database(mongo.database)


def test_times_come_back_aware_and_in_utc(mongo: Mongo) -> None:
    moment = datetime(2026, 3, 1, 12, 30, 15, 123000, tzinfo=UTC)
    mongo.collection("c").insert_one({"_id": 1, "At": moment})
    found = mongo.collection("c").find_one({"_id": 1})
    assert found is not None
    assert found["At"] == moment
    assert found["At"].tzinfo is UTC


def test_wrong_credentials_are_refused_without_being_shown(settings: Settings, mongo_server: ReplicaSet) -> None:
    uri = mongo_server.uri.replace("mongodb://", "mongodb://operator:hunter2@")
    with pytest.raises(Refusal) as refused:
        connect(at(settings, uri))
    assert refused.value.reason is MongoReason.CredentialsRefused
    assert "hunter2" not in f"{refused.value}{refused.value.remedy}"


def test_a_set_of_another_name_is_unreachable(settings: Settings, mongo_server: ReplicaSet) -> None:
    with pytest.raises(Refusal) as refused:
        connect(at(settings, mongo_server.uri.replace("rs0", "rs1")))
    assert refused.value.reason is MongoReason.ServerUnreachable


def test_an_impossible_database_name_is_refused(mongo: Mongo) -> None:
    wrong = mongo.settings.mongo.model_copy(update={"database": "a.b"})
    with pytest.raises(Refusal) as refused:
        mongo_of(mongo.client, mongo.settings.model_copy(update={"mongo": wrong}))
    assert refused.value.reason is MongoReason.AddressInvalid


def test_commands_are_counted_by_name_in_order_and_only_within_the_block(mongo: Mongo) -> None:
    numbers = mongo.collection("numbers")
    numbers.insert_one({"_id": 0})
    with counting(mongo.client) as count:
        numbers.insert_many([{"_id": 1}, {"_id": 2}])
        list(numbers.find(batch_size=2))
        numbers.insert_one({"_id": 3})
    numbers.delete_many({})
    assert count.names == ("insert", "find", "getMore", "insert")
    assert count.by_name == {"insert": 2, "find": 1, "getMore": 1}
    assert count.total == 4


def test_a_retry_counts_as_a_command(mongo: Mongo) -> None:
    with (
        fail_command(mongo.client, ["insert"], close_connection=True, times=1),
        counting(mongo.client) as count,
    ):
        mongo.collection("numbers").insert_one({"_id": 1})
    assert count.by_name["insert"] == 2


def test_nested_blocks_each_count_what_they_enclose(mongo: Mongo) -> None:
    numbers = mongo.collection("numbers")
    with counting(mongo.client) as outer:
        numbers.find_one({})
        with counting(mongo.client) as inner:
            numbers.find_one({})
        numbers.find_one({})
    assert (outer.total, inner.total) == (3, 1)


def test_another_threads_commands_are_not_counted(mongo: Mongo) -> None:
    numbers = mongo.collection("numbers")
    theirs: list[CommandCount] = []

    def read_twice() -> None:
        with counting(mongo.client) as count:
            numbers.find_one({})
            numbers.find_one({})
        theirs.append(count)

    with counting(mongo.client) as ours:
        reader = threading.Thread(target=read_twice)
        reader.start()
        reader.join(timeout=20)
        assert not reader.is_alive()
        numbers.find_one({})
    assert (ours.total, [count.total for count in theirs]) == (1, [2])


def test_a_client_from_elsewhere_has_no_counter() -> None:
    with MongoClient[dict[str, object]]("127.0.0.1:1", connect=False) as client, pytest.raises(LookupError):
        counting(client).__enter__()
