"""What one fold transaction does with each kind of entry, over what is stored of rows, guards and operations."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.kernel.settings import Settings
from statlib.review.catalogue import REVIEW
from statlib.review.documents import (
    PROJECTS,
    STUDIES,
    Answer,
    AnswerKind,
    Question,
    Session,
    SessionStatus,
    SlotReservation,
    Study,
)
from statlib.statistics.bounds import OVERFLOW_RECORDED_MAX, PENDING_ENTRIES_MAX
from statlib.statistics.documents import (
    CONTROL,
    DELTA,
    FOLD_QUARANTINE,
    GUARD,
    RECEIPT,
    RECEIPT_RETIREMENT,
    ROW,
    DeltaKind,
    FoldMode,
)
from statlib.statistics.fold.quarantine import Caps
from statlib.statistics.fold.turn import Stopped, fold_project
from statlib.statistics.pending import PENDING, Intent, Poison, appended, pending_of
from statlib.statistics.rebuild import rebuild
from tests.folded import NAMESPACE, annotate, decide, declared, fresh, leave, write
from tests.folding import fold_on, pending
from tests.reviews import ALL_FAMILIES, Review, review, stage

SCREENING, MEMBERSHIP, REVIEWER = "ProjectScreening", "MembershipScreening", "ReviewerScreening"
STALE_BY_INTENT = {"ReviewerAnnotation", "QuestionAnswers"}


@contextmanager
def folding(settings: Settings, *, studies: int = 2, **given: Any) -> Iterator[Review]:
    """A review of which every row is fresh, and whose saves fold."""
    with review(settings, studies=studies, members=2, families=ALL_FAMILIES, **given) as r:
        r.backfill_all()
        fold_on(r.mongo, r.project)
        yield r


def fold(r: Review, **changed: Any) -> Any:
    return fold_project(r.host, REVIEW, r.project, **changed)


def quarantine(r: Review) -> list[dict[str, Any]]:
    return list(r.mongo.collection(FOLD_QUARANTINE).find({"ProjectId": r.project}))


def guard(r: Review, family: str) -> dict[str, Any]:
    found = r.mongo.collection(GUARD).find_one({"_id": {"ProjectId": r.project, "Family": family}})
    assert found is not None
    return found


def set_guard(r: Review, family: str, **fields: Any) -> None:
    r.mongo.collection(GUARD).update_one({"_id": {"ProjectId": r.project, "Family": family}}, {"$set": fields})


def families_of(scopes: frozenset[tuple[str, str]]) -> set[str]:
    return {family for family, _ in scopes}


QUESTION = Question(id=uuid4(), stage_id=UUID(int=1), text="Was it blinded?", answer=AnswerKind.BOOLEAN)


@pytest.mark.parametrize("seed", [1, 2])
def test_after_a_mixed_history_stored_rows_of_every_family_are_the_source_counted(emptied: Settings, seed: int) -> None:
    chance = random.Random(seed)
    stages = [stage("first"), stage("second", target=1)]
    questions = [QUESTION.model_copy(update={"stage_id": stages[0].id})]
    with folding(emptied, studies=8, stages=stages, questions=questions) as r:
        for _ in range(4):
            for _ in range(12):
                _do_something(r, chance, questions[0])
            assert fold(r).stopped is Stopped.DRAINED
            current = fresh(r)
            assert {family for family, _ in declared(r) - current} <= STALE_BY_INTENT
        assert r.receipts()
        assert quarantine(r) == []


def _do_something(r: Review, chance: random.Random, question: Question) -> None:
    study, who, where = chance.choice(r.studies), chance.choice(r.members), chance.choice(r.stages)
    stored = Study.from_bson(r.study(study))
    match chance.choice(["decide", "decide", "answer", "delete", "reserve", "release"]):
        case "decide":
            decide(r, study, who, included=chance.random() < 0.7)
        case "answer":
            mine = Session(
                id=uuid4(),
                stage_id=where,
                investigator_id=who,
                status=chance.choice([SessionStatus.STARTED, SessionStatus.COMPLETED]),
                reconciliation=chance.random() < 0.2,
                answers=(Answer(question_id=question.id, value=True, key="true"),),
                at_utc=datetime.now(UTC),
            )
            annotate(r, study, (*stored.sessions, mine))
        case "delete":
            annotate(r, study, stored.sessions[1:])
        case "reserve":
            place = SlotReservation(stage_id=where, investigator_id=who, at_utc=datetime.now(UTC))
            others = [one for one in stored.slot_reservations if (one.stage_id, one.investigator_id) != (where, who)]
            annotate(r, study, reservations=(*others, place))
        case _:
            annotate(r, study, reservations=stored.slot_reservations[1:])


POISONS = [
    Poison.DUPLICATE_RECEIPT,
    Poison.CONFLICTING_RECEIPT,
    Poison.DUPLICATE_DELTA,
    Poison.RETIRED_SOURCE_REVISION,
    Poison.UNKNOWN_PROTOCOL,
    Poison.UNKNOWN_KIND,
    Poison.UNDESERIALIZABLE,
    Poison.QUARANTINE_EXISTS,
]


def poison(r: Review, study: UUID, reason: Poison) -> str:
    """Leave an entry in ``study`` that is to be set aside for ``reason``. Returns its operation."""
    changed: dict[str, Any] = {"protocol_version": 99} if reason is Poison.UNKNOWN_PROTOCOL else {}
    entry = decide(r, study, r.members[0], **changed)
    operation = {"ProjectId": r.project, "OperationNamespace": NAMESPACE, "OperationId": entry.operation_id}
    match reason:
        case Poison.DUPLICATE_RECEIPT | Poison.CONFLICTING_RECEIPT:
            digest = entry.submission_digest if reason is Poison.DUPLICATE_RECEIPT else "another"
            r.mongo.collection(RECEIPT).insert_one({**operation, "SourceDigest": digest})
        case Poison.DUPLICATE_DELTA:
            at = {"Revision": -1, "Record": 0, "ObservedAtUtc": datetime.now(UTC)}
            other = {"Kind": DeltaKind.OPERATION.value, **at}
            r.mongo.collection(DELTA).insert_one({**operation, **other})
        case Poison.RETIRED_SOURCE_REVISION:
            stream = {"ProjectId": r.project, "SourceAggregateId": study, "OperationNamespace": NAMESPACE}
            r.mongo.collection(RECEIPT_RETIREMENT).insert_one({"_id": stream, "RetiredThroughSourceRevision": 0})
        case Poison.UNKNOWN_KIND:
            r.mongo.collection(STUDIES).update_one(
                {"_id": study}, {"$set": {f"{PENDING}.Entries.0.Transitions.0.Kind": "?"}}
            )
        case Poison.UNDESERIALIZABLE:
            r.mongo.collection(STUDIES).update_one(
                {"_id": study}, {"$set": {f"{PENDING}.Entries.0.Transitions.0.Payload": {"Before": [], "After": 1}}}
            )
        case Poison.QUARANTINE_EXISTS:
            r.mongo.collection(FOLD_QUARANTINE).insert_one({**operation, "StudyId": study, "Reason": "Livelocked"})
        case _:
            pass
    return entry.operation_id


@pytest.mark.req(
    "POISON-01", "POISON-02", "POISON-03", "POISON-04", "POISON-05", "POISON-06", "POISON-07", "POISON-08",
    "POISON-20", "POISON-21", "POISON-22", "WORKER-36",
)  # fmt: skip
def test_no_poison_stops_the_project_and_each_is_recorded_with_its_reason(emptied: Settings) -> None:
    with folding(emptied, studies=len(POISONS) + 1) as r:
        expected = {reason: poison(r, study, reason) for reason, study in zip(POISONS, r.studies, strict=False)}
        good = decide(r, r.studies[-1], r.members[0])
        before = {one["OperationId"] for one in r.receipts()}
        stored = list(quarantine(r))
        folded = fold(r)
        assert (folded.stopped, folded.entries, folded.quarantined) == (Stopped.DRAINED, 1, len(POISONS))
        assert pending(r.mongo, r.project) == {}
        assert {one["OperationId"] for one in r.receipts()} - before == {good.operation_id}
        added = [one for one in quarantine(r) if one not in stored]
        assert {one["Reason"]: one["OperationId"] for one in added} == expected
        assert all(one["SubmissionDigest"] for one in added)
        assert all(one["Entry"]["OperationId"] == one["OperationId"] for one in added)
        assert {f for f in REVIEW.folding if guard(r, f)["State"] == "Stale"} == REVIEW.folding  # one was unreadable
        assert not r.mongo.collection(DELTA).find_one({"OperationId": good.operation_id})  # discarded with the others

        r.backfill_all()
        decide(r, r.studies[0], r.members[1])
        assert fold(r).entries == 1
        assert fresh(r) == declared(r)


def test_a_readable_poison_leaves_the_families_fresh_that_it_could_not_touch(emptied: Settings) -> None:
    with folding(emptied) as r:
        poison(r, r.studies[0], Poison.DUPLICATE_RECEIPT)
        fold(r)
        assert families_of(fresh(r)).isdisjoint({SCREENING, MEMBERSHIP, REVIEWER})
        assert "QuestionAnswers" not in REVIEW.folding or guard(r, "QuestionAnswers")["State"] == "Fresh"


@pytest.mark.req("SCOPE-01", "SCOPE-02", "SCOPE-03", "SCOPE-07")
def test_a_scope_without_a_row_gets_a_placeholder_that_outlives_its_siblings_republication(emptied: Settings) -> None:
    with folding(emptied) as r:
        mine, other = (f"member/{who}" for who in r.members)
        rows = r.mongo.collection(ROW)
        rows.delete_one({"ProjectId": r.project, "Family": MEMBERSHIP, "Scope": mine})
        decide(r, r.studies[0], r.members[0])
        fold(r)
        wanted = {"ProjectId": r.project, "Family": MEMBERSHIP, "Scope": mine}
        placeholder = rows.find_one(wanted)
        assert placeholder is not None
        visible = guard(r, MEMBERSHIP)
        assert (placeholder["Generation"], placeholder["Token"]) == (
            visible["VisibleGeneration"],
            visible["VisibleToken"],
        )
        assert placeholder["IsPublished"]
        assert placeholder["State"] == "Stale"
        assert placeholder["Counters"] == []
        assert placeholder["LastFailureReason"] == "MissingBaseline"
        assert visible["State"] == "Fresh"
        assert (MEMBERSHIP, other) in fresh(r)

        decide(r, r.studies[1], r.members[0])
        fold(r)
        rebuild(r.host, REVIEW, r.project, MEMBERSHIP, scopes=[other], force=True)
        after = rows.find_one(wanted)
        assert after is not None
        assert (after["State"], after["Counters"]) == ("Stale", [])
        assert (MEMBERSHIP, mine) not in fresh(r)
        r.backfill(MEMBERSHIP)
        assert fresh(r) == declared(r)


@pytest.mark.req("SCOPE-04")
def test_where_a_candidate_occupies_the_placeholders_key_the_family_is_staled(emptied: Settings) -> None:
    with folding(emptied) as r:
        mine = {"ProjectId": r.project, "Family": MEMBERSHIP, "Scope": f"member/{r.members[0]}"}
        r.mongo.collection(ROW).update_one(mine, {"$set": {"IsPublished": False}})
        decide(r, r.studies[0], r.members[0])
        fold(r)
        assert guard(r, MEMBERSHIP)["State"] == "Stale"
        assert r.mongo.collection(ROW).count_documents(mine) == 1
        assert SCREENING in families_of(fresh(r))


@pytest.mark.req("WORKER-40", "WORKER-43")
@pytest.mark.parametrize("why", ["no guard", "not fresh", "fenced", "a token", "a closed gate"])
def test_a_family_that_is_not_served_gets_no_moves_and_no_second_epoch(emptied: Settings, why: str) -> None:
    with folding(emptied) as r:
        match why:
            case "no guard":
                r.mongo.collection(GUARD).delete_one({"_id": {"ProjectId": r.project, "Family": SCREENING}})
            case "not fresh":
                set_guard(r, SCREENING, State="Stale")
            case "fenced":
                set_guard(r, SCREENING, ActiveFenceCount=1)
            case "a token":
                r.mongo.collection(CONTROL).update_one(
                    {"_id": r.project}, {"$set": {"InclusionRecalculationToken": "t"}}
                )
            case _:
                r.mongo.collection(CONTROL).update_one({"_id": r.project}, {"$set": {"Mode": "Disabled"}})
        rows = list(r.mongo.collection(ROW).find({"Family": SCREENING}))
        epochs = {one["_id"]["Family"]: one["FamilyWriteEpoch"] for one in r.mongo.collection(GUARD).find()}
        entry = decide(r, r.studies[0], r.members[0])
        assert fold(r).entries == 1
        assert list(r.mongo.collection(ROW).find({"Family": SCREENING})) == rows
        assert [one["OperationId"] for one in r.receipts()] == [entry.operation_id]
        staled = {
            one["_id"]["Family"]
            for one in r.mongo.collection(GUARD).find()
            if one["FamilyWriteEpoch"] > epochs[one["_id"]["Family"]]
        }
        touched = {SCREENING, MEMBERSHIP, REVIEWER}
        assert staled == {
            "no guard": set(),
            "not fresh": set(),
            "fenced": {SCREENING},
            "a token": touched,
            "a closed gate": touched,
        }[why]  # fmt: skip


@pytest.mark.req("WORKER-41")
def test_a_row_that_is_not_fresh_loses_its_move_and_its_siblings_keep_theirs(emptied: Settings) -> None:
    with folding(emptied) as r:
        mine, other = ((MEMBERSHIP, f"member/{who}") for who in r.members)
        r.mongo.collection(ROW).update_one({"Family": MEMBERSHIP, "Scope": mine[1]}, {"$set": {"State": "Stale"}})
        for who in r.members:
            decide(r, r.studies[0], who)
        fold(r)
        assert guard(r, MEMBERSHIP)["State"] == "Fresh"
        assert fresh(r) == declared(r) - {mine}
        assert other in fresh(r)


@pytest.mark.req("WORKER-49")
def test_a_stored_counter_may_fall_below_zero_while_what_raises_it_is_pending(emptied: Settings) -> None:
    with folding(emptied) as r:
        first = decide(r, r.studies[0], r.members[0])
        study = r.study(r.studies[0])
        waiting = study[PENDING]
        decide(r, r.studies[0], r.members[0], included=False)
        later = r.study(r.studies[0])[PENDING]
        later["Entries"] = later["Entries"][1:]
        write(r, r.studies[0], {PENDING: later})
        fold(r)
        (row,) = r.mongo.collection(ROW).find({"Family": SCREENING})
        assert min(one["v"] for one in row["Counters"]) < 0
        assert (row["State"], guard(r, SCREENING)["State"]) == ("Fresh", "Fresh")
        write(r, r.studies[0], {PENDING: waiting})
        assert fold(r).entries == 1
        assert first.operation_id in {one["OperationId"] for one in r.receipts()}
        assert SCREENING in families_of(fresh(r))


@pytest.mark.req("WORKER-47", "WORKER-44")
def test_what_stales_a_family_discards_the_moves_of_the_whole_batch(emptied: Settings) -> None:
    with folding(emptied) as r:
        decide(r, r.studies[0], r.members[0])
        decide(r, r.studies[1], r.members[0], invalidations=[Intent(family=SCREENING)])
        before = list(r.mongo.collection(ROW).find({"Family": SCREENING}))
        fold(r)
        assert guard(r, SCREENING)["State"] == "Stale"
        assert list(r.mongo.collection(ROW).find({"Family": SCREENING})) == before
        assert fresh(r) == frozenset(one for one in declared(r) if one[0] != SCREENING)


@pytest.mark.req("WORKER-38")
def test_a_change_of_the_project_stales_the_groups_that_it_changes_for_what_was_saved_before(
    emptied: Settings,
) -> None:
    with folding(emptied) as r:
        decide(r, r.studies[0], r.members[0])
        joined = {"InvestigatorId": uuid4(), "JoinedAtUtc": datetime.now(UTC), "Name": "new"}
        r.mongo.collection(PROJECTS).update_one({"_id": r.project}, {"$push": {"Memberships": joined}})
        fold(r)
        assert guard(r, MEMBERSHIP)["State"] == guard(r, REVIEWER)["State"] == "Stale"
        assert guard(r, SCREENING)["State"] == "Fresh"
        assert SCREENING in families_of(fresh(r))


@pytest.mark.req("WORKER-15", "WORKER-45", "WORKER-46")
def test_what_overflowed_is_known_by_name_or_by_its_revisions_afterwards(emptied: Settings) -> None:
    with folding(emptied, studies=1) as r:
        study, first = r.studies[0], PENDING_ENTRIES_MAX + OVERFLOW_RECORDED_MAX
        template = decide(r, study, r.members[0])
        for revision in range(1, first + 3):
            changed = {"operation_id": f"screening:{revision}", "submission_digest": f"digest of {revision}"}
            revisions = {"source_revision_before": revision, "source_revision_after": revision + 1}
            entry = template.model_copy(update={**changed, **revisions})
            found = r.study(study)
            write(r, study, {PENDING: appended(pending_of(found), [entry], template.created_at_utc)})
        folded = fold(r)
        assert (folded.entries, folded.quarantined) == (PENDING_ENTRIES_MAX, 65)
        reasons = Counter(one["Reason"] for one in quarantine(r))
        assert reasons == {"Overflowed": 64, "UnrecordedDrops": 1}
        named = [one for one in quarantine(r) if one["Reason"] == "Overflowed"]
        assert all(one["SubmissionDigest"].startswith("digest of") for one in named)
        (range_,) = (one for one in quarantine(r) if one["Reason"] == "UnrecordedDrops")
        assert (range_["FromRevision"], range_["ToRevision"], range_["StudyId"]) == (first, first + 3, r.studies[0])
        assert fresh(r) == frozenset()
        r.backfill_all()
        decide(r, r.studies[0], r.members[0])
        assert fold(r).entries == 1
        assert fresh(r) == declared(r)


@pytest.mark.req("POISON-13", "POISON-14")
def test_the_record_that_reaches_the_soft_cap_disables_fold_mode_and_stales_every_family(emptied: Settings) -> None:
    caps = Caps(soft=2, hard=100)
    with folding(emptied) as r:
        poison(r, r.studies[0], Poison.DUPLICATE_RECEIPT)
        fold(r, caps=caps)
        assert r.control()["FoldMode"] == FoldMode.ENABLED
        assert guard(r, "StageAnnotation")["State"] == "Fresh"
        poison(r, r.studies[1], Poison.DUPLICATE_RECEIPT)
        fold(r, caps=caps)
        control = r.control()
        assert control["FoldMode"] == FoldMode.DISABLING
        assert datetime.now(UTC) - timedelta(minutes=5) < control["FoldDisablingSinceUtc"]
        assert {f for f in REVIEW.folding if guard(r, f)["State"] == "Stale"} == REVIEW.folding
        assert fold(r, caps=caps).stopped is Stopped.DRAINED  # its tripwire still stands


@pytest.mark.req("POISON-15")
def test_at_the_hard_cap_entries_are_consumed_without_a_record_and_the_project_is_marked(emptied: Settings) -> None:
    caps = Caps(soft=50, hard=1)
    with folding(emptied) as r:
        for study in r.studies:
            poison(r, study, Poison.DUPLICATE_RECEIPT)
        fold(r, caps=caps)
        assert len(quarantine(r)) == 1
        assert r.control()["FoldQuarantineIncompleteSinceUtc"] is not None
        assert pending(r.mongo, r.project) == {}


def test_a_set_of_which_nothing_can_be_made_is_taken_out_and_stales_everything(emptied: Settings) -> None:
    with folding(emptied) as r:
        write(r, r.studies[0], {PENDING: {"OldestAtUtc": datetime.now(UTC), "Entries": "?"}})
        fold(r)
        assert pending(r.mongo, r.project) == {}
        (record,) = quarantine(r)
        assert (record["Reason"], record["FromRevision"], record["ToRevision"]) == ("UnrecordedDrops", 0, 1)
        assert fresh(r) == frozenset()


@pytest.mark.req("WORKER-53")
def test_an_entry_that_does_nothing_leaves_its_receipt_and_no_ledger_record(emptied: Settings) -> None:
    with folding(emptied) as r:
        entry = leave(r, r.studies[0], {"Title": "another title"})
        before = r.control()["CommittedProjectionRevision"]
        fold(r)
        assert [one["OperationId"] for one in r.receipts()] == [entry.operation_id]
        assert r.control()["CommittedProjectionRevision"] == before
        assert not r.mongo.collection(DELTA).find_one({"OperationId": entry.operation_id})
        assert fresh(r) == declared(r)
