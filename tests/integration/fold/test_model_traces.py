"""Histories in which a checked model of the fold went wrong before it was mended, on the real code: one test each."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest
from pymongo.monitoring import CommandListener, CommandStartedEvent

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.bulk import DecisionRow, update_studies
from statlib.review.catalogue import REVIEW
from statlib.review.claims import ClaimWriter
from statlib.review.edits import Join, edit_project
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics import modes
from statlib.statistics.arms import Arm
from statlib.statistics.backfill import backfill_together
from statlib.statistics.bounds import FREE_RETRIES_MAX, SAVE_ATTEMPTS_MAX
from statlib.statistics.documents import RECEIPT, RECEIPT_RETIREMENT, TrackingMode
from statlib.statistics.envelopes import Envelope
from statlib.statistics.fold.turn import Stopped, fold_project
from statlib.statistics.outcomes import Cause
from statlib.statistics.reader import ALL, Source, read_bundle
from statlib.statistics.reasons import SaveReason
from tests.acts import stages_and_questions
from tests.folding import fold_on, pending
from tests.interruptions import host_with
from tests.reviews import ALL_FAMILIES, Review, action, review, settings_for

ANNA, BEN = UUID(int=0xA), UUID(int=0xB)


@contextmanager
def folding(settings: Settings, *, members: int = 1) -> Iterator[Review]:
    stages, questions = stages_and_questions()
    with review(
        settings, studies=2, families=ALL_FAMILIES, members=members, stages=stages, questions=questions, fold=True
    ) as opened:
        backfill_together(opened.host, REVIEW, opened.project, ALL_FAMILIES)
        fold_on(opened.mongo, opened.project)
        yield opened


def fold(of: Review) -> None:
    assert fold_project(of.host, REVIEW, of.project, min_age_s=0.0).stopped is Stopped.DRAINED


def refused(of: Review, envelope: Envelope, decision: Decision) -> object:
    """Why the delivery is refused, which changes nothing."""
    before = of.snapshot_of_statistics()
    with pytest.raises(Refusal) as found:
        of.writer.save(envelope, decision)
    assert of.snapshot_of_statistics() == before
    return found.value.reason


def assert_exact(of: Review) -> None:
    """Whatever is served, together or by the family, is what the source says."""
    truth = of.whole_truth()
    assert of.read_all().values == truth


def test_a_delivery_from_before_an_opening_is_not_made_again_after_it(emptied: Settings) -> None:
    """While the project was not under statistics its saves left no evidence, so that nothing would be found of them."""
    with review(emptied, families=ALL_FAMILIES, fold=True) as r:
        r.gate(enabled=False)
        without = settings_for(r.mongo.settings, uuid4(), families=ALL_FAMILIES)
        with host_with(without, app_name="statlib-tests-without") as host:
            outside = ScreeningWriter(host, r.project)
            envelope = outside.open(r.studies[0], ANNA)
            assert outside.save(envelope, Decision.INCLUDE).arm is Arm.SOURCE_ONLY
            outside.submit(r.studies[0], ANNA, Decision.EXCLUDE)
        r.gate(enabled=True)
        fold_on(r.mongo, r.project)

        assert refused(r, envelope, Decision.INCLUDE) is SaveReason.VersionStale
        assert refused(r, envelope.as_redelivered(), Decision.INCLUDE) is SaveReason.VersionStale
        assert r.decisions(r.studies[0]) == {ANNA: False}


def test_a_save_that_counted_for_nothing_is_not_made_again_over_what_came_between(emptied: Settings) -> None:
    with folding(emptied) as r:
        study = r.studies[0]
        r.writer.submit(study, ANNA, Decision.INCLUDE)
        envelope = r.writer.open(study, ANNA)
        assert not r.writer.save(envelope, Decision.INCLUDE).leaves_receipt
        assert len(pending(r.mongo, r.project)[study].entries) == 1
        fold(r)
        update_studies(r.host, r.project, [DecisionRow(study, ANNA, Decision.EXCLUDE)])

        assert refused(r, envelope, Decision.INCLUDE) is SaveReason.VersionStale
        assert refused(r, envelope.as_redelivered(), Decision.INCLUDE) is SaveReason.VersionStale
        assert r.decisions(study) == {ANNA: False}


def test_a_delivery_whose_receipt_was_retired_is_not_made_again(emptied: Settings) -> None:
    with folding(emptied) as r:
        study = r.studies[0]
        envelope = r.writer.open(study, ANNA)
        r.writer.save(envelope, Decision.INCLUDE)
        fold(r)
        update_studies(r.host, r.project, [DecisionRow(study, ANNA, Decision.EXCLUDE)])
        stream = {"ProjectId": r.project, "SourceAggregateId": study, "OperationNamespace": envelope.namespace}
        retired = {"_id": stream, "RetiredThroughSourceRevision": envelope.expected}
        r.mongo.collection(RECEIPT_RETIREMENT).insert_one(retired)
        assert r.mongo.collection(RECEIPT).delete_one({"OperationId": envelope.operation_id}).deleted_count == 1

        assert refused(r, envelope, Decision.INCLUDE) is SaveReason.StatisticsOperationUnresolved
        assert refused(r, envelope.as_redelivered(), Decision.INCLUDE) is SaveReason.StatisticsOperationUnresolved
        assert r.decisions(study) == {ANNA: False}


@pytest.mark.parametrize("folded", [False, True], ids=["pending", "folded"])
def test_a_tracking_mode_that_returns_is_not_taken_for_one_that_never_left(emptied: Settings, folded: bool) -> None:
    """A place taken while places count for nobody moves nothing; when they count again, no row has it."""
    with folding(emptied) as r:
        r.writer.submit(r.studies[0], ANNA, Decision.INCLUDE)
        r.writer.submit(r.studies[0], BEN, Decision.INCLUDE)
        fold(r)
        backfill_together(r.host, REVIEW, r.project, ALL_FAMILIES)
        modes.set_tracking_mode(r.mongo, TrackingMode.UNTRACKED, action())
        assert ClaimWriter(r.host, r.project).claim(r.studies[0], r.members[0], r.stages[1]) is not None
        if folded:
            fold(r)
        modes.set_tracking_mode(r.mongo, TrackingMode.TRACKED, action())

        assert_exact(r)
        for family in ("StageAnnotation", "MembershipStageAnnotation", "ReviewerAnnotation"):
            assert served(r, family) == r.truth_of(family)
        fold(r)
        assert_exact(r)


def served(of: Review, family: str) -> object:
    return read_bundle(of.host, REVIEW, of.project, [(family, ALL)]).values[family]


def test_a_save_under_an_old_context_makes_every_family_of_its_group_doubtful(emptied: Settings) -> None:
    """To whoever opened the study before Anna joined, her decision says nothing of any member."""
    with folding(emptied, members=0) as r:
        envelope = r.writer.open(r.studies[0], ANNA)
        edit_project(r.host, r.project, Join(investigator=ANNA))
        backfill_together(r.host, REVIEW, r.project, ALL_FAMILIES)
        r.writer.save(envelope, Decision.INCLUDE)
        assert served(r, "MembershipScreening") == r.truth_of("MembershipScreening")
        fold(r)
        assert served(r, "MembershipScreening") == r.truth_of("MembershipScreening")
        assert r.read_all().source is Source.AUTHORITATIVE


class _Rivals(CommandListener):
    """Before each write of this thread the study is folded, and before it looks again somebody else saves it."""

    def __init__(self, of: Review, times: int) -> None:
        self._of, self._left, self._thread = of, times, threading.get_ident()
        self._decisions = itertools.cycle((Decision.EXCLUDE, Decision.INCLUDE))
        self.folds = 0
        self._missed = False

    def started(self, event: CommandStartedEvent) -> None:
        if threading.get_ident() != self._thread:
            return
        if event.command_name == "findAndModify" and self._left:
            fold(self._of)
            self._left, self.folds, self._missed = self._left - 1, self.folds + 1, True
        elif event.command_name == "aggregate" and self._missed:
            self._missed = False
            self._of.writer.submit(self._of.studies[0], BEN, next(self._decisions))

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


def test_a_miss_that_a_fold_had_a_part_in_is_not_charged(emptied: Settings) -> None:
    """Whether the save between was the cause as well, nobody can tell: as many as are free are charged to the fold."""
    charged = SAVE_ATTEMPTS_MAX - 1
    times = FREE_RETRIES_MAX + charged
    with folding(emptied) as r:
        r.writer.submit(r.studies[0], BEN, Decision.INCLUDE)
        rivals = _Rivals(r, times)
        with host_with(r.mongo.settings, rivals, app_name="statlib-tests-charged") as host:
            saved = ScreeningWriter(host, r.project).submit(r.studies[0], ANNA, Decision.INCLUDE)

        assert rivals.folds == times
        assert saved.failed_attempts == (Cause.FOLD,) * FREE_RETRIES_MAX + (Cause.SOURCE,) * charged
        assert r.decisions(r.studies[0])[ANNA]
        assert_exact(r)
