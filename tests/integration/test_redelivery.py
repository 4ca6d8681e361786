"""Every order of deliveries, corrections, rivals and gates: saved once, refused once, and no correction lost.

A sequence is a permutation of events on one study. ``D`` delivers Anna's envelope, ``X`` delivers it with another
decision, ``C`` is her own later correction, ``B`` a decision of Ben's, ``O`` opens the gate (again), ``K`` closes it,
``R`` reclaims all receipts of the study. Each answer is held against a model that knows only what was committed and
what evidence it left; and the safety of the whole sequence is stated without that model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import permutations
from uuid import UUID, uuid4

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.documents import STUDIES, Study
from statlib.review.namespaces import SCREENING_NAMESPACE
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics.documents import CONTROL, GUARD, RECEIPT, RECEIPT_RETIREMENT, ROW
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.idempotency import Evidence
from statlib.statistics.outcomes import Cause, Saved
from statlib.statistics.reader import Source
from statlib.statistics.reasons import SaveReason
from statlib.statistics.trail import Trail
from tests.interruptions import Interrupter, When, host_with
from tests.reviews import FAMILY, Review, host_of, review

ANNA, BEN = UUID(int=0xA), UUID(int=0xB)
DELIVERED, ALTERED, CORRECTED = Decision.INCLUDE, Decision.RETRACT, Decision.EXCLUDE


class Arrangement(StrEnum):
    """``TRANSACTIONAL``: the gate is open. ``SOURCE_ONLY``: the project has no control yet. ``TWO_HOSTS``: the gate is
    closed, and while it is, everything goes through a host that does not know the project."""

    TRANSACTIONAL = "transactional"
    SOURCE_ONLY = "source-only"
    TWO_HOSTS = "two-hosts"


SEQUENCES = {
    Arrangement.TRANSACTIONAL: ["DDXCB", "DDCBO", "DDXCO", "DDXCK", "DDBCR"],
    Arrangement.SOURCE_ONLY: ["DDXCB", "DDCBO", "DDXCO"],
    Arrangement.TWO_HOSTS: ["DDCBO", "DDXCO"],
}
CASES = [(arrangement, events) for arrangement, all_events in SEQUENCES.items() for events in all_events]


@dataclass
class Model:
    """What is known of one study: commits in order, the evidence of each, and the gate. ``opening``: counted."""

    receipts_are_left: bool
    gate_is_open: bool
    opening: int = 0
    version: int = 0
    retired_through: int = -1
    receipts: dict[tuple[UUID, int], Decision] = field(default_factory=dict)

    def deliver(
        self, who: UUID, expected: int, opening: int, decision: Decision, *, loaded_without_control: bool = False
    ) -> str:
        """``loaded_without_control``: the delivery acts on what opening read, when nothing kept receipts yet."""
        if expected == self.version:
            return self._commit(who, expected, decision, receipt=self.receipts_are_left and not loaded_without_control)
        if not self.receipts_are_left:
            return SaveReason.VersionStale.name
        if (who, expected) in self.receipts:
            same = self.receipts[who, expected] is decision
            return "Duplicate" if same else SaveReason.DigestMismatch.name
        if expected <= self.retired_through:
            return SaveReason.StatisticsOperationUnresolved.name
        later = any(actor == who and at > expected for actor, at in self.receipts)
        if later or not self.gate_is_open or opening != self.opening:
            return SaveReason.VersionStale.name
        return self._commit(who, expected, decision, receipt=True)

    def _commit(self, who: UUID, expected: int, decision: Decision, *, receipt: bool) -> str:
        if receipt:
            self.receipts[who, expected] = decision
        self.version += 1
        return "Saved"

    def open_gate(self) -> None:
        self.gate_is_open = self.receipts_are_left = True
        self.opening += 1

    def retire(self) -> None:
        self.retired_through = self.version
        self.receipts.clear()


@dataclass
class Scene:
    """One arrangement on real servers."""

    arrangement: Arrangement
    review: Review
    ignorant: Host | None
    study: UUID = field(default_factory=uuid4)

    def begin(self) -> Model:
        """A fresh study, and the gate as the arrangement has it."""
        mongo, project = self.review.mongo, self.review.project
        self.study = uuid4()
        mongo.collection(STUDIES).insert_one(Study(id=self.study, project_id=project).to_bson())
        if self.arrangement is Arrangement.SOURCE_ONLY:
            for collection, key in ((CONTROL, "_id"), (GUARD, "_id.ProjectId"), (ROW, "ProjectId")):
                mongo.collection(collection).delete_many({key: project})
            return Model(receipts_are_left=False, gate_is_open=False)
        self.review.gate(enabled=self.arrangement is Arrangement.TRANSACTIONAL)
        opened = self.arrangement is Arrangement.TRANSACTIONAL
        return Model(receipts_are_left=opened, gate_is_open=opened)

    def writer(self, model: Model) -> ScreeningWriter:
        host = self.ignorant if self.ignorant is not None and not model.gate_is_open else self.review.host
        return ScreeningWriter(host, self.review.project)

    def retire(self, model: Model) -> None:
        mongo = self.review.mongo
        key = {
            "ProjectId": self.review.project,
            "SourceAggregateId": self.study,
            "OperationNamespace": SCREENING_NAMESPACE,
        }
        mongo.collection(RECEIPT_RETIREMENT).update_one(
            {"_id": key}, {"$set": {"RetiredThroughSourceRevision": model.version}}, upsert=True
        )
        mongo.collection(RECEIPT).delete_many({"SourceAggregateId": self.study})


@pytest.fixture(params=list(Arrangement))
def scene(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Scene]:
    with ExitStack() as stack:
        opened = stack.enter_context(
            review(settings, studies=1, under_statistics=request.param is not Arrangement.SOURCE_ONLY)
        )
        two = request.param is Arrangement.TWO_HOSTS
        yield Scene(request.param, opened, stack.enter_context(host_of(settings)) if two else None)


def answer_of(writer: ScreeningWriter, envelope: Envelope, decision: Decision) -> tuple[str, Saved | None]:
    try:
        saved = writer.save(envelope, decision)
    except Refusal as refusal:
        return refusal.reason.name, None
    return ("Duplicate" if saved.duplicate else "Saved"), saved


def over_the_wire(envelope: Envelope) -> Envelope:
    return Envelope.from_wire(json.loads(json.dumps(envelope.to_wire())))


def play(scene: Scene, events: tuple[str, ...]) -> None:
    model = scene.begin()
    envelope = scene.writer(model).open(scene.study, ANNA)
    opening = model.opening
    answers: list[tuple[str, str]] = []
    carried: Envelope | None = envelope  # the first delivery still has what opening read
    corrected = False
    for event in events:
        writer = scene.writer(model)
        if event == "O":
            if model.gate_is_open:
                scene.review.gate(enabled=False)
            scene.review.gate(enabled=True)
            model.open_gate()
        elif event == "K":
            scene.review.gate(enabled=False)
            model.gate_is_open = False
        elif event == "R":
            scene.retire(model)
            model.retire()
        elif event in "DX":
            decision = DELIVERED if event == "D" else ALTERED
            expected = model.deliver(
                ANNA,
                envelope.expected,
                opening,
                decision,
                loaded_without_control=carried is not None and scene.arrangement is Arrangement.SOURCE_ONLY,
            )
            before = scene.review.study(scene.study)
            got, _ = answer_of(writer, carried or over_the_wire(envelope), decision)
            carried = None
            assert got == expected, (events, answers, event, got, expected)
            answers.append((event, got))
            after = scene.review.study(scene.study)
            assert (after == before) is (got != "Saved"), (events, answers)
            assert not (corrected and got == "Saved"), ("the correction was undone", events, answers)
        else:
            who, decision = (ANNA, CORRECTED) if event == "C" else (BEN, DELIVERED)
            fresh = writer.open(scene.study, who)
            expected = model.deliver(who, fresh.expected, model.opening, decision)
            got, _ = answer_of(writer, fresh, decision)
            assert got == expected == "Saved", (events, answers)
            answers.append((event, got))
            corrected = corrected or event == "C"

    committed = Counter(event for event, got in answers if got == "Saved")
    assert committed["D"] + committed["X"] <= 1, ("one operation was applied twice", events, answers)
    study = scene.review.study(scene.study)
    assert study["Audit"]["Version"] == committed.total() == model.version, (events, answers)
    decisions = scene.review.decisions(scene.study)
    assert decisions.get(BEN) is (True if "B" in events else None)
    if corrected:
        assert decisions[ANNA] is False, ("the correction was lost", events, answers)
    left = {r["OperationId"] for r in scene.review.receipts() if r["SourceAggregateId"] == scene.study}
    assert len(left) == len(model.receipts), (events, answers)


@pytest.mark.parametrize(
    ("scene", "events"), CASES, indirect=["scene"], ids=[f"{arrangement}-{events}" for arrangement, events in CASES]
)
@pytest.mark.req("INV-07")
def test_every_order_of_events_saves_once_and_never_claims_what_is_not_so(scene: Scene, events: str) -> None:
    orders = sorted(set(permutations(events)))
    assert len(orders) == 60
    for order in orders:
        play(scene, order)
    if scene.arrangement is Arrangement.TRANSACTIONAL and "K" not in events:
        scene.review.mongo.clock.advance(scene.review.mongo.settings.statistics.opening_grace_s)
        scene.review.backfill()
        bundle = scene.review.read()
        assert bundle.source is Source.MATERIALISED
        assert bundle.counters(FAMILY) == scene.review.truth()


@pytest.mark.req("SAVE-35")
@pytest.mark.parametrize("scene", [Arrangement.TRANSACTIONAL], indirect=True)
def test_an_envelope_kept_too_long_is_loaded_again_before_it_is_written(scene: Scene) -> None:
    scene.begin()
    writer = ScreeningWriter(scene.review.host, scene.review.project)
    envelope = writer.open(scene.study, ANNA)
    scene.review.mongo.clock.advance(31)
    saved = writer.save(envelope, DELIVERED)
    assert saved.failed_attempts == (Cause.LATE,)
    assert scene.review.decisions(scene.study) == {ANNA: True}


def test_a_rebase_decided_under_an_opening_that_has_ended_since_is_not_written(settings: Settings) -> None:
    """Between the look and the transaction: what was read under one opening is no evidence under the next."""
    interrupter = Interrupter()
    with (
        review(settings, studies=1) as opened,
        host_with(opened.mongo.settings, interrupter, app_name="statlib-tests-rebasing") as host,
    ):
        writer = ScreeningWriter(host, opened.project)
        envelope = writer.open(opened.studies[0], ANNA)
        opened.writer.submit(opened.studies[0], BEN, DELIVERED)

        def reopen() -> None:
            opened.gate(enabled=False)
            opened.gate(enabled=True)

        with interrupter.armed(When.BEFORE_SENDING, 2, reopen, name="aggregate"):
            got, _ = answer_of(writer, envelope.as_redelivered(), DELIVERED)
        assert interrupter.reached
        assert got == SaveReason.VersionStale.name
        assert opened.decisions(opened.studies[0]) == {BEN: True}


def test_a_receipt_that_a_look_missed_still_ends_a_second_commit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unique index stands behind the look: the repeat cannot commit, whatever was decided."""
    with review(settings, studies=1) as opened:
        envelope = opened.writer.open(opened.studies[0], ANNA)
        opened.writer.save(envelope, DELIVERED)
        monkeypatch.setattr(Trail, "evidence", lambda *_: Evidence.NONE)
        got, _ = answer_of(opened.writer, envelope.as_redelivered(), DELIVERED)
        assert got == SaveReason.AttemptsExhausted.name
        assert opened.study(opened.studies[0])["Audit"]["Version"] == 1
        assert len(opened.receipts()) == 1
