"""A rebuild among saves that fold: what is pending is taken off what it counted, so that nobody loses and nothing is
counted twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from statlib.kernel.refusals import Reason, Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.leases import acquire, release
from statlib.mongo.reasons import MongoReason
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.review.families.membership_screening import NAME as MEMBERSHIP
from statlib.review.families.project_screening import NAME as SCREENING
from statlib.review.families.reviewer_annotation import NAME as REVIEWER_ANNOTATION
from statlib.review.screening import Decision
from statlib.statistics import admission, queries
from statlib.statistics import backfill as backfill_module
from statlib.statistics import rebuild as rebuild_module
from statlib.statistics.backfill import backfill_together
from statlib.statistics.documents import FOLD_QUARANTINE, LEASE, RECEIPT, ROW
from statlib.statistics.fold.turn import fold_project
from statlib.statistics.parity import compare
from statlib.statistics.pending import FOLD_PROTOCOL, PENDING, Entry
from statlib.statistics.reader import Source
from statlib.statistics.reasons import OperateReason
from statlib.statistics.rebuild import RebuiltTogether, rebuild_together
from tests.backfilling import until
from tests.folding import fold_on, pending
from tests.pending_studies import screen, work
from tests.reviews import ALL_FAMILIES, Review, review, stage


@pytest.fixture
def served(emptied: Settings) -> Iterator[Review]:
    """A folding review whose every family is Fresh."""
    with review(
        emptied, studies=6, families=ALL_FAMILIES, members=3, stages=[stage()], searches=1, fold=True
    ) as opened:
        opened.backfill_all()
        fold_on(opened.mongo, opened.project)
        yield opened


def rebuilt(of: Review, *families: str, force: bool = True) -> RebuiltTogether:
    return rebuild_together(of.host, REVIEW, of.project, dict.fromkeys(families or ALL_FAMILIES), force=force)


def hook(monkeypatch: pytest.MonkeyPatch, step: str, doing: Callable[[], object], *, once: bool = True) -> None:
    """``doing`` after a rebuild was admitted, before it publishes, or before it drains."""
    real = getattr(rebuild_module, step)
    done: list[bool] = []

    def hooked(*arguments: Any) -> Any:
        found = real(*arguments) if step == "admit" else None
        if not (once and done):
            done.append(True)
            doing()
        return found if step == "admit" else real(*arguments)

    monkeypatch.setattr(rebuild_module, step, hooked)


def fold(of: Review) -> None:
    fold_project(of.host, REVIEW, of.project, min_age_s=0)
    assert pending(of.mongo, of.project) == {}


def assert_exact(of: Review) -> None:
    """Served, and right: by what is stored and pending now, and by what is stored once it is folded."""
    for _ in range(2):
        found = of.read_all()
        assert (found.source, found.reason, found.detail) == (Source.MATERIALISED, None, None)
        assert found.values == of.whole_truth()
        fold(of)


# --- one place -------------------------------------------------------------------------------------------------------


@pytest.mark.req("REBUILD-01", "REBUILD-02", "REBUILD-03")
def test_what_is_pending_is_folded_first_also_of_families_that_are_not_rebuilt(served: Review) -> None:
    for study in served.studies[:3]:
        served.writer.submit(study, served.members[0], Decision.INCLUDE)
    assert len(pending(served.mongo, served.project)) == 3
    done = rebuilt(served, SCREENING)
    assert pending(served.mongo, served.project) == {}
    assert (done.rebuilt[SCREENING].published, done.rebuilt[SCREENING].pending.entries) == (("project",), 0)
    assert_exact(served)


@pytest.mark.req("REBUILD-07", "REBUILD-11", "REBUILD-12", "REBUILD-17", "INV-01", "INV-09")
@pytest.mark.parametrize("step", ["drain", "admit", "publish"])
def test_a_save_at_any_moment_of_a_rebuild_is_counted_once_and_loses_it_no_race(
    served: Review, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    served.writer.submit(served.studies[0], served.members[0], Decision.INCLUDE)
    hook(monkeypatch, step, lambda: served.writer.submit(served.studies[1], served.members[1], Decision.EXCLUDE))
    done = rebuilt(served)
    assert (set(done.rebuilt), done.lost) == (set(ALL_FAMILIES), {})
    assert done.rebuilt[SCREENING].pending.entries == (step == "admit")
    assert len(pending(served.mongo, served.project)) == (step != "drain")
    assert_exact(served)


@pytest.mark.req("REBUILD-14")
def test_rows_that_are_right_with_what_is_pending_are_current_and_written_by_nobody(
    served: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(served.mongo.collection(ROW).find())
    hook(monkeypatch, "admit", lambda: served.writer.submit(served.studies[1], served.members[1], Decision.EXCLUDE))
    done = rebuilt(served, force=False)
    assert {family: (of.published, of.drifted) for family, of in done.rebuilt.items()} == dict.fromkeys(
        ALL_FAMILIES, ((), ())
    )
    assert list(served.mongo.collection(ROW).find()) == before
    assert_exact(served)


def test_a_row_that_is_wrong_with_what_is_pending_has_drifted_and_is_published_again(
    served: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.mongo.collection(ROW).update_one({"Family": SCREENING}, {"$set": {"Counters": [{"k": "x", "v": 1}]}})
    hook(monkeypatch, "admit", lambda: served.writer.submit(served.studies[1], served.members[1], Decision.EXCLUDE))
    assert rebuilt(served, SCREENING, force=False).rebuilt[SCREENING].drifted == ("project",)
    assert_exact(served)


@pytest.mark.req("REBUILD-13")
def test_a_family_that_an_entry_stales_is_published_and_staled_again_by_the_fold(
    served: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen(served, served.studies[0], *served.members[:2])
    rebuilt(served)
    hook(monkeypatch, "admit", lambda: work(served, served.studies[0], served.members[0]))
    done = rebuilt(served, force=False)
    own = done.rebuilt[REVIEWER_ANNOTATION]
    assert len(own.published) == 1, "the scope whose row lacks what nothing pending says"
    assert own.drifted == ()
    fold(served)
    found = {of.family: of for of in compare(served.host, REVIEW, served.project, ALL_FAMILIES)}
    assert {family for family, of in found.items() if not of.compared} == {REVIEWER_ANNOTATION}
    assert all(of.exact for family, of in found.items() if family != REVIEWER_ANNOTATION)
    served.backfill(REVIEWER_ANNOTATION)
    assert_exact(served)


# --- what cannot be taken off ----------------------------------------------------------------------------------------


def _pend(of: Review, **raw: Any) -> Entry:
    """A sound entry, with fields of its stored form replaced."""
    entry = screen(of, of.studies[5], uuid4())
    fields = {f"{PENDING}.Entries.0.{name}": value for name, value in raw.items()}
    if fields:
        of.mongo.collection(STUDIES).update_one({"_id": of.studies[5]}, {"$set": fields})
    return entry


def _overflow(of: Review) -> None:
    entry = _pend(of)
    overflow = {"OverflowedAtUtc": entry.created_at_utc, "Dropped": [], "UnrecordedCount": 0}
    of.mongo.collection(STUDIES).update_one({"_id": of.studies[5]}, {"$set": {f"{PENDING}.Overflow": overflow}})


def _known(collection: str, of: Review) -> None:
    entry = _pend(of)
    key = {"OperationNamespace": entry.operation_namespace, "OperationId": entry.operation_id}
    of.mongo.collection(collection).insert_one(
        {"ProjectId": of.project, **key, "SourceDigest": entry.submission_digest, "QuarantinedAtUtc": None}
    )


UNDRAINED: dict[str, tuple[str, Callable[[Review], object]]] = {
    "overflow": ("Overflowed", _overflow),
    "unknown protocol": ("UnknownProtocol", lambda of: _pend(of, ProtocolVersion=FOLD_PROTOCOL + 1)),
    "unknown kind": ("UnknownKind", lambda of: _pend(of, Transitions=[{"Kind": "Burning", "Payload": {}}])),
    "no entry at all": ("Undeserializable", lambda of: _pend(of, Context=7)),
    "a receipt already": ("DuplicateReceipt", lambda of: _known(RECEIPT, of)),
    "in quarantine already": ("QuarantineExists", lambda of: _known(FOLD_QUARANTINE, of)),
    "another tracking epoch": ("ContextChanged", lambda of: _pend(of, AssumedTrackingEpoch=41)),
    "other counters": ("ContextChanged", lambda of: _pend(of, CatalogueVersion=41)),
}


@pytest.mark.req("REBUILD-08")
@pytest.mark.parametrize("name", UNDRAINED)
def test_what_the_fold_would_set_aside_is_drained_by_the_next_try_of_a_backfill(
    served: Review, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    why, doing = UNDRAINED[name]
    hook(monkeypatch, "admit", lambda: doing(served))
    tried: list[RebuiltTogether] = []

    def noted(*arguments: Any, **options: Any) -> RebuiltTogether:
        tried.append(rebuild_together(*arguments, **options))
        return tried[-1]

    monkeypatch.setattr(backfill_module, "rebuild_together", noted)
    before = list(served.mongo.collection(ROW).find({"Family": {"$in": list(REVIEW.folding)}}))
    asked = sorted(REVIEW.folding)
    done = backfill_together(served.host, REVIEW, served.project, asked, force=True)
    assert [sorted(one.lost) for one in tried] == [asked, []]
    assert {refusal.reason for refusal in tried[0].lost.values()} == {OperateReason.PendingNotDrained}
    assert all(str(refusal).endswith(why) or why in str(refusal) for refusal in tried[0].lost.values())
    assert [one.races_lost for one in done] == [1] * len(asked)
    assert all(one.verified.exact for one in done)
    assert list(served.mongo.collection(ROW).find({"Family": {"$in": asked}})) != before
    assert_exact(served)


@pytest.mark.req("REBUILD-09")
def test_an_entry_of_another_context_keeps_its_own_group_from_being_published(
    served: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook(monkeypatch, "admit", lambda: _pend(served, **{"Context.Membership": "another"}))
    done = rebuilt(served)
    groups = REVIEW.transitions.groups if REVIEW.transitions else {}
    assert set(done.lost) == {family for family, group in groups.items() if group == "Membership"}
    assert set(done.rebuilt) == set(ALL_FAMILIES) - set(done.lost)
    assert done.rebuilt[SCREENING].pending.entries == 1
    backfill_together(served.host, REVIEW, served.project, sorted(done.lost))
    assert_exact(served)


# --- leases ----------------------------------------------------------------------------------------------------------


def fold_lease_expires(of: Review) -> None:
    of.mongo.collection(LEASE).update_one(
        {"_id": queries.fold_lease_id(of.project)}, [{"$set": {"ExpiresAtUtc": of.mongo.clock.mongo_in(-1)}}]
    )


@pytest.mark.req("REBUILD-01", "INV-05", "INV-09")
@pytest.mark.parametrize("folded", [False, True], ids=["stolen", "stolen and folded under"])
def test_a_rebuild_whose_fold_lease_was_stolen_publishes_nothing(
    served: Review, monkeypatch: pytest.MonkeyPatch, folded: bool
) -> None:
    before = served.row()

    def steal() -> None:
        served.writer.submit(served.studies[1], served.members[1], Decision.EXCLUDE)
        fold_lease_expires(served)
        if folded:
            fold(served)
        else:
            acquire(served.mongo, LEASE, queries.fold_lease_id(served.project), 60)

    hook(monkeypatch, "publish", steal)
    done = rebuilt(served, SCREENING, MEMBERSHIP)
    assert {refusal.reason for refusal in done.lost.values()} == {MongoReason.LeaseLost}
    assert done.rebuilt == {}
    if not folded:
        assert served.row() == before
        fold_lease_expires(served)
    assert_exact(served)


def test_a_rebuild_asks_whoever_folds_to_let_go_and_waits_for_it(served: Review) -> None:
    lease = acquire(served.mongo, LEASE, queries.fold_lease_id(served.project), 60)
    done: list[RebuiltTogether] = []
    waiting = threading.Thread(target=lambda: done.append(rebuilt(served, SCREENING)))
    waiting.start()
    stored = served.mongo.collection(LEASE)
    wanted = {"_id": queries.fold_lease_id(served.project), "YieldRequestedUntilUtc": {"$exists": True}}
    until(lambda: stored.find_one(wanted) is not None)
    assert not done
    release(served.mongo, lease)
    waiting.join(timeout=60)
    assert not waiting.is_alive()
    assert done[0].rebuilt[SCREENING].published == ("project",)
    assert stored.find_one(wanted) is None, "whoever folds may come back at once"


def test_a_fold_lease_that_is_not_let_go_is_refused_and_nothing_was_written(
    served: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "FOLD_YIELD_S", 0.3)
    acquire(served.mongo, LEASE, queries.fold_lease_id(served.project), 60)
    before = served.guard()
    assert_refused(MongoReason.LeaseHeld, lambda: rebuilt(served, SCREENING))
    assert served.guard() == before


def test_nobody_waits_for_the_fold_where_the_rebuild_is_refused_anyway(served: Review) -> None:
    acquire(served.mongo, LEASE, queries.fold_lease_id(served.project), 60)
    served.gate(enabled=False)
    assert_refused(OperateReason.GateClosed, lambda: rebuilt(served, SCREENING))


def test_a_family_that_does_not_fold_is_rebuilt_beside_the_fold(served: Review) -> None:
    acquire(served.mongo, LEASE, queries.fold_lease_id(served.project), 60)
    (alone,) = set(ALL_FAMILIES) - REVIEW.folding
    assert rebuilt(served, alone).rebuilt[alone].published


def test_a_project_that_begins_to_fold_while_it_is_rebuilt_makes_the_rebuild_lose(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with review(emptied, families=ALL_FAMILIES, members=2, fold=True) as opened:
        opened.backfill_all()
        hook(monkeypatch, "admit", lambda: fold_on(opened.mongo, opened.project))
        assert_refused(OperateReason.PublicationRaceLost, lambda: rebuilt(opened, SCREENING))


def assert_refused(reason: Reason, doing: Callable[[], object]) -> None:
    with pytest.raises(Refusal) as refused:
        doing()
    assert refused.value.reason is reason


# --- all at once -----------------------------------------------------------------------------------------------------


@pytest.mark.req("REBUILD-11", "REBUILD-12", "INV-01", "INV-02")
def test_rebuilds_among_a_stream_of_saves_and_a_fold_lose_no_race_and_leave_everything_exact(served: Review) -> None:
    ended = threading.Event()
    raised: list[BaseException] = []

    def beside(doing: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                while not ended.is_set():
                    doing()
            except BaseException as error:
                raised.append(error)

        return threading.Thread(target=run)

    def save() -> None:
        for study in served.studies:
            served.writer.submit(study, uuid4(), Decision.INCLUDE)
            if ended.is_set():
                return

    others = [
        beside(save),
        beside(lambda: fold_project(served.host, REVIEW, served.project, min_age_s=0) and ended.wait(0.02)),
    ]
    for other in others:
        other.start()
    try:
        for _ in range(6):
            done = rebuilt(served, SCREENING, MEMBERSHIP)
            assert (sorted(done.rebuilt), done.lost) == (sorted((SCREENING, MEMBERSHIP)), {})
            for found in compare(served.host, REVIEW, served.project, [SCREENING, MEMBERSHIP]):
                assert found.exact, found
    finally:
        ended.set()
        for other in others:
            other.join(timeout=60)
    assert not any(other.is_alive() for other in others)
    assert raised == []
    backfill_together(served.host, REVIEW, served.project, list(ALL_FAMILIES))
    assert_exact(served)
