"""The test kit's own promise: a fail point hits what it names and is off afterwards."""

from __future__ import annotations

import threading

import pytest
from pymongo.errors import AutoReconnect, OperationFailure, WriteConcernError

from statlib.mongo.connection import Mongo
from tests.servers import fail_command


def test_a_fail_point_fails_the_named_command_and_no_other(mongo: Mongo) -> None:
    numbers = mongo.collection("numbers")
    with fail_command(mongo.client, ["insert"], error_code=2):
        with pytest.raises(OperationFailure) as raised:
            numbers.insert_one({"_id": 1})
        assert raised.value.code == 2
        assert numbers.find_one({"_id": 1}) is None


def test_a_fail_point_is_off_after_its_block_even_when_the_block_raises(mongo: Mongo) -> None:
    def fail_within() -> None:
        with fail_command(mongo.client, ["insert"], error_code=2):
            raise KeyError

    with pytest.raises(KeyError):
        fail_within()
    mongo.collection("numbers").insert_one({"_id": 1})


def test_times_ends_a_fail_point_and_skip_delays_it(mongo: Mongo) -> None:
    numbers = mongo.collection("numbers")
    with fail_command(mongo.client, ["insert"], error_code=2, times=1):
        with pytest.raises(OperationFailure):
            numbers.insert_one({"_id": 1})
        numbers.insert_one({"_id": 1})
    with fail_command(mongo.client, ["insert"], error_code=2, skip=1):
        numbers.insert_one({"_id": 2})
        with pytest.raises(OperationFailure):
            numbers.insert_one({"_id": 3})


def test_a_fail_point_scoped_to_another_application_spares_this_one(mongo: Mongo) -> None:
    with fail_command(mongo.client, ["insert"], error_code=2, app_name="somebody-else"):
        mongo.collection("numbers").insert_one({"_id": 1})


def test_a_lost_connection_is_retried_once_by_the_driver_and_then_surfaces(mongo: Mongo) -> None:
    with (
        fail_command(mongo.client, ["insert"], close_connection=True, times=2),
        pytest.raises(AutoReconnect),
    ):
        mongo.collection("numbers").insert_one({"_id": 1})


def test_a_write_concern_error_is_reported_for_a_write_that_was_applied(mongo: Mongo) -> None:
    numbers = mongo.collection("numbers")
    with (
        fail_command(mongo.client, ["insert"], write_concern_error=64, times=1),
        pytest.raises(WriteConcernError),
    ):
        numbers.insert_one({"_id": 1})
    assert numbers.count_documents({"_id": 1}) == 1


def test_waiting_for_a_blocked_command_returns_while_it_is_still_blocked(mongo: Mongo) -> None:
    numbers = mongo.collection("numbers")
    with fail_command(mongo.client, ["insert"], block_ms=1500, times=1) as blocked:
        insert = threading.Thread(target=numbers.insert_one, args=({"_id": 1},))
        insert.start()
        blocked.wait_entered()
        assert numbers.find_one({"_id": 1}) is None
        insert.join(timeout=20)
    assert not insert.is_alive()
    assert numbers.count_documents({}) == 1
