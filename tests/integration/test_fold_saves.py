"""Saves that fold: one command more than the load, and everything that statistics need of them in the study itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.review.screening import Decision
from statlib.statistics.arms import Arm
from statlib.statistics.outcomes import Cause
from statlib.statistics.pending import FOLD_PROTOCOL
from statlib.statistics.reasons import SaveReason
from tests.folding import fold_on, pending
from tests.reviews import ALL_FAMILIES, Review, review

ANNA, BEN = UUID(int=0xA), UUID(int=0xB)


@contextmanager
def folding(settings: Settings, **options: Any) -> Iterator[Review]:
    with review(settings, fold=True, **{"families": ALL_FAMILIES, **options}) as opened:
        opened.backfill_all()
        fold_on(opened.mongo, opened.project)
        yield opened


@pytest.fixture
def opened(settings: Settings) -> Iterator[Review]:
    with folding(settings) as review_:
        yield review_


@pytest.mark.req("SAVE-02", "SAVE-03", "SAVE-19", "SAVE-23", "SAVE-24", "SAVE-43", "SAVE-46", "ENTRY-13", "ENTRY-18")
def test_a_screening_save_is_a_load_and_one_write_and_leaves_its_entry_in_the_study_alone(opened: Review) -> None:
    study = opened.studies[0]
    untouched = {k: v for k, v in opened.snapshot_of_statistics().items() if k != "pmStudy"}
    with counting(opened.mongo.client) as count:
        saved = opened.writer.submit(study, ANNA, Decision.INCLUDE)

    assert count.names == ("aggregate", "findAndModify")
    assert (saved.arm, saved.leaves_receipt, saved.revision_after, saved.failed_attempts) == (Arm.FOLD, True, 1, ())
    assert {k: v for k, v in opened.snapshot_of_statistics().items() if k != "pmStudy"} == untouched
    (entry,) = pending(opened.mongo, opened.project)[study].entries
    assert entry["OperationId"] == f"screening:{study}:{ANNA}:0"
    assert (entry["ExpectedSourceRevision"], entry["SourceRevisionBefore"], entry["SourceRevisionAfter"]) == (0, 0, 1)
    assert entry["ProtocolVersion"] == FOLD_PROTOCOL
    assert opened.decisions(study) == {ANNA: True}


@pytest.mark.req("SAVE-53", "SAVE-54", "SAVE-32", "SAVE-33")
def test_a_repeat_is_known_by_the_pending_entry(opened: Review) -> None:
    envelope = opened.writer.open(opened.studies[0], ANNA)
    opened.writer.save(envelope, Decision.INCLUDE)
    before = opened.snapshot_of_statistics()

    again = opened.writer.save(envelope.as_redelivered(), Decision.INCLUDE)
    with pytest.raises(Refusal) as refused:
        opened.writer.save(envelope.as_redelivered(), Decision.EXCLUDE)

    assert (again.duplicate, again.leaves_receipt, again.revision_after) == (True, True, 1)
    assert refused.value.reason is SaveReason.DigestMismatch
    assert opened.snapshot_of_statistics() == before


def test_a_save_that_another_came_before_is_made_upon_it(opened: Review) -> None:
    study = opened.studies[0]
    envelope = opened.writer.open(study, ANNA)
    opened.writer.submit(study, BEN, Decision.EXCLUDE)
    with counting(opened.mongo.client) as count:
        saved = opened.writer.save(envelope, Decision.INCLUDE)

    assert count.names == ("findAndModify", "aggregate", "findAndModify")
    assert (saved.failed_attempts, saved.revision_after) == ((Cause.SOURCE,), 2)
    second = pending(opened.mongo, opened.project)[study].entries[1]
    assert (second["ExpectedSourceRevision"], second["SourceRevisionBefore"]) == (0, 1)
    assert opened.decisions(study) == {ANNA: True, BEN: False}
