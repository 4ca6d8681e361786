"""Changes of studies that leave pending entries, written past every writer: for tests of who reads them.

What a writer would decide is given; what it leaves behind is what the domain encodes.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from statlib.mongo.connection import Mongo
from statlib.review.annotation import tallies_after
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES, Screening, Session, SessionStatus, Study
from statlib.statistics.documents import GLOBAL_CONTROL, GlobalControl
from statlib.statistics.pending import FOLD_PROTOCOL, PENDING, Entry, appended, pending_of
from tests.reviews import JOINED, Review


def leave(review: Review, study: UUID, **fields: Any) -> Entry:
    """Write ``fields`` of the model to a study, with the tallies that follow, and the entry of the change."""
    stored = review.study(study)
    was = Study.from_bson(stored)
    is_ = was.model_copy(update=fields)
    is_ = is_.model_copy(update={"tallies": tallies_after(is_, is_.sessions, is_.slot_reservations)})
    entry = entry_of(review, was, is_)
    sets = appended(pending_of(stored), [entry], entry.created_at_utc)
    done = review.mongo.collection(STUDIES).update_one(
        {"_id": study, "Audit.Version": was.audit.version},
        {"$set": {**is_.to_bson(), "Audit": {"Version": was.audit.version + 1}, PENDING: sets}},
    )
    assert done.matched_count == 1
    return entry


def entry_of(review: Review, was: Study, is_: Study) -> Entry:
    fleet = GlobalControl.from_bson(review.mongo.collection(GLOBAL_CONTROL).find_one({}) or {})
    context = REVIEW.domain.context(review.stored_project(), fleet.reviewer_tracking_mode)
    before, after = REVIEW.domain.evidence(was.to_bson()), REVIEW.domain.evidence(is_.to_bson())
    assert REVIEW.transitions is not None
    encoded = REVIEW.transitions.encode(before, after, context, REVIEW.folding)
    return Entry(
        protocol_version=FOLD_PROTOCOL,
        operation_namespace="stats.source.test",
        operation_id=f"test:{uuid4()}",
        expected_source_revision=was.audit.version,
        source_revision_before=was.audit.version,
        source_revision_after=was.audit.version + 1,
        submission_digest="digest",
        created_at_utc=now(review.mongo),
        context=dict(REVIEW.transitions.context_digests(context)),
        catalogue_version=REVIEW.version,
        assumed_tracking_epoch=fleet.reviewer_tracking_epoch,
        transitions=list(encoded.transitions),
        invalidations=list(encoded.intents),
    )


def now(mongo: Mongo) -> Any:
    """The server's time, as the clock of the test shifts it."""
    (found,) = mongo.collection(GLOBAL_CONTROL).aggregate([{"$project": {"Now": mongo.clock.mongo_now()}}])
    return found["Now"]


def decided(review: Review, study: UUID, *who: UUID, include: bool = True) -> tuple[Screening, ...]:
    """The study's decisions with one more of each."""
    more = tuple(Screening(investigator_id=person, included=include, at_utc=JOINED) for person in who)
    return (*Study.from_bson(review.study(study)).screenings, *more)


def screen(review: Review, study: UUID, *who: UUID, include: bool = True) -> Entry:
    return leave(review, study, screenings=decided(review, study, *who, include=include))


def work(review: Review, study: UUID, who: UUID) -> Entry:
    """Somebody starts a session on the first stage."""
    started = Session(
        id=uuid4(), stage_id=review.stages[0], investigator_id=who, status=SessionStatus.STARTED, at_utc=JOINED
    )
    return leave(review, study, sessions=(*Study.from_bson(review.study(study)).sessions, started))
