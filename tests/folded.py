"""Saves as the fold finds them, written straight into their documents: the change, the version and its pending entry.

For tests of the fold alone: what they hold it against does not depend on any writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.review.annotation import tallies_after
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, STUDIES, Session, SlotReservation, Study
from statlib.statistics.catalogue import Encoded
from statlib.statistics.counters import without_zeros
from statlib.statistics.derivation import Consumer
from statlib.statistics.documents import GLOBAL_CONTROL, GUARD, ROW, GlobalControl, Row, State
from statlib.statistics.pending import FOLD_PROTOCOL, PENDING, Entry, appended, pending_of
from tests.reviews import Review

NAMESPACE, ANNOTATION = "stats.source.screening", "stats.source.annotation"
LONG_AGO = timedelta(minutes=1)


def leave(review: Review, study: UUID, fields: Mapping[str, Any], operation: str = "", **changed: Any) -> Entry:
    """Write ``fields`` into a study as a save of the fold arm does, of every folding family. Returns its entry, which
    ``changed`` overrides."""
    source = review.study(study)
    at = consumer(review)
    was, is_ = REVIEW.domain.evidence(source), REVIEW.domain.evidence({**source, **fields})
    assert REVIEW.transitions is not None
    encoded = REVIEW.transitions.encode(was, is_, at.context, REVIEW.folding)
    entry = _entry(source, at, encoded, operation).model_copy(update=changed)
    write(review, study, {**fields, PENDING: appended(pending_of(source), [entry], datetime.now(UTC))})
    return entry


def decide(
    review: Review, study: UUID, investigator: UUID, *, included: bool = True, operation: str = "", **changed: Any
) -> Entry:
    """A screening decision, left waiting."""
    others = [one for one in review.study(study)["Screenings"] if one["InvestigatorId"] != investigator]
    mine = {"InvestigatorId": investigator, "Included": included, "AtUtc": datetime.now(UTC)}
    return leave(review, study, {"Screenings": [*others, mine]}, operation, **changed)


def write(review: Review, study: UUID, fields: Mapping[str, Any], session: ClientSession | None = None) -> None:
    """Set fields and move the version, as every writer does."""
    done = review.mongo.collection(STUDIES).update_one(
        {"_id": study}, {"$set": dict(fields), "$inc": {"Audit.Version": 1}}, session=session
    )
    assert done.matched_count == 1


def consumer(review: Review) -> Consumer:
    project = review.mongo.collection(PROJECTS).find_one({"_id": review.project})
    stored = review.mongo.collection(GLOBAL_CONTROL).find_one({})
    assert project is not None
    assert stored is not None
    fleet = GlobalControl.from_bson(stored)
    context = REVIEW.domain.context(project, fleet.reviewer_tracking_mode)
    return Consumer.of(REVIEW, context, fleet.reviewer_tracking_epoch)


def _entry(source: Mapping[str, Any], at: Consumer, encoded: Encoded, operation: str) -> Entry:
    version = int(source["Audit"]["Version"])
    return Entry(
        protocol_version=FOLD_PROTOCOL,
        operation_namespace=NAMESPACE,
        operation_id=operation or f"screening:{source['_id']}:test:{version}",
        expected_source_revision=version,
        source_revision_before=version,
        source_revision_after=version + 1,
        submission_digest=f"digest of {version}",
        created_at_utc=datetime.now(UTC) - LONG_AGO,
        context=dict(at.digests),
        catalogue_version=REVIEW.version,
        assumed_tracking_epoch=at.tracking_epoch,
        transitions=list(encoded.transitions),
        invalidations=list(encoded.intents),
    )


def fresh(review: Review) -> frozenset[tuple[str, str]]:
    """Scopes whose stored row would be served if nothing were pending; each of them is asserted to be exact."""
    guards = {guard["_id"]["Family"]: guard for guard in review.mongo.collection(GUARD).find()}
    rows = [Row.from_bson(row) for row in review.mongo.collection(ROW).find({"ProjectId": review.project})]
    truth = review.whole_truth()
    current: set[tuple[str, str]] = set()
    for row in rows:
        guard = guards[row.family]
        epoch_holds = row.write_epochs.family == guard["FamilyWriteEpoch"]
        if row.is_published and row.state is State.FRESH and guard["State"] == State.FRESH and epoch_holds:
            assert without_zeros(row.values) == without_zeros(truth[row.family][row.scope]), (row.family, row.scope)
            current.add((row.family, row.scope))
    return frozenset(current)


def declared(review: Review) -> frozenset[tuple[str, str]]:
    """Every scope of the eight families that fold."""
    truth = review.whole_truth()
    return frozenset((family, scope) for family in REVIEW.folding for scope in truth[family])


def annotate(
    review: Review,
    study: UUID,
    sessions: tuple[Session, ...] | None = None,
    reservations: tuple[SlotReservation, ...] | None = None,
) -> Entry:
    """Other sessions or reservations in a study, with its tallies counted anew, left waiting."""
    stored = Study.from_bson(review.study(study))
    kept = stored.sessions if sessions is None else sessions
    places = stored.slot_reservations if reservations is None else reservations
    tallies = tallies_after(stored, kept, places)
    fields = stored.model_copy(update={"sessions": kept, "slot_reservations": places, "tallies": tallies}).to_bson()
    changed = {name: fields[name] for name in ("Sessions", "SlotReservations", "Tallies")}
    return leave(review, study, changed, f"session-save:{study}:{stored.audit.version}", operation_namespace=ANNOTATION)
