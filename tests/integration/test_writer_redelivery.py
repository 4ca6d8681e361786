"""Every writer's envelope delivered again: done once, told so, and another payload under it refused."""

from __future__ import annotations

import json

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.annotation_writer import AnnotationWriter, SessionAct
from statlib.review.claims import ClaimWriter
from statlib.review.reasons import ReviewReason
from statlib.statistics.arms import Arm
from statlib.statistics.envelopes import Envelope
from statlib.statistics.reasons import SaveReason
from tests import arms
from tests.doings import ANNA, ANSWERS, BEN, DOINGS, EXTRACTION, OTHERS, Doing, done_to, insert
from tests.exactness import unserved

ENVELOPED = [doing for doing in DOINGS.values() if doing.name != "claim"]


def over_the_wire(envelope: Envelope) -> Envelope:
    return Envelope.from_wire(json.loads(json.dumps(envelope.to_wire())))


@pytest.mark.parametrize("arm", list(Arm))
@pytest.mark.parametrize("doing", ENVELOPED, ids=lambda doing: doing.name)
def test_what_is_delivered_twice_is_done_once(settings: Settings, arm: Arm, doing: Doing) -> None:
    with done_to(settings, arm) as opened:
        [study] = insert(opened, doing)
        arms.begin(opened, arm)
        envelope = doing.open(opened.host, opened.project, study)
        assert doing.answer(opened.host, envelope) == "Saved"
        assert opened.study(study)["Audit"]["Version"] == 1
        after = opened.snapshot_of_statistics()

        again = doing.answer(opened.host, over_the_wire(envelope))
        assert again == ("Duplicate" if arm in arms.UNDER_STATISTICS else SaveReason.VersionStale.name)
        if doing.otherwise is not None:
            with pytest.raises(Refusal) as refused:
                doing.otherwise(opened.host, over_the_wire(envelope))
            other = SaveReason.DigestMismatch if arm in arms.UNDER_STATISTICS else SaveReason.VersionStale
            assert refused.value.reason is other
        assert opened.snapshot_of_statistics() == after

        if arm in arms.UNDER_STATISTICS:
            arms.fold(opened)
            receipts = opened.receipts()
            assert len(receipts) == doing.receipts
            assert len({receipt["OperationNamespace"] for receipt in receipts}) == doing.receipts
            assert set(unserved(opened)) <= {"ReviewerAnnotation", "QuestionAnswers"}
            assert doing.answer(opened.host, over_the_wire(envelope)) == "Duplicate"


@pytest.mark.parametrize("doing", ENVELOPED, ids=lambda doing: doing.name)
def test_an_envelope_rebases_onto_what_others_did_meanwhile(settings: Settings, doing: Doing) -> None:
    with done_to(settings, Arm.TRANSACTIONAL) as opened:
        [study] = insert(opened, doing)
        opened.backfill_all()
        envelope = doing.open(opened.host, opened.project, study)
        AnnotationWriter(opened.host, opened.project).submit(study, BEN, EXTRACTION.id, SessionAct.COMPLETE, ANSWERS)
        assert doing.answer(opened.host, over_the_wire(envelope)) == "Saved"
        assert opened.study(study)["Audit"]["Version"] == 2
        assert len(opened.receipts()) == doing.receipts + 1
        assert set(unserved(opened)) <= {"ReviewerAnnotation", "QuestionAnswers"}


@pytest.mark.parametrize("late", [SessionAct.SAVE, SessionAct.DELETE])
def test_what_was_done_to_a_session_since_is_not_undone_by_an_earlier_doing_that_arrives_late(
    settings: Settings, late: SessionAct
) -> None:
    """Saving, completing and deleting have operation ids of their own, and one session."""
    doing = DOINGS["complete"]
    with done_to(settings, Arm.TRANSACTIONAL) as opened:
        [study] = insert(opened, doing)
        writer = AnnotationWriter(opened.host, opened.project)
        early = writer.open(study, ANNA, EXTRACTION.id, late)
        for rounds in range(2):
            completed = writer.open(study, ANNA, EXTRACTION.id, SessionAct.COMPLETE)
            writer.save(completed, ANSWERS if rounds else OTHERS)
            with pytest.raises(Refusal) as refused:
                writer.save(over_the_wire(early), {} if late is SessionAct.SAVE else None)
            assert refused.value.reason is SaveReason.VersionStale
        [session] = opened.study(study)["Sessions"]
        assert (session["Status"], session["Answers"][0]["Value"]) == ("Completed", True)
        assert len(opened.receipts()) == 2


def test_a_late_release_frees_nothing_that_was_taken_since(settings: Settings) -> None:
    """Such as that of an idle timer: its holder came back meanwhile, saved, thought better of it and claimed anew."""
    doing = DOINGS["release"]
    with done_to(settings, Arm.TRANSACTIONAL) as opened:
        [study] = insert(opened, doing)
        idle = doing.open(opened.host, opened.project, study)
        annotations = AnnotationWriter(opened.host, opened.project)
        for act in (SessionAct.SAVE, SessionAct.DELETE):
            annotations.submit(study, ANNA, EXTRACTION.id, act)
        claimed = ClaimWriter(opened.host, opened.project).claim(study, ANNA, EXTRACTION.id)
        assert claimed is not None
        before = opened.snapshot_of_statistics()
        assert doing.answer(opened.host, over_the_wire(idle)) == ReviewReason.ReservationUnknown.name
        assert opened.snapshot_of_statistics() == before
