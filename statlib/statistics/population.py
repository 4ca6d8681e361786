"""Source documents that appear otherwise than by a save: every count of their project is outdated with them.

Invariant: a document is inserted in the transaction that outdates the project's rows. No reader and no rebuild ever
sees the one without the other, so that a row counted too early is never served short.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.mongo.connection import Mongo
from statlib.statistics import queries
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import CONTROL, GUARD, OUTBOX


def outdate_counts(mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession, project: UUID) -> bool:
    """Stale every family of the project and move its clocks, in the caller's transaction.

    Returns whether the project is under statistics; one that is not has nothing to outdate.
    """
    advance = {"SourceInvalidationRevision": 1, "ClientInvalidationRevision": 1, "Audit.Version": 1}
    control = mongo.collection(CONTROL).find_one_and_update(
        {"_id": project}, {"$inc": advance}, projection={"ClientInvalidationRevision": 1}, session=session
    )
    if control is None:
        return False
    ids = [queries.guard_id(project, family) for family in catalogue.families]
    mongo.collection(GUARD).update_many({"_id": {"$in": ids}}, queries.stale_family(), session=session)
    notify(mongo, session, project, catalogue.families, control["ClientInvalidationRevision"] + 1)
    return True


def notify(mongo: Mongo, session: ClientSession, project: UUID, families: Iterable[str], revision: int) -> None:
    """Coalesce the families' client-invalidation slots at ``revision``, in the caller's transaction."""
    for family in families:
        mongo.collection(OUTBOX).update_one(
            {"_id": queries.guard_id(project, family)},
            [{"$set": {"ClientInvalidationRevision": revision, "QueuedAtUtc": mongo.clock.mongo_now()}}],
            upsert=True,
            session=session,
        )
