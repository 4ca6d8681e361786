"""Deliveries of a soak's claims: made once, found again by their receipt, and told apart from a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.documents import StageKind
from statlib.review.loading.review import DecisionEvent
from statlib.review.screening import Decision
from statlib.runbook.soak.delivering import Deliverer, SoakReason, changes_nothing, further_of
from statlib.runbook.soak.work import PlaceAct
from tests.reviews import ALL_FAMILIES, Review, review, stage

AT = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def opened(emptied: Settings) -> Iterator[Review]:
    with review(emptied, families=ALL_FAMILIES, members=1, stages=[stage(kind=StageKind.SCREENING)]) as made:
        yield made


def test_a_claim_without_an_answer_is_found_again_by_its_receipt(opened: Review) -> None:
    deliverer = Deliverer(opened.host, opened.project)
    act = PlaceAct(study_id=opened.studies[0], investigator_id=opened.members[0], stage_id=opened.stages[0], taken=True)
    assert not deliverer.deliver(act, None, again=False).duplicate
    with pytest.raises(Refusal) as early:
        deliverer.deliver(act, None, again=False)
    assert early.value.reason is SoakReason.NotAdmitted
    again = deliverer.deliver(act, None, again=True)
    assert again.duplicate
    assert again.leaves_receipt


def test_a_claim_that_was_never_made_is_not_found(opened: Review) -> None:
    opened.writer.submit(opened.studies[0], opened.members[0], Decision.INCLUDE)
    act = PlaceAct(study_id=opened.studies[0], investigator_id=opened.members[0], stage_id=opened.stages[0], taken=True)
    with pytest.raises(Refusal) as refused:
        Deliverer(opened.host, opened.project).deliver(act, None, again=True)
    assert refused.value.reason is SoakReason.NotAdmitted


def test_only_claims_are_delivered_without_an_envelope(opened: Review) -> None:
    event = DecisionEvent(
        seq=1, study_id=opened.studies[0], investigator_id=opened.members[0], decision=Decision.INCLUDE, at=AT
    )
    deliverer = Deliverer(opened.host, opened.project)
    with pytest.raises(ValueError, match="only claims"):
        deliverer.deliver(event, None, again=False)
    assert not changes_nothing(event, None)
    envelope = deliverer.open(event)
    assert not changes_nothing(event, envelope)
    saved = deliverer.deliver(event, envelope, again=False)
    assert changes_nothing(event, deliverer.open(event))
    assert further_of(event, None, saved) == saved.further
