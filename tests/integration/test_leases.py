"""Leases are exclusive, expire by the server's clock, and are proved by being written."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pymongo
import pytest
from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError

from statlib.kernel import clock as clock_module
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease, acquire, fence, held, release, renew
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import transact

LEASES = "leases"
EFFECTS = "effects"
ID = {"ProjectId": 1, "Scope": "project"}
TTL_S = 30.0


def take(mongo: Mongo, lease_id: dict[str, Any] | None = None) -> Lease:
    return acquire(mongo, LEASES, lease_id or ID, TTL_S)


def stored(mongo: Mongo) -> dict[str, Any]:
    found = mongo.collection(LEASES).find_one({"_id": ID})
    assert found is not None
    return found


def write_under(mongo: Mongo, lease: Lease, name: str = "effect") -> None:
    def body(session: ClientSession) -> None:
        fence(mongo, session, lease)
        mongo.collection(EFFECTS).insert_one({"_id": name}, session=session)

    transact(mongo, body)


def effects(mongo: Mongo) -> list[str]:
    return [effect["_id"] for effect in mongo.collection(EFFECTS).find()]


def test_a_held_lease_is_refused_to_others_and_says_until_when(mongo: Mongo) -> None:
    mine = take(mongo)
    with pytest.raises(Refusal) as refused:
        take(mongo)
    assert refused.value.reason is MongoReason.LeaseHeld
    assert refused.value.state == {"expiresAtUtc": mine.expires_at_utc.isoformat(), "generation": 1}
    assert stored(mongo)["Owner"] == mine.owner


def test_another_lease_of_the_collection_is_free(mongo: Mongo) -> None:
    take(mongo)
    assert take(mongo, {"ProjectId": 1, "Scope": "other"}).generation == 1


def test_of_many_first_acquirers_exactly_one_holds_it(mongo: Mongo) -> None:
    rivals = 6
    for round_ in range(15):
        ready = Barrier(rivals)

        def rush(lease_id: dict[str, Any], ready: Barrier = ready) -> Lease | Refusal:
            ready.wait(timeout=20)
            try:
                return take(mongo, lease_id)
            except Refusal as refusal:
                return refusal

        with ThreadPoolExecutor(rivals) as pool:
            outcomes = list(pool.map(rush, [{"Round": round_}] * rivals))
        won = [outcome for outcome in outcomes if isinstance(outcome, Lease)]
        lost = [outcome.reason for outcome in outcomes if isinstance(outcome, Refusal)]
        assert len(won) == 1
        assert won[0].generation == 1
        assert lost == [MongoReason.LeaseHeld] * (rivals - 1)


def test_a_lease_expires_by_the_servers_clock(mongo: Mongo) -> None:
    first = take(mongo)
    mongo.clock.advance(TTL_S - 5)
    with pytest.raises(Refusal, match="LeaseHeld"):
        take(mongo)
    mongo.clock.advance(5)
    second = take(mongo)
    assert (second.generation, second.owner != first.owner) == (first.generation + 1, True)


@pytest.mark.parametrize("skew_s", [-86400, 86400], ids=["a day behind", "a day ahead"])
def test_a_process_with_a_wrong_clock_neither_steals_a_lease_nor_loses_its_own(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch, skew_s: int
) -> None:
    other = take(mongo)

    class Skewed(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=skew_s)

    monkeypatch.setattr(clock_module, "datetime", Skewed)
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + skew_s))
    assert abs((mongo.clock.local_utc() - datetime.now(UTC)).total_seconds()) > 80000
    with pytest.raises(Refusal, match="LeaseHeld"):
        take(mongo)
    renew(mongo, other, TTL_S)
    write_under(mongo, other)
    assert abs((stored(mongo)["ExpiresAtUtc"] - datetime.now(UTC)).total_seconds()) < 2 * TTL_S


def test_fields_of_another_release_survive_a_takeover(mongo: Mongo) -> None:
    take(mongo)
    mongo.collection(LEASES).update_one({"_id": ID}, {"$set": {"YieldRequestedUntilUtc": 7}})
    mongo.clock.advance(TTL_S)
    take(mongo)
    assert stored(mongo)["YieldRequestedUntilUtc"] == 7


def test_renewing_holds_it_longer_under_the_same_generation(mongo: Mongo) -> None:
    mine = take(mongo)
    mongo.clock.advance(TTL_S - 5)
    renew(mongo, mine, TTL_S)
    mongo.clock.advance(TTL_S - 5)
    with pytest.raises(Refusal, match="LeaseHeld"):
        take(mongo)
    write_under(mongo, mine)
    assert stored(mongo)["LeaseGeneration"] == mine.generation


@pytest.mark.parametrize("taken_over", [True, False], ids=["taken over", "merely expired"])
def test_a_holder_that_slept_past_its_lease_is_refused_everywhere(mongo: Mongo, *, taken_over: bool) -> None:
    late = take(mongo)
    mongo.clock.advance(TTL_S)
    if taken_over:
        take(mongo)
    before = stored(mongo)
    with pytest.raises(Refusal, match="LeaseLost"):
        write_under(mongo, late)
    with pytest.raises(Refusal, match="LeaseLost"):
        renew(mongo, late, TTL_S)
    assert effects(mongo) == []
    assert stored(mongo) == before


@pytest.mark.parametrize(
    "forged", [{"Owner": "somebody"}, {"LeaseGeneration": 2}], ids=["another owner", "another generation"]
)
def test_owner_and_generation_each_refuse_a_late_holder(mongo: Mongo, forged: dict[str, Any]) -> None:
    mine = take(mongo)
    mongo.collection(LEASES).update_one({"_id": ID}, {"$set": forged})
    before = stored(mongo)
    with pytest.raises(Refusal, match="LeaseLost"):
        write_under(mongo, mine)
    with pytest.raises(Refusal, match="LeaseLost"):
        renew(mongo, mine, TTL_S)
    release(mongo, mine)
    assert stored(mongo) == before


def test_releasing_lets_the_next_one_in_at_once_under_a_higher_generation(mongo: Mongo) -> None:
    mine = take(mongo)
    release(mongo, mine)
    assert take(mongo).generation == mine.generation + 1
    with pytest.raises(Refusal, match="LeaseLost"):
        write_under(mongo, mine)


def test_a_late_release_does_not_free_the_lease_of_the_one_who_took_over(mongo: Mongo) -> None:
    late = take(mongo)
    mongo.clock.advance(TTL_S)
    holder = take(mongo)
    release(mongo, late)
    with pytest.raises(Refusal, match="LeaseHeld"):
        take(mongo)
    write_under(mongo, holder)


def test_a_block_releases_its_lease_whatever_happens_inside(mongo: Mongo) -> None:
    def fail_inside() -> None:
        with held(mongo, LEASES, ID, TTL_S):
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    with held(mongo, LEASES, ID, TTL_S) as again:
        assert again.generation == 2


# --- why a fence writes ----------------------------------------------------------------------------------------------


def read_only_check(mongo: Mongo, session: ClientSession, lease: Lease) -> None:
    """What a fence must not be: it looks at the lease and does not touch it."""
    found = mongo.collection(LEASES).find_one({"_id": dict(lease.id)}, session=session)
    assert found is not None
    if (found["Owner"], found["LeaseGeneration"]) != (lease.owner, lease.generation):
        raise Refusal(MongoReason.LeaseLost)


@pytest.mark.parametrize(("check", "committed"), [(read_only_check, ["effect"]), (fence, [])], ids=["reads", "writes"])
def test_only_a_transaction_that_writes_its_lease_conflicts_with_a_takeover(
    mongo: Mongo, check: Any, committed: list[str]
) -> None:
    late = take(mongo)
    mongo.collection(EFFECTS).insert_one({"_id": "read first"})

    def body(session: ClientSession) -> None:
        mongo.collection(EFFECTS).find_one({}, session=session)  # pins the snapshot
        if stored(mongo)["LeaseGeneration"] == late.generation:
            mongo.clock.advance(TTL_S)
            take(mongo)
            write_under(mongo, take_again(mongo), "of the new holder")
        check(mongo, session, late)
        mongo.collection(EFFECTS).insert_one({"_id": "effect"}, session=session)

    if check is fence:
        with pytest.raises(Refusal, match="LeaseLost"):
            transact(mongo, body)
    else:
        transact(mongo, body)
    assert [name for name in effects(mongo) if name == "effect"] == committed


def take_again(mongo: Mongo) -> Lease:
    """The stored lease, as its holder has it."""
    document = stored(mongo)
    return Lease(LEASES, ID, document["Owner"], document["LeaseGeneration"], document["ExpiresAtUtc"])


def test_a_takeover_waits_for_a_transaction_that_has_fenced_in_time(mongo: Mongo) -> None:
    mine = take(mongo)

    def body(session: ClientSession) -> None:
        fence(mongo, session, mine)
        mongo.clock.advance(TTL_S)
        with pytest.raises(PyMongoError) as waited, pymongo.timeout(1):
            take(mongo)
        assert waited.value.timeout
        mongo.collection(EFFECTS).insert_one({"_id": "effect"}, session=session)

    transact(mongo, body, reruns_max=0)
    assert effects(mongo) == ["effect"]
    assert take(mongo).generation == mine.generation + 1
