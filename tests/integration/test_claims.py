"""Claims of places: who is admitted, what a claim leaves, and that of rivals for the last place exactly one gets it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.kernel.digests import digest
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.mongo.connection import Mongo
from statlib.review.annotation import tallies_after
from statlib.review.claims import ClaimWriter, PlaceClaim
from statlib.review.documents import (
    STUDIES,
    InclusionClass,
    InclusionInfo,
    Project,
    Screening,
    Session,
    SessionStatus,
    SlotReservation,
    Stage,
    StageKind,
    Study,
    Tally,
)
from statlib.review.namespaces import ANNOTATION_NAMESPACE
from statlib.review.reasons import ReviewReason
from statlib.review.reservation_writer import ReservationWriter
from statlib.statistics.arms import Arm
from statlib.statistics.documents import GLOBAL_CONTROL, TrackingMode
from statlib.statistics.outcomes import Saved
from statlib.statistics.reasons import SaveReason
from tests import arms
from tests.exactness import unserved
from tests.folding import fold_on
from tests.reviews import ALL_FAMILIES, Review, host_of, review, settings_for, stage

ANNA, BEN, CLEO = UUID(int=0xA), UUID(int=0xB), UUID(int=0xC)
PEOPLE = (ANNA, BEN, CLEO)
AT = datetime(2024, 5, 1, tzinfo=UTC)
EXTRACTION = stage("data extraction", target=2)
SCREENING = stage("title and abstract", kind=StageKind.SCREENING, target=2)
STAGES = (EXTRACTION, SCREENING)


def a_study(project: UUID, *, tallied: bool = True, **fields: Any) -> Study:
    """An Included study whose tallies are those of its sessions and reservations; without any if not ``tallied``."""
    two = tuple(a_decision(uuid4()) for _ in range(2))
    bare = Study(
        id=uuid4(),
        project_id=project,
        **{
            "screenings": two,
            "inclusion_info": InclusionInfo(class_=InclusionClass.INCLUDED, screened=2, included=2),
            **fields,
        },
    )
    tallies = tallies_after(bare, bare.sessions, bare.slot_reservations) if tallied else ()
    return bare.model_copy(update={"tallies": tallies})


def a_decision(who: UUID, *, included: bool = True) -> Screening:
    return Screening(investigator_id=who, included=included, at_utc=AT)


def a_session(who: UUID, *, of: Stage = EXTRACTION, completed: bool = False, reconciliation: bool = False) -> Session:
    status = SessionStatus.COMPLETED if completed else SessionStatus.STARTED
    return Session(
        id=uuid4(), stage_id=of.id, investigator_id=who, status=status, reconciliation=reconciliation, at_utc=AT
    )


def a_place(who: UUID, *, of: Stage = EXTRACTION) -> SlotReservation:
    return SlotReservation(stage_id=of.id, investigator_id=who, at_utc=AT)


@contextmanager
def claims(settings: Settings, arm: Arm = Arm.TRANSACTIONAL, **options: Any) -> Iterator[Review]:
    options = {"studies": 0, "stages": STAGES, "families": ALL_FAMILIES, **arms.options(arm), **options}
    with review(settings, **options) as opened:
        if arm is Arm.FOLD:
            fold_on(opened.mongo, opened.project)
        yield opened


def insert(opened: Review, *studies: Study) -> None:
    opened.mongo.collection(STUDIES).insert_many([study.to_bson() for study in studies])


def claim(opened: Review, study: UUID, who: UUID, of: Stage = EXTRACTION, **options: Any) -> Saved | None:
    return ClaimWriter(opened.host, opened.project).claim(study, who, of.id, **options)


def track(opened: Review, mode: TrackingMode) -> None:
    """As the switch does: rows of another epoch are not served."""
    opened.mongo.collection(GLOBAL_CONTROL).update_one(
        {}, {"$set": {"ReviewerTrackingMode": mode.value}, "$inc": {"ReviewerTrackingEpoch": 1}}
    )


# --- who is admitted, and what becomes of the document: against naive Python over random studies


def random_studies(project: UUID, number: int) -> list[Study]:
    dice = random.Random(20240501)

    def some(of: tuple[UUID, ...]) -> list[UUID]:
        return dice.sample(of, dice.randint(0, len(of)))

    return [
        a_study(
            project,
            tallied=dice.random() < 0.7,
            screenings=tuple(a_decision(p, included=dice.random() < 0.5) for p in some(PEOPLE)),
            inclusion_info=InclusionInfo(class_=dice.choice(list(InclusionClass))),
            sessions=tuple(
                a_session(p, completed=dice.random() < 0.5, reconciliation=dice.random() < 0.4) for p in some(PEOPLE)
            ),
            slot_reservations=tuple(a_place(p, of=of) for of in STAGES for p in some(PEOPLE)),
        )
        for _ in range(number)
    ]


def admitted(study: Study, who: UUID, of: Stage, *, tracked: bool, enforced: bool) -> bool:
    """Straight from the definition."""
    for session in study.sessions:
        if session.stage_id == of.id and session.investigator_id == who:
            return False
    for reservation in study.slot_reservations:
        if reservation.stage_id == of.id and reservation.investigator_id == who:
            return False
    decisions = 0
    if of.kind is StageKind.SCREENING:
        for screening in study.screenings:
            if screening.investigator_id == who:
                return False
            decisions += 1
    elif study.inclusion_info.class_ is not InclusionClass.INCLUDED:
        return False
    return not enforced or taken(study, of, tracked=tracked) + decisions < of.session_count_target


@pytest.mark.req("CLAIM-02")
def test_the_filter_admits_whom_the_definition_admits(mongo: Mongo) -> None:
    project = Project(id=uuid4(), name="test", stages=STAGES)
    studies = random_studies(project.id, 400)
    mongo.collection(STUDIES).insert_many([study.to_bson() for study in studies])
    answers: set[bool] = set()
    for who, of, tracked, enforced in product((ANNA,), STAGES, (True, False), (True, False)):
        wanted = PlaceClaim(project.id, uuid4(), who, of.id, enforced)
        mode = TrackingMode.TRACKED if tracked else TrackingMode.UNTRACKED
        found = mongo.collection(STUDIES).find(dict(wanted.admission(project.to_bson(), mode)), {"_id": 1})
        expected = {s.id for s in studies if admitted(s, who, of, tracked=tracked, enforced=enforced)}
        assert {document["_id"] for document in found} == expected, (of.kind, tracked, enforced)
        answers |= {bool(expected), len(expected) < len(studies)}
    assert answers == {True}


@pytest.mark.req("CLAIM-03", "CLAIM-04")
def test_a_claim_leaves_what_a_recount_of_the_stage_would(mongo: Mongo) -> None:
    """Whatever sessions and places there are, with a tally and without one; other stages and fields stay untouched."""
    project = uuid4()
    studies = random_studies(project, 200)
    mongo.collection(STUDIES).insert_many([{**study.to_bson(), "FromTheFuture": 1} for study in studies])
    for of in STAGES:
        wanted = PlaceClaim(project, uuid4(), uuid4(), of.id)
        before = {d["_id"]: d for d in mongo.collection(STUDIES).find()}
        mongo.collection(STUDIES).update_many({}, wanted.stages("$$NOW"))
        for after in mongo.collection(STUDIES).find():
            study = Study.from_bson(before[after["_id"]])
            [place] = [r for r in after["SlotReservations"] if r["InvestigatorId"] == wanted.investigator]
            assert after["SlotReservations"] == [*before[study.id]["SlotReservations"], place]
            expected = {
                t.stage_id: t for t in tallies_after(study, study.sessions, Study.from_bson(after).slot_reservations)
            }
            got = {t["StageId"]: Tally.from_bson(t) for t in after["Tallies"]}
            others = {t.stage_id: t for t in study.tallies if t.stage_id != of.id}
            assert got == {**others, of.id: expected[of.id]}
            changed = ("Tallies", "SlotReservations")
            assert {k: v for k, v in after.items() if k not in changed} == {
                k: v for k, v in before[study.id].items() if k not in changed
            }


# --- what a claim leaves


def taken(study: Study, of: Stage, *, tracked: bool) -> int:
    """Places that the study's tally on the stage says are taken."""
    for tally in study.tallies:
        if tally.stage_id == of.id:
            return tally.total_allocated if tracked else tally.ncs
    return 0


@dataclass(frozen=True)
class Shape:
    """A study before a claim by Anna."""

    of: Stage
    fields: dict[str, Any]
    tallied: bool = True


BENS = {"slot_reservations": (a_place(BEN),)}
SHAPES = {
    "first claim": Shape(EXTRACTION, {}),
    "no tally, candidate sessions": Shape(
        EXTRACTION, {"sessions": (a_session(BEN, completed=True), a_session(CLEO))}, tallied=False
    ),
    "no tally, a reconciliation session": Shape(
        EXTRACTION, {"sessions": (a_session(BEN, reconciliation=True),)}, tallied=False
    ),
    "a candidate session": Shape(EXTRACTION, {"sessions": (a_session(BEN),)}),
    "another's place, which crosses the target": Shape(EXTRACTION, BENS),
    "an empty tally": Shape(EXTRACTION, {"tallies": (Tally(stage_id=EXTRACTION.id),)}),
    "a screening stage": Shape(SCREENING, {"screenings": (), "inclusion_info": InclusionInfo()}),
    "a screening stage with a decision": Shape(
        SCREENING,
        {
            "screenings": (a_decision(BEN),),
            "inclusion_info": InclusionInfo(screened=1, included=1),
        },
    ),
}


@pytest.mark.parametrize("tracking", list(TrackingMode))
@pytest.mark.req("CLAIM-23", "CLAIM-24", "CLAIM-25", "CLAIM-26", "CLAIM-05", "CLAIM-06", "CLAIM-17", "CLAIM-31")
def test_statistics_follow_a_claim_on_every_shape_of_study(settings: Settings, tracking: TrackingMode) -> None:
    crossed: set[bool] = set()
    with claims(settings, members=2) as opened:
        track(opened, tracking)
        for name, shape in SHAPES.items():
            study = a_study(opened.project, tallied=shape.tallied, **shape.fields)
            insert(opened, study)
            opened.backfill_all()
            assert unserved(opened) == {}, name
            before, ledger = opened.control(), opened.deltas()

            got = claim(opened, study.id, ANNA, shape.of)

            assert got is not None, name
            assert (got.arm, got.revision_after, got.leaves_receipt) == (Arm.TRANSACTIONAL, 1, True), name
            [receipt] = [r for r in opened.receipts() if r["SourceAggregateId"] == study.id]
            assert receipt["OperationNamespace"] == ANNOTATION_NAMESPACE
            assert receipt["OperationId"] == f"claim:{study.id}:{ANNA}:{shape.of.id}:0" == got.operation_id
            revisions = (receipt["ExpectedSourceRevision"], receipt["CommittedSourceAfterRevision"])
            assert revisions == (0, 1)
            assert receipt["SourceDigest"] == digest(got.operation_id)
            [delta] = [d for d in opened.deltas() if d not in ledger and d["Kind"] == "Operation"]
            assert (delta["Record"], delta["OperationId"]) == (0, got.operation_id)
            assert delta["Revision"] == before["CommittedProjectionRevision"] + 1
            stale = unserved(opened)
            sufficient = [
                taken(of, shape.of, tracked=tracking is TrackingMode.TRACKED) >= shape.of.session_count_target
                for of in (study, Study.from_bson(opened.study(study.id)))
            ]
            crosses = sufficient == [False, True]
            crossed.add(crosses)
            assert (len(stale.get("ReviewerAnnotation", ())) > 1) is crosses, name
            assert set(stale) <= {"ReviewerAnnotation"}, name
    # Where reservations do not count, no claim makes a stage sufficiently allocated, unless it brings a tally first.
    assert True in crossed


NOT_ADMITTED: dict[str, tuple[Stage, dict[str, Any], bool]] = {
    "own session": (EXTRACTION, {"sessions": (a_session(ANNA, reconciliation=True),)}, False),
    "own place": (EXTRACTION, {"slot_reservations": (a_place(ANNA),)}, False),
    "own decision": (SCREENING, {"screenings": (a_decision(ANNA),)}, False),
    "not included": (EXTRACTION, {"inclusion_info": InclusionInfo(screened=2, included=2)}, False),
    "no place left": (EXTRACTION, {"slot_reservations": (a_place(BEN), a_place(CLEO))}, True),
    "a place and a decision fill it": (
        SCREENING,
        {"slot_reservations": (a_place(BEN, of=SCREENING),), "screenings": (a_decision(CLEO),)},
        True,
    ),
}


@pytest.mark.parametrize("arm", list(Arm))
@pytest.mark.parametrize("refused", NOT_ADMITTED)
def test_who_is_not_admitted_gets_none_and_nothing_is_written(settings: Settings, arm: Arm, refused: str) -> None:
    of, fields, enforce = NOT_ADMITTED[refused]
    with claims(settings, arm) as opened:
        study = a_study(opened.project, **fields)
        insert(opened, study)
        before = opened.snapshot_of_statistics()
        with counting(opened.mongo.client) as count:
            assert claim(opened, study.id, ANNA, of, enforce_capacity=enforce) is None
        assert opened.snapshot_of_statistics() == before
        transaction = ("aggregate", "findAndModify", "abortTransaction")
        assert count.names == ("aggregate", *(transaction if arm is Arm.TRANSACTIONAL else ("findAndModify",)))
        if enforce:
            assert claim(opened, study.id, ANNA, of, enforce_capacity=False) is not None


def test_a_source_only_claim_is_one_bare_write_after_one_read(settings: Settings) -> None:
    with claims(settings, Arm.SOURCE_ONLY) as opened:
        study = a_study(opened.project)
        insert(opened, study)
        before = opened.snapshot_of_statistics()
        with counting(opened.mongo.client) as count:
            got = claim(opened, study.id, ANNA)
        assert got is not None
        assert (got.arm, got.leaves_receipt, got.revision_after, got.failed_attempts) == (Arm.SOURCE_ONLY, False, 1, ())
        assert count.names == ("aggregate", "findAndModify")
        after = opened.snapshot_of_statistics()
        assert {name for name in after if after[name] != before[name]} == {STUDIES}
        [place] = opened.study(study.id)["SlotReservations"]
        assert (place["StageId"], place["InvestigatorId"]) == (EXTRACTION.id, ANNA)
        assert claim(opened, study.id, ANNA) is None


@pytest.mark.parametrize("arm", list(Arm))
def test_a_place_that_was_let_go_is_taken_again_under_another_operation(settings: Settings, arm: Arm) -> None:
    with claims(settings, arm, members=1) as opened:
        study = a_study(opened.project)
        insert(opened, study)
        arms.begin(opened, arm)
        first = claim(opened, study.id, ANNA)
        ReservationWriter(opened.host, opened.project).release(study.id, ANNA, EXTRACTION.id)
        again = claim(opened, study.id, ANNA)
        assert first is not None
        assert again is not None
        assert (first.operation_id, again.operation_id) == tuple(
            f"claim:{study.id}:{ANNA}:{EXTRACTION.id}:{version}" for version in (0, 2)
        )
        arms.fold(opened)
        assert len(opened.receipts()) == (3 if arm in arms.UNDER_STATISTICS else 0)
        if arm in arms.UNDER_STATISTICS:
            assert set(unserved(opened)) <= {"ReviewerAnnotation"}


@pytest.mark.parametrize("arm", list(Arm))
def test_of_two_who_claim_the_last_place_exactly_one_gets_it(settings: Settings, arm: Arm) -> None:
    """Each on a host of their own, as in two processes: nothing but the server orders them."""
    rounds = 40
    last_place = stage("one place", target=1)
    answers: dict[UUID, list[Saved | Exception | None]] = {}
    with claims(settings, arm, stages=(last_place,), members=2) as opened, ExitStack() as stack:
        studies = [a_study(opened.project) for _ in range(rounds)]
        insert(opened, *studies)
        arms.begin(opened, arm)
        start = threading.Barrier(2)

        def rival(who: UUID, writer: ClaimWriter) -> None:
            for study in studies:
                start.wait(timeout=60)
                try:
                    got: Saved | Exception | None = writer.claim(study.id, who, last_place.id)
                except Exception as error:
                    got = error
                answers.setdefault(study.id, []).append(got)

        chosen = opened.mongo.settings
        rivals = [
            threading.Thread(
                target=rival, args=(who, ClaimWriter(stack.enter_context(host_of(chosen)), opened.project))
            )
            for who in (ANNA, BEN)
        ]
        for thread in rivals:
            thread.start()
        for thread in rivals:
            thread.join(timeout=240)
            assert not thread.is_alive()

        for study in studies:
            got = answers[study.id]
            assert sorted(type(answer).__name__ for answer in got) == ["NoneType", "Saved"], got
            [tally] = opened.study(study.id)["Tallies"]
            assert (tally["Reservations"], len(opened.study(study.id)["SlotReservations"])) == (1, 1)
            assert opened.study(study.id)["Audit"]["Version"] == 1
        if arm in arms.UNDER_STATISTICS:
            arms.fold(opened)
            assert len(opened.receipts()) == rounds
            assert set(unserved(opened)) <= {"ReviewerAnnotation"}


@pytest.mark.parametrize("arm", list(Arm))
def test_claims_name_what_is_not_there(settings: Settings, arm: Arm) -> None:
    with claims(settings, arm) as opened:
        study = a_study(opened.project)
        insert(opened, study)
        before = opened.snapshot_of_statistics()
        for of, what, reason in (
            (EXTRACTION, uuid4(), SaveReason.SourceNotFound),
            (stage("elsewhere"), study.id, ReviewReason.StageUnknown),
        ):
            with pytest.raises(Refusal) as refused:
                claim(opened, what, ANNA, of)
            assert refused.value.reason is reason
        assert opened.snapshot_of_statistics() == before


def test_a_host_that_excludes_the_project_cannot_claim_past_its_statistics(settings: Settings) -> None:
    with claims(settings) as opened, host_of(settings_for(settings)) as ignorant:
        study = a_study(opened.project)
        insert(opened, study)
        before = opened.snapshot_of_statistics()
        with pytest.raises(Refusal) as refused:
            ClaimWriter(ignorant, opened.project).claim(study.id, ANNA, EXTRACTION.id)
        assert refused.value.reason is SaveReason.GateSkew
        assert opened.snapshot_of_statistics() == before
