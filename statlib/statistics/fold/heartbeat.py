"""A sign of life of fold workers, per protocol that they fold, by the server's clock.

Enabling fold mode asks for it, and so does whoever watches the deployment; no save does. Renewing leaves the control's
version alone, so that no operator's compare-and-set fails of it. Who replaces the whole control from an older reading
may set a heartbeat back, which errs on the safe side.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from pymongo.errors import PyMongoError

from statlib.kernel import telemetry
from statlib.mongo.connection import Mongo
from statlib.statistics.bounds import HEARTBEAT_PERIOD_S
from statlib.statistics.documents import GLOBAL_CONTROL, GLOBAL_ID
from statlib.statistics.hosts import Host
from statlib.statistics.pending import FOLD_PROTOCOL, accepts

PROTOCOLS = tuple(protocol for protocol in (FOLD_PROTOCOL, FOLD_PROTOCOL - 1) if accepts(protocol))


class Beat(StrEnum):
    RENEWED = "Renewed"
    FAILED = "Failed"


def beat(mongo: Mongo, host: str) -> None:
    """Renew the heartbeat of every protocol that this release folds, in one update."""
    fields = {
        f"FoldWorkerHeartbeats.{protocol}": {"RenewedAtUtc": mongo.clock.mongo_now(), "Host": {"$literal": host}}
        for protocol in PROTOCOLS
    }
    mongo.collection(GLOBAL_CONTROL).update_one({"_id": GLOBAL_ID}, [{"$set": fields}])


@contextmanager
def beating(host: Host) -> Iterator[None]:
    """Renew at once, and in a thread every ``HEARTBEAT_PERIOD_S``, for the length of a block."""
    ended = threading.Event()
    beat(host.mongo, host.member_id)
    heart = threading.Thread(target=_keep_beating, args=(host, ended), name="statlib-fold-heartbeat", daemon=True)
    heart.start()
    try:
        yield
    finally:
        ended.set()
        heart.join(timeout=HEARTBEAT_PERIOD_S)


def _keep_beating(host: Host, ended: threading.Event) -> None:
    while not ended.wait(HEARTBEAT_PERIOD_S):
        try:
            beat(host.mongo, host.member_id)
        except PyMongoError:  # the next one tries again; until then it ages, which is what it is for
            telemetry.count("fold.heartbeats", outcome=Beat.FAILED)
        else:
            telemetry.count("fold.heartbeats", outcome=Beat.RENEWED)
