"""Any history of writers, edits, fences, rebuilds and readers: after each step served = authoritative = naive count.

`make prove` plays 2,000 histories instead of 100, and prints the seed that it began with.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from statlib.kernel.refusals import Reason, Refusal
from statlib.kernel.settings import ClockSettings, Settings
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import snapshot
from statlib.review.annotation_writer import SessionAct
from statlib.review.catalogue import REVIEW
from statlib.review.documents import StageKind
from statlib.review.edits import SetThreshold
from statlib.review.screening import Decision
from statlib.statistics import modes
from statlib.statistics.authoritative import PinnedReads
from statlib.statistics.backfill import backfill_together
from statlib.statistics.bounds import FENCE_LEASE_TTL_S
from statlib.statistics.counters import without_zeros
from statlib.statistics.documents import FenceKind, Mode, TrackingMode
from statlib.statistics.fences import Asked, Held, admit, finish, release_interrupted
from statlib.statistics.hosts import Host
from statlib.statistics.reader import authoritative_values, judged, read_moment
from statlib.statistics.reasons import ServeReason
from statlib.statistics.rewrites import complete
from tests.acts import OPTIONS, REFUSED_ALONE, Acts, stages_and_questions
from tests.reviews import ALL_FAMILIES, Review, action, review

HISTORIES = int(os.environ.get("STATLIB_HISTORIES", "100"))  # read before fixtures clear what is ours
STEPS = 50
PLACE = st.integers(0, 99)  # an index into whatever there is, modulo its length
STAGED = (FenceKind.BULK_STUDY_UPDATE, FenceKind.SEARCH_IMPORT, FenceKind.SEARCH_REMOVAL)

served: Counter[str] = Counter()  # scopes that were compared as a reader would have served them, per family
overlaid: Counter[str] = Counter()  # of these, scopes that something pending moved


class EveryWriter(RuleBasedStateMachine):
    """One review and everything that can be done to it. ``held`` are operations that somebody began and left."""

    base: Settings
    folds: ClassVar[bool] = False
    refused: ClassVar[frozenset[Reason]] = REFUSED_ALONE

    def __init__(self) -> None:
        super().__init__()
        self.opened = ExitStack()
        self.held: dict[FenceKind, Held] = {}
        self.left: list[int] = []

    @initialize(min_screenings=st.integers(1, 3))
    def a_review(self, min_screenings: int) -> None:
        stages, questions = stages_and_questions()
        self.review: Review = self.opened.enter_context(
            review(
                self.base, studies=4, families=ALL_FAMILIES, members=3, searches=2,
                stages=stages, questions=questions, min_screenings=min_screenings, fold=self.folds,
            )
        )  # fmt: skip
        self.acts = Acts(self.review, self.review.host)
        self.everything_is_published()

    def teardown(self) -> None:
        self.opened.close()

    # --- what is there ---

    @property
    def host(self) -> Host:
        return self.review.host

    @property
    def project(self) -> UUID:
        return self.review.project

    def attempt(self, do: Callable[[], object]) -> None:
        """A refusal must be one of those that such an act may meet; anything else fails the history."""
        try:
            do()
        except Refusal as refusal:
            if refusal.reason not in self.refused:
                raise

    # --- writers ---

    @rule(study=PLACE, person=PLACE, decision=st.sampled_from(Decision), on_stage=st.booleans())
    def screen(self, study: int, person: int, decision: Decision, on_stage: bool) -> None:
        self.attempt(lambda: self.acts.screen(study, person, decision, on_stage=on_stage))

    @rule(
        study=PLACE, person=PLACE, stage=PLACE, act=st.sampled_from(SessionAct), answers=st.none() | PLACE,
        reconciliation=st.booleans(),
    )  # fmt: skip
    def annotate(
        self, study: int, person: int, stage: int, act: SessionAct, answers: int | None, reconciliation: bool
    ) -> None:
        self.attempt(lambda: self.acts.annotate(study, person, stage, act, answers, reconciliation=reconciliation))

    @rule(study=PLACE, person=PLACE, stage=PLACE, enforced=st.booleans())
    def claim(self, study: int, person: int, stage: int, enforced: bool) -> None:
        self.attempt(lambda: self.acts.claim(study, person, stage, enforced=enforced))

    @rule(study=PLACE, person=PLACE, stage=PLACE)
    def release(self, study: int, person: int, stage: int) -> None:
        self.attempt(lambda: self.acts.release(study, person, stage))

    @rule(rows=st.lists(st.tuples(PLACE, PLACE, st.sampled_from(Decision)), max_size=6))
    def update_in_bulk(self, rows: list[tuple[int, int, Decision]]) -> None:
        self.attempt(lambda: self.acts.update_in_bulk(rows))

    @rule(studies=st.integers(0, 3))
    def import_a_search(self, studies: int) -> None:
        self.attempt(lambda: self.acts.import_a_search(studies))

    @rule(place=PLACE)
    def remove_a_search(self, place: int) -> None:
        self.attempt(lambda: self.acts.remove_a_search(place))

    # --- edits ---

    @rule(person=PLACE)
    def leave(self, person: int) -> None:
        self.attempt(lambda: self.acts.come_or_go(person, joins=False))
        self.left.append(person)

    @rule(person=PLACE, returns=st.booleans())
    def join(self, person: int, returns: bool) -> None:
        who = self.left.pop() if returns and self.left else person
        self.attempt(lambda: self.acts.come_or_go(who, joins=True))

    @rule(stage=PLACE, sessions=st.integers(1, 3))
    def set_target(self, stage: int, sessions: int) -> None:
        self.attempt(lambda: self.acts.set_target(stage, sessions))

    @rule(there=st.booleans(), kind=st.sampled_from(StageKind))
    def add_or_remove_a_stage(self, there: bool, kind: StageKind) -> None:
        self.attempt(lambda: self.acts.add_or_remove_a_stage(kind, there=there))

    @rule(stage=PLACE, there=st.booleans())
    def add_or_remove_a_question(self, stage: int, there: bool) -> None:
        self.attempt(lambda: self.acts.add_or_remove_a_question(stage, there=there))

    @rule(minimum=st.integers(1, 3), ratio=st.sampled_from([0.51, 0.66, 1.0]))
    def set_the_threshold(self, minimum: int, ratio: float) -> None:
        self.attempt(lambda: self.acts.set_the_threshold(minimum, ratio))

    @rule(place=PLACE, name=st.sampled_from(["x/y", "z.z", *OPTIONS]))
    def rename_an_option(self, place: int, name: str) -> None:
        self.attempt(lambda: self.acts.rename_an_option(place, name))

    @rule(mode=st.sampled_from(TrackingMode))
    def switch_tracking(self, mode: TrackingMode) -> None:
        modes.set_tracking_mode(self.review.mongo, mode, action())

    # --- operations that are begun and left, and what becomes of them ---

    @rule(kind=st.sampled_from(STAGED), families=st.frozensets(st.sampled_from(ALL_FAMILIES), min_size=1))
    def begin_a_staged_operation(self, kind: FenceKind, families: frozenset[str]) -> None:
        def begin() -> None:
            self.held[kind] = admit(self.host, REVIEW, self.project, Asked(kind, families, {"left": "open"}))

        self.attempt(begin)

    @rule(minimum=st.integers(1, 3))
    def begin_a_recalculation(self, minimum: int) -> None:
        change = SetThreshold(min_screenings=minimum, agreement_ratio=0.66)
        kind = FenceKind.INCLUSION_RECALCULATION
        asked = Asked(kind, frozenset(), change.model_dump(mode="json", by_alias=True), change=change)

        def begin() -> None:
            self.held[kind] = admit(self.host, REVIEW, self.project, asked)

        self.attempt(begin)

    @precondition(lambda self: self.held)
    @rule(place=PLACE, owner_lives=st.booleans())
    def end_an_operation(self, place: int, owner_lives: bool) -> None:
        kind = sorted(self.held)[place % len(self.held)]
        held = self.held.pop(kind)
        if not owner_lives:
            self.review.mongo.clock.advance(FENCE_LEASE_TTL_S + 1)
        if kind is FenceKind.INCLUSION_RECALCULATION:
            self.review.mongo.clock.advance(FENCE_LEASE_TTL_S + 1)  # only a rewrite's owner walks through it
            self.attempt(lambda: complete(self.host, REVIEW, self.project, kind))
        elif owner_lives:
            self.attempt(lambda: finish(held))
        else:
            self.attempt(lambda: release_interrupted(self.review.mongo, self.project, kind))
            with pytest.raises(Refusal) as late:
                finish(held)
            assert late.value.reason is MongoReason.LeaseLost

    # --- operators ---

    @rule(families=st.lists(st.sampled_from(ALL_FAMILIES), min_size=1, max_size=4, unique=True), force=st.booleans())
    def publish_some(self, families: list[str], force: bool) -> None:
        self.attempt(lambda: backfill_together(self.host, REVIEW, self.project, families, force=force))

    @rule()
    def everything_is_published(self) -> None:
        self.attempt(lambda: backfill_together(self.host, REVIEW, self.project, ALL_FAMILIES))

    @rule(waits=st.booleans())
    def close_and_open_the_gate(self, waits: bool) -> None:
        self.review.gate(enabled=False)
        self.check()
        self.review.gate(enabled=True)
        if waits:
            self.review.mongo.clock.advance(self.review.mongo.settings.statistics.opening_grace_s)

    @rule()
    def the_fleet_is_closed_and_opened(self) -> None:
        self.review.fleet(Mode.DISABLED)
        self.check()
        self.review.fleet(Mode.ENABLED)
        self.review.mongo.clock.advance(self.review.mongo.settings.statistics.opening_grace_s)

    # --- what must hold ---

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "review"):
            return
        truth, hidden = self.review.whole_truth(), self.review.source_is_hidden()
        asked = dict.fromkeys(ALL_FAMILIES)
        with snapshot(self.review.mongo) as session:
            reads = PinnedReads(self.review.mongo, session)
            moment = read_moment(self.host, reads, REVIEW, self.project, asked)
            scopes = moment.configuration.declared(asked)
            assert authoritative_values(reads, REVIEW, self.project, moment.context, scopes) == truth
        verdicts = {
            (family, scope): judged(self.host, REVIEW, self.project, moment, {family: (scope,)})
            for family, names in scopes.items()
            for scope in names
        }
        closed = {key: verdict.reason for key, verdict in verdicts.items()}
        for (family, scope), verdict in verdicts.items():
            assert (verdict.reason is ServeReason.SourceVisibilityFenced) is hidden
            if verdict.reason is None:
                assert without_zeros(verdict.value_of(moment, family, scope)) == truth[family][scope], (family, scope)
                served[family] += 1
                overlaid[family] += (family, scope) in verdict.counters
        if hidden:
            with pytest.raises(Refusal) as refused:
                self.review.read_all()
            assert refused.value.reason is ServeReason.SourceVisibilityFenced
        elif all(scopes.values()) and not any(closed.values()):  # of a family without a scope, its guard may be any
            bundle = self.review.read_all()
            assert (bundle.reason, bundle.values) == (None, truth)


@pytest.fixture
def base(emptied: Settings, tmp_path: Path) -> Settings:
    return emptied.model_copy(update={"clock": ClockSettings(offset_file=tmp_path / "offset_ms")})


@pytest.mark.timeout(0)
def test_whatever_is_done_every_served_scope_is_what_a_naive_count_says(base: Settings) -> None:
    class OnThisServer(EveryWriter):
        pass

    OnThisServer.base = base
    served.clear()
    run_state_machine_as_test(
        OnThisServer,
        settings=settings(
            max_examples=HISTORIES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{HISTORIES} histories of up to {STEPS} steps; scopes compared as served: {dict(sorted(served.items()))}")
    assert set(served) == set(ALL_FAMILIES), "a family that is never served proves nothing"
