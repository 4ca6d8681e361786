"""Hosts: processes that may write, read or maintain, and the settings they do so under.

Every host registers itself, its allowlist and its flags, and renews that by the server's clock. Readers refuse
to serve a project that live hosts disagree about, so a process with other settings is noticed before it does harm.
Invariant: writers, readers and workers run only inside a host.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from typing import Any
from uuid import UUID

from pymongo.errors import PyMongoError

from statlib.kernel import telemetry
from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.statistics.bounds import HOST_ALLOWLIST_MAX, MEMBER_LIVE_S, MEMBER_RENEWAL_S
from statlib.statistics.documents import MEMBER
from statlib.statistics.ledger import LedgerBounds
from statlib.statistics.pending import FOLD_PROTOCOL
from statlib.statistics.reasons import OperateReason, SaveReason
from statlib.statistics.turns import Turns


class Role(StrEnum):
    """``API`` reads and writes; ``PROJECT_MANAGEMENT`` runs workers and schedules."""

    API = "api"
    PROJECT_MANAGEMENT = "project-management"


class Renewal(StrEnum):
    RENEWED = "Renewed"
    FAILED = "Failed"


@dataclass(frozen=True)
class Host:
    """A registered process. Its settings are those of its start: they are read once, as every release promised.

    ``folding_seen`` are projects of which this process knows that they folded once, which stays true for ever.
    """

    mongo: Mongo
    role: Role
    member_id: str
    allowlist: frozenset[UUID]
    writes: bool
    families: frozenset[str]
    fold: bool = False
    fold_worker: bool = False
    ledger: LedgerBounds = field(default_factory=LedgerBounds)
    turns: Turns = field(default_factory=Turns, repr=False)
    folding_seen: set[UUID] = field(default_factory=set, repr=False)
    _closed: threading.Event = field(default_factory=threading.Event, repr=False)

    def includes(self, project: UUID) -> bool:
        """Whether this host's settings put the project under statistics."""
        return self.writes and project in self.allowlist

    def require_open(self) -> None:
        """Refuses HostNotRegistered once the host's block was left."""
        if self._closed.is_set():
            raise Refusal(SaveReason.HostNotRegistered, f"host {self.member_id} has ended")


@contextmanager
def registered(mongo: Mongo, role: Role, *, fold_worker: bool = False) -> Iterator[Host]:
    """Be a host of ``role`` for the length of a block: register, renew in a thread, and delete the record at its end.

    ``fold_worker``: it says of itself that it folds.

    A killed process stops counting two minutes after its last renewal. Refuses AllowlistTooLarge.
    """
    chosen = mongo.settings.statistics
    if len(chosen.allowlist) > HOST_ALLOWLIST_MAX:
        raise Refusal(OperateReason.AllowlistTooLarge, f"{len(chosen.allowlist)} ids, at most {HOST_ALLOWLIST_MAX}")
    member_id = f"{socket.gethostname()}:{os.getpid()}:{new_token()[:8]}"
    host = Host(mongo, role, member_id, chosen.allowlist, chosen.writes, chosen.families, chosen.fold, fold_worker)
    _renew(host)
    renewal = threading.Thread(target=_keep_renewing, args=(host,), name=f"statlib-host-{role}", daemon=True)
    renewal.start()
    try:
        yield host
    finally:
        host._closed.set()
        renewal.join(timeout=MEMBER_RENEWAL_S)
        mongo.collection(MEMBER).delete_one({"_id": member_id})


def live_members(clock_in: Any) -> dict[str, Any]:
    """Filter for live members; ``clock_in`` is the server's time ``MEMBER_LIVE_S`` seconds ago."""
    return {"$expr": {"$gt": ["$RenewedAtUtc", clock_in]}, "Deployment": {"$in": [role.value for role in Role]}}


def live_filter(mongo: Mongo) -> dict[str, Any]:
    return live_members(mongo.clock.mongo_in(-MEMBER_LIVE_S))


def _renew(host: Host) -> None:
    declared = {
        "Deployment": host.role.value,
        "Host": socket.gethostname(),
        "Pid": os.getpid(),
        "BinaryVersion": version("statlib"),
        "Allowlist": sorted(host.allowlist),
        "Writes": host.writes,
        "Families": sorted(host.families),
        "Fold": host.fold,
        "FoldProtocols": [FOLD_PROTOCOL],
        "FoldWorker": host.fold_worker,
    }
    stage = {name: {"$literal": value} for name, value in declared.items()}
    host.mongo.collection(MEMBER).update_one(
        {"_id": host.member_id}, [{"$set": {**stage, "RenewedAtUtc": host.mongo.clock.mongo_now()}}], upsert=True
    )


def _keep_renewing(host: Host) -> None:
    while not host._closed.wait(MEMBER_RENEWAL_S):
        try:
            _renew(host)
        except PyMongoError:  # the next round tries again; until then the record ages, which is what it is for
            telemetry.count("hosts.renewals", outcome=Renewal.FAILED)
        else:
            telemetry.count("hosts.renewals", outcome=Renewal.RENEWED)
