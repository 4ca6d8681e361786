"""A lease holder that was frozen past its lease does nothing when it is woken."""

from __future__ import annotations

import pytest

from statlib.mongo.connection import Mongo
from statlib.mongo.leases import acquire
from tests.children import child
from tests.fault.lease_holder import EFFECTS, ID, LEASES, TTL_S
from tests.servers import fail_command

HOLDER = "tests.fault.lease_holder"


def effects(mongo: Mongo) -> list[str]:
    return sorted(effect["_id"] for effect in mongo.collection(EFFECTS).find())


def lease_document(mongo: Mongo) -> object:
    return mongo.collection(LEASES).find_one({"_id": ID})


def test_a_frozen_holder_is_refused_when_it_is_woken_after_a_takeover(mongo: Mongo) -> None:
    mongo.collection(EFFECTS).insert_one({"_id": "there"})
    with child(HOLDER, mongo.settings) as holder:
        assert holder.ask("in time") == "done"
        holder.freeze()
        mongo.clock.advance(TTL_S)
        taken = acquire(mongo, LEASES, ID, TTL_S)
        before = lease_document(mongo)
        holder.thaw()
        assert holder.ask("too late") == "LeaseLost"
        assert holder.ask("renew") == "LeaseLost"
        assert holder.ask("release") == "done"
    assert taken.generation == 2
    assert lease_document(mongo) == before
    assert effects(mongo) == ["in time", "there"]


@pytest.mark.parametrize("command", ["update", "insert", "commitTransaction"])
def test_a_holder_frozen_inside_its_transaction_either_committed_in_time_or_writes_nothing(
    mongo: Mongo, command: str
) -> None:
    """Its open transaction keeps the takeover waiting, at most until the server ends it for its age."""
    mongo.collection(EFFECTS).insert_one({"_id": "there"})
    with child(HOLDER, mongo.settings) as holder:
        with fail_command(mongo.client, [command], block_ms=300, app_name="lease-holder") as blocked:
            holder.say("frozen")
            blocked.wait_entered()
            holder.freeze()
        mongo.clock.advance(TTL_S)
        taken = acquire(mongo, LEASES, ID, TTL_S)
        at_takeover = effects(mongo)
        before = lease_document(mongo)
        holder.thaw()
        answer = holder.hear()
        assert answer == ("done" if command == "commitTransaction" else "LeaseLost")
    assert taken.generation == 2
    assert effects(mongo) == at_takeover
    assert ("frozen" in at_takeover) == (answer == "done")
    assert lease_document(mongo) == before


def test_a_killed_holder_is_followed_when_its_lease_has_run_out(mongo: Mongo) -> None:
    with child(HOLDER, mongo.settings) as holder:
        assert holder.ask("done before") == "done"
        holder.kill()
    mongo.clock.advance(TTL_S)
    assert acquire(mongo, LEASES, ID, TTL_S).generation == 2
