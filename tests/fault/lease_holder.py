"""A process that takes a lease and acts under it when told to. Started by ``test_leases.py``."""

from __future__ import annotations

import sys

from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import load_settings
from statlib.mongo.connection import Mongo, connected
from statlib.mongo.leases import Lease, acquire, fence, release, renew
from statlib.mongo.transactions import transact

LEASES = "leases"
EFFECTS = "effects"
ID = {"ProjectId": 1, "Scope": "project"}
TTL_S = 30.0


def act(mongo: Mongo, lease: Lease, name: str) -> str:
    def body(session: ClientSession) -> None:
        fence(mongo, session, lease)
        mongo.collection(EFFECTS).insert_one({"_id": name}, session=session)

    try:
        match name:
            case "renew":
                renew(mongo, lease, TTL_S)
            case "release":
                release(mongo, lease)
            case _:
                transact(mongo, body)
    except Refusal as refusal:
        return refusal.reason.name
    return "done"


def main() -> None:
    with connected(load_settings(), app_name="lease-holder") as mongo:
        lease = acquire(mongo, LEASES, ID, TTL_S)
        print("ready", flush=True)
        for line in sys.stdin:
            print(act(mongo, lease, line.strip()), flush=True)


if __name__ == "__main__":
    main()
