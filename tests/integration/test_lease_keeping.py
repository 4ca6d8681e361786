"""Leases are renewed while a long command runs, and by nobody who lost them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime

import pytest
from pymongo.errors import AutoReconnect

from statlib.kernel.refusals import Refusal
from statlib.mongo import lease_keeping
from statlib.mongo.connection import Mongo
from statlib.mongo.lease_keeping import kept
from statlib.mongo.leases import Lease, acquire, renew

LEASES = "tdKept"
TTL_S = 0.6
LONGEST_S = 120.0


def expiry(mongo: Mongo, lease: Lease) -> datetime:
    found = mongo.collection(LEASES).find_one({"_id": dict(lease.id)})
    assert found is not None
    expires: datetime = found["ExpiresAtUtc"]
    return expires


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.01)


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "statlib-leases"]


def test_leases_outlast_their_length_while_they_are_kept(mongo: Mongo) -> None:
    held = [acquire(mongo, LEASES, {"of": name}, 60) for name in ("a", "b")]
    first = {lease.owner: expiry(mongo, lease) for lease in held}
    with kept(mongo, held, 90.0, longest_s=LONGEST_S):
        assert len(keepers()) == 1
    assert keepers() == [], "the thread ends with the block"
    assert {lease.owner: expiry(mongo, lease) for lease in held} == first, "a short block renews nothing"
    with kept(mongo, held, TTL_S, longest_s=LONGEST_S):
        until(lambda: all(expiry(mongo, lease) != first[lease.owner] for lease in held))
        with pytest.raises(Refusal, match="LeaseHeld"):
            acquire(mongo, LEASES, {"of": "a"}, 60)


def test_a_lost_lease_is_not_taken_back_and_ends_the_keeping(mongo: Mongo) -> None:
    lost = acquire(mongo, LEASES, {"of": "a"}, 60)
    mongo.collection(LEASES).update_one({"_id": {"of": "a"}}, {"$set": {"Owner": "another"}})
    before = expiry(mongo, lost)
    with kept(mongo, [lost], TTL_S, longest_s=LONGEST_S):
        until(lambda: keepers() == [])
    assert expiry(mongo, lost) == before


def test_leases_are_kept_no_longer_than_their_bound(mongo: Mongo) -> None:
    held = acquire(mongo, LEASES, {"of": "a"}, 60)
    before = expiry(mongo, held)
    with kept(mongo, [held], TTL_S, longest_s=0.0):
        until(lambda: keepers() == [])
    assert expiry(mongo, held) == before
    renew(mongo, held, 1)  # and nobody else's for that


def test_a_renewal_that_cannot_reach_the_server_is_tried_again(mongo: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    held = acquire(mongo, LEASES, {"of": "a"}, 60)
    before, failed = expiry(mongo, held), threading.Event()

    def once_away(of: Mongo, lease: Lease, ttl_s: float) -> None:
        if not failed.is_set():
            failed.set()
            raise AutoReconnect
        renew(of, lease, ttl_s)

    monkeypatch.setattr(lease_keeping, "renew", once_away)
    with kept(mongo, [held], TTL_S, longest_s=LONGEST_S):
        until(lambda: expiry(mongo, held) != before)
    assert failed.is_set()
