"""Claims that fold: the server itself writes the entry, from the very document that the claim met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.kernel.digests import digest
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.review.annotation import tallies_after
from statlib.review.catalogue import REVIEW
from statlib.review.claims import ClaimWriter
from statlib.review.documents import (
    STUDIES,
    InclusionClass,
    InclusionInfo,
    Screening,
    Session,
    SessionStatus,
    SlotReservation,
    Stage,
    StageKind,
    Study,
)
from statlib.review.reservation_writer import ReservationWriter
from statlib.review.transitions import KINDS, Kind
from statlib.statistics.arms import Arm
from statlib.statistics.bounds import PENDING_ENTRIES_MAX, PENDING_SET_BYTES_MAX
from statlib.statistics.derivation import Consumer, derive
from statlib.statistics.documents import GLOBAL_CONTROL, TrackingMode
from statlib.statistics.outcomes import Saved
from statlib.statistics.pending import FOLD_SEQUENCE, PENDING, encoded_size, parse_entry, pending_of
from tests.folding import fold_off, fold_on
from tests.reviews import ALL_FAMILIES, Review, review

ANNA, BEN, CLEO = UUID(int=0xA), UUID(int=0xB), UUID(int=0xC)
AT = datetime(2024, 5, 1, tzinfo=UTC)
EXTRACTION = Stage(id=UUID(int=0x51), name="extraction", kind=StageKind.ANNOTATION, session_count_target=2)
SINGLE = Stage(id=UUID(int=0x52), name="single", kind=StageKind.ANNOTATION, session_count_target=1)
TITLES = Stage(id=UUID(int=0x53), name="titles", kind=StageKind.SCREENING, session_count_target=3)
STAGES = (EXTRACTION, SINGLE, TITLES)


def decision(who: UUID, *, included: bool = True) -> Screening:
    return Screening(investigator_id=who, included=included, at_utc=AT)


def session(who: UUID, of: Stage = EXTRACTION, *, completed: bool = False, reconciliation: bool = False) -> Session:
    status = SessionStatus.COMPLETED if completed else SessionStatus.STARTED
    return Session(
        id=uuid4(), stage_id=of.id, investigator_id=who, status=status, reconciliation=reconciliation, at_utc=AT
    )


def place(who: UUID, of: Stage = EXTRACTION) -> SlotReservation:
    return SlotReservation(stage_id=of.id, investigator_id=who, at_utc=AT)


@dataclass(frozen=True)
class Shape:
    """A study that Anna claims a place on; ``tallied``: its tallies are those of what is there."""

    sessions: tuple[Session, ...] = ()
    places: tuple[SlotReservation, ...] = ()
    tallied: bool = True
    on: Stage = EXTRACTION
    capacity: bool = True

    def study(self, project: UUID) -> Study:
        bare = Study(
            id=uuid4(),
            project_id=project,
            screenings=(decision(BEN), decision(CLEO)),
            inclusion_info=InclusionInfo(class_=InclusionClass.INCLUDED, screened=2, included=2),
            sessions=self.sessions,
            slot_reservations=self.places,
        )
        tallies = tallies_after(bare, bare.sessions, bare.slot_reservations) if self.tallied else ()
        return bare.model_copy(update={"tallies": tallies})


SHAPES = {
    "first, without a session": Shape(),
    "first, with candidates": Shape((session(BEN), session(CLEO, SINGLE)), tallied=False),
    "first, with reconciliations": Shape((session(BEN, completed=True, reconciliation=True),), tallied=False),
    "upon a tally": Shape((session(BEN, completed=True),), (place(CLEO, SINGLE),)),
    "beside another's place": Shape((), (place(BEN),)),
    "upon a reconciled tally": Shape((session(BEN, completed=True), session(CLEO, reconciliation=True))),
    "that fills the stage": Shape(on=SINGLE),
    "beyond the target": Shape((session(BEN), session(CLEO)), capacity=False),
    "on a screening stage": Shape((), (place(BEN, TITLES),), on=TITLES, capacity=False),
}


@contextmanager
def claims(settings: Settings, **options: Any) -> Iterator[Review]:
    options = {"studies": 0, "stages": STAGES, "families": ALL_FAMILIES, "fold": True, **options}
    with review(settings, **options) as opened:
        fold_on(opened.mongo, opened.project)
        yield opened


@pytest.fixture
def opened(settings: Settings) -> Iterator[Review]:
    with claims(settings) as review_:
        yield review_


def insert(opened: Review, study: Study, **fields: Any) -> UUID:
    opened.mongo.collection(STUDIES).insert_one({**study.to_bson(), **fields})
    return study.id


def claim(opened: Review, study: UUID, who: UUID = ANNA, of: Stage = EXTRACTION, **options: Any) -> Saved | None:
    return ClaimWriter(opened.host, opened.project).claim(study, who, of.id, **options)


def track(opened: Review, mode: TrackingMode) -> None:
    opened.mongo.collection(GLOBAL_CONTROL).update_one(
        {}, {"$set": {"ReviewerTrackingMode": mode.value}, "$inc": {"ReviewerTrackingEpoch": 1}}
    )


def consumer(opened: Review) -> Consumer:
    fleet = opened.mongo.collection(GLOBAL_CONTROL).find_one({})
    assert fleet is not None
    context = REVIEW.domain.context(opened.stored_project(), TrackingMode(fleet["ReviewerTrackingMode"]))
    return Consumer.of(REVIEW, context, fleet["ReviewerTrackingEpoch"])


def as_claimed(study: Mapping[str, Any]) -> dict[str, Any]:
    """The document but for its name, what is pending, and the times of writing."""
    places = [{**one, "AtUtc": None} for one in study["SlotReservations"]]
    left_out = {"_id", PENDING, FOLD_SEQUENCE}
    kept = {name: value for name, value in study.items() if name not in left_out}
    return {**kept, "SlotReservations": places, "Audit": study["Audit"]["Version"]}


@pytest.mark.req(
    "CLAIM-03", "CLAIM-05", "CLAIM-06", "CLAIM-12", "CLAIM-15", "CLAIM-16", "CLAIM-17", "CLAIM-19", "CLAIM-22",
    "CLAIM-23", "CLAIM-24", "CLAIM-25", "CLAIM-29", "CLAIM-31",
)  # fmt: skip
@pytest.mark.parametrize("tracking", list(TrackingMode))
def test_what_a_claim_leaves_does_to_every_family_what_the_claim_did(opened: Review, tracking: TrackingMode) -> None:
    track(opened, tracking)
    at = consumer(opened)
    for name, shape in SHAPES.items():
        study = insert(opened, shape.study(opened.project))
        before = opened.study(study)
        saved = claim(opened, study, of=shape.on, enforce_capacity=shape.capacity)
        after = opened.study(study)

        assert saved is not None, name
        assert (saved.arm, saved.leaves_receipt, saved.revision_after) == (Arm.FOLD, True, 1), name
        (raw,) = pending_of(after).entries
        entry = parse_entry(raw)
        assert entry.operation_id == f"claim:{study}:{ANNA}:{shape.on.id}:0" == saved.operation_id, name
        assert (entry.source_revision_before, entry.source_revision_after) == (0, 1), name
        assert entry.submission_digest == digest(entry.operation_id), name
        assert entry.invalidations == [], name
        was, is_ = REVIEW.domain.evidence(before), REVIEW.domain.evidence(after)
        derived = derive(entry, at, REVIEW.folding)
        changes = {f: REVIEW.families[f].derive(was, is_, at.context) for f in REVIEW.folding}
        assert derived.effects == {family: effect for family, effect in changes.items() if effect.touches}, name
        assert not derived.mismatched, name

        fold_off(opened.mongo, opened.project)
        twin = insert(opened, Study.from_bson({**before, "_id": uuid4()}))
        assert claim(opened, twin, of=shape.on, enforce_capacity=shape.capacity) is not None, name
        assert as_claimed(opened.study(twin)) == as_claimed(after), name
        fold_on(opened.mongo, opened.project)


@pytest.mark.req("CLAIM-17", "CLAIM-18", "CLAIM-26")
def test_a_claim_that_fills_the_stage_outdates_what_is_counted_of_reviewers_as_a_whole(opened: Review) -> None:
    fills = insert(opened, SHAPES["that fills the stage"].study(opened.project))
    claim(opened, fills, of=SINGLE)
    (raw,) = pending_of(opened.study(fills)).entries
    assert derive(parse_entry(raw), consumer(opened), {"ReviewerAnnotation"}).effects["ReviewerAnnotation"].stale_family


@pytest.mark.req("CLAIM-01", "CLAIM-02", "CLAIM-28", "SAVE-28")
def test_a_claim_is_a_load_and_one_write_admitted_or_not(opened: Review) -> None:
    study = insert(opened, SHAPES["first, without a session"].study(opened.project))
    for admitted in (True, False):
        before = opened.study(study)
        with counting(opened.mongo.client) as count:
            taken = claim(opened, study)
        assert count.names == ("aggregate", "findAndModify")
        assert (taken is not None) is admitted
    assert opened.study(study) == before


@pytest.mark.req("CLAIM-01", "CLAIM-20")
def test_of_two_who_claim_the_last_place_at_once_exactly_one_gets_it(opened: Review) -> None:
    studies = [insert(opened, Shape((session(CLEO),)).study(opened.project)) for _ in range(8)]
    for study in studies:
        start = Barrier(2)

        def take(who: UUID, study: UUID = study, start: Barrier = start) -> Saved | None:
            start.wait(timeout=30)
            return claim(opened, study, who)

        with ThreadPoolExecutor(2) as pool:
            taken = list(pool.map(take, (ANNA, BEN)))
        assert sum(saved is not None for saved in taken) == 1
        assert all(saved.failed_attempts == () for saved in taken if saved)
        assert len(pending_of(opened.study(study)).entries) == 1


def test_a_place_let_go_is_claimed_again_under_another_id(opened: Review) -> None:
    study = insert(opened, Shape().study(opened.project))
    first = claim(opened, study)
    ReservationWriter(opened.host, opened.project).release(study, ANNA, EXTRACTION.id)
    second = claim(opened, study)
    assert first is not None
    assert second is not None
    assert len({first.operation_id, second.operation_id}) == 2
    assert [e["OperationId"].partition(":")[0] for e in pending_of(opened.study(study)).entries] == [
        "claim", "release", "claim",
    ]  # fmt: skip


# --- the set that a claim meets


def entry_of(number: int, filling: int = 0) -> dict[str, Any]:
    return {"OperationNamespace": "n", "OperationId": f"o:{number}", "CreatedAtUtc": AT, "Filling": "x" * filling}


OVERFLOW = {
    "OverflowedAtUtc": AT,
    "Dropped": [{"OperationNamespace": "n", "OperationId": "o:7", "SubmissionDigest": "d"}],
    "UnrecordedCount": 3,
    "UnrecordedFromRevision": 2,
    "UnrecordedToRevision": 4,
}


def set_of(*entries: dict[str, Any], overflow: Any = None) -> dict[str, Any]:
    return {"OldestAtUtc": AT, "Entries": list(entries), "Overflow": overflow}


FULL = [entry_of(number) for number in range(PENDING_ENTRIES_MAX)]
LARGE = [entry_of(number, 4_000) for number in range(12)]


@dataclass(frozen=True)
class Met:
    """A set that a claim meets at revision 5, and what its overflow says afterwards: None where the entry fits."""

    pending: Any
    entries: int
    unrecorded: tuple[int, int, int] | None = None
    dropped: int = 0
    fields: dict[str, Any] = field(default_factory=dict)


NONSENSE = (1, 0, 5)
SETS = {
    "null": Met(None, 1),
    "one entry": Met(set_of(entry_of(1)), 2),
    "an entry of another protocol": Met(set_of({"ProtocolVersion": 99}), 2),
    "one less than full": Met(set_of(*FULL[1:]), PENDING_ENTRIES_MAX),
    "full": Met(set_of(*FULL), PENDING_ENTRIES_MAX, (1, 5, 6)),
    "too many bytes": Met(set_of(*LARGE), 12, (1, 5, 6)),
    "far too many bytes": Met(set_of(entry_of(1, 900_000)), 1, (1, 5, 6)),
    "overflowed": Met(set_of(entry_of(1), overflow=OVERFLOW), 1, (4, 2, 6), dropped=1),
    "overflowed by name alone": Met(
        set_of(
            overflow={**OVERFLOW, "UnrecordedCount": 0, "UnrecordedFromRevision": None, "UnrecordedToRevision": None}
        ),
        0,
        (1, 5, 6),
        dropped=1,
    ),
    "text": Met("nonsense", 0, NONSENSE),
    "a list": Met([set_of(entry_of(1))], 0, NONSENSE),
    "a number": Met(3, 0, NONSENSE),
    "empty": Met({}, 0, NONSENSE),
    "entries of text": Met({**set_of(), "Entries": "nonsense"}, 0, NONSENSE),
    "entries under names": Met({**set_of(), "Entries": {"0": entry_of(1)}}, 0, NONSENSE),
    "without its time": Met({"Entries": [entry_of(1)], "Overflow": None}, 0, NONSENSE),
    "a time of text": Met({**set_of(entry_of(1)), "OldestAtUtc": "yesterday"}, 0, NONSENSE),
    "overflow of text": Met(set_of(entry_of(1), overflow="nonsense"), 0, NONSENSE),
    "overflow counted in words": Met(set_of(overflow={**OVERFLOW, "UnrecordedCount": "three"}), 0, NONSENSE),
    "overflow without a list": Met(set_of(overflow={**OVERFLOW, "Dropped": "none"}), 0, NONSENSE),
}


@pytest.mark.req(
    "CLAIM-07", "CLAIM-08", "CLAIM-09", "CLAIM-11", "CLAIM-14", "CLAIM-27", "CLAIM-29", "CLAIM-32", "ENTRY-03"
)
def test_whatever_set_it_meets_a_claim_succeeds_and_leaves_a_sound_one(opened: Review) -> None:
    absent = claim(opened, insert(opened, Shape().study(opened.project)))
    assert absent is not None
    for name, met in SETS.items():
        version = {"Audit": {"Version": 5, "LastModified": AT}}
        study = insert(opened, Shape().study(opened.project), **{PENDING: met.pending, **version})
        saved = claim(opened, study)
        stored = opened.study(study)
        found = pending_of(stored)

        assert saved is not None, name
        assert (saved.revision_after, saved.leaves_receipt) == (6, met.unrecorded is None), name
        assert [held["InvestigatorId"] for held in stored["SlotReservations"]] == [ANNA], name
        assert len(found.entries) == met.entries, name
        assert found.oldest is not None, name
        assert found.oldest <= stored["Audit"]["LastModified"], name
        if met.unrecorded is None:
            assert found.overflow is None, name
            assert parse_entry(found.entries[-1]).operation_id == saved.operation_id, name
            assert encoded_size(stored[PENDING]) <= PENDING_SET_BYTES_MAX, name
        else:
            overflow = found.overflow
            assert overflow is not None, name
            bounds = (overflow.unrecorded_count, overflow.unrecorded_from_revision, overflow.unrecorded_to_revision)
            assert bounds == met.unrecorded, name
            assert len(overflow.dropped) == met.dropped, name
            assert overflow.hides(5), name
        if isinstance(met.pending, dict) and met.unrecorded != NONSENSE:
            assert stored[PENDING]["Entries"][: len(met.pending["Entries"])] == met.pending["Entries"], name
            assert stored[PENDING]["OldestAtUtc"] == AT, name


@pytest.mark.req("ENTRY-31")
def test_families_that_this_host_does_not_keep_are_staled_by_a_claim(settings: Settings) -> None:
    with claims(settings, families=("StageAnnotation",)) as opened:
        study = insert(opened, Shape().study(opened.project))
        claim(opened, study)
        (raw,) = pending_of(opened.study(study)).entries
        stages = KINDS[Kind.ANNOTATION_RESERVATION_CLAIM]
        staled = {intent.family for intent in parse_entry(raw).invalidations}
        assert staled == stages - {"StageAnnotation"}
        assert all(derive(parse_entry(raw), consumer(opened), stages).effects[f].stale_family for f in staled)


@pytest.mark.req("ENTRY-41", "CLAIM-29")
def test_a_claim_on_a_crowded_stage_stales_its_families_instead(opened: Review) -> None:
    crowd = tuple(session(UUID(int=number), completed=True) for number in range(1_000, 1_120))
    study = insert(opened, Shape(crowd, capacity=False).study(opened.project))
    assert claim(opened, study, enforce_capacity=False) is not None
    (raw,) = pending_of(opened.study(study)).entries
    entry = parse_entry(raw)
    assert entry.transitions == []
    assert {(intent.family, intent.scope) for intent in entry.invalidations} == {
        (family, None) for family in KINDS[Kind.ANNOTATION_RESERVATION_CLAIM]
    }
