"""Keeping leases while one long command runs: a thread renews them, as long as this process lives and is not frozen.

So a lease can be short, and a dead owner's work is taken over soon, however long that work may take. A renewal that is
refused ends the keeping and nothing else: whether the leases are still held is decided where it matters, by ``fence``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from pymongo.errors import PyMongoError

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.leases import Lease, renew

RENEWALS_PER_TTL = 3  # one may be late and one may fail before a lease runs out


@contextmanager
def kept(mongo: Mongo, leases: Collection[Lease], ttl_s: float, *, longest_s: float) -> Iterator[None]:
    """Renew ``leases`` for ``ttl_s`` each, three times per ``ttl_s``, until the block ends.

    After ``longest_s`` they are left to run out: an owner that hangs without dying must not hold them for ever.
    """
    ended = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(mongo, leases, ttl_s, longest_s, ended), name="statlib-leases", daemon=True
    )
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()


def _keep(mongo: Mongo, leases: Collection[Lease], ttl_s: float, longest_s: float, ended: threading.Event) -> None:
    until = time.monotonic() + longest_s
    while not ended.wait(ttl_s / RENEWALS_PER_TTL) and time.monotonic() < until:
        try:
            for lease in leases:
                renew(mongo, lease, ttl_s)
        except Refusal:
            return
        except PyMongoError:  # the server was away: the next renewal may still come in time
            continue
