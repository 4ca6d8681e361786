"""Any history of writers, edits, rebuilds and folds of a project whose saves fold: after each step served =
authoritative = naive count, and every operation is in exactly one place.

STATLIB_HISTORIES plays more of them than a whole run of the tests has time for.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from enum import StrEnum
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from statlib.kernel.refusals import Reason
from statlib.kernel.settings import Settings
from statlib.mongo import leases
from statlib.review.annotation_writer import SessionAct
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.review.screening import Decision
from statlib.statistics import claim_entries, pending, queries
from statlib.statistics.bounds import FOLD_LEASE_TTL_S, FOLD_WRITER_GRACE_S
from statlib.statistics.documents import (
    FOLD_QUARANTINE,
    LEASE,
    RECEIPT,
    RECEIPT_RETIREMENT,
    DeltaKind,
    FoldMode,
    Quarantined,
)
from statlib.statistics.envelopes import Envelope
from statlib.statistics.fold.batch import Selection
from statlib.statistics.fold.transaction import Fold, fold_batch
from statlib.statistics.fold.turn import Stopped, fold_project
from statlib.statistics.fold_modes import disable_fold, enable_fold
from statlib.statistics.hosts import Role
from statlib.statistics.pending import PENDING, Poison
from statlib.statistics.pending_index import build_pending_index
from statlib.statistics.reasons import OperateReason, SaveReason
from statlib.statistics.trail import Kept, Key
from tests.acts import REFUSED_ALONE
from tests.folding import heartbeat
from tests.folding import pending as pending_in
from tests.integration import test_every_writer as every_writer
from tests.integration.test_every_writer import PLACE, EveryWriter
from tests.kept import Places, named, places
from tests.reviews import ALL_FAMILIES, action, host_of

HISTORIES = int(os.environ.get("STATLIB_HISTORIES", "5"))  # read before fixtures clear what is ours
STEPS = 50
ENTRIES_MAX, RECORDED_MAX = 6, 2  # in place of the bounds: full sets are met often

REFUSED: frozenset[Reason] = REFUSED_ALONE | {
    SaveReason.VersionStale,
    SaveReason.DigestMismatch,
    SaveReason.StatisticsOperationUnresolved,
    OperateReason.PendingNotDrained,
    OperateReason.FoldDisabling,
}

quarantined: Counter[str] = Counter()  # records that were met at the end of a history, per reason


class Spoilt(StrEnum):
    """What is done to an entry that waits, so that nobody may fold it."""

    PROTOCOL = "another protocol"
    KIND = "an unknown kind"
    FIELD = "a field that is missing"
    ENTRY = "no document at all"
    RECEIVED = "the id of an operation that has its receipt"
    RECEIVED_OTHERWISE = "and another digest"
    RECORDED = "the id of an operation that the ledger has"
    QUARANTINED = "an operation that is in quarantine"
    RETIRED = "a revision whose receipts were retired"
    SET = "a set without entries"


class Act(StrEnum):
    SCREEN = "screen"
    ANSWER = "answer"
    CLAIM = "claim"
    RELEASE = "release"


class EveryWriterFolding(EveryWriter):
    """``forged``: operations whose evidence the history itself has tampered with; ``known``: all that were ever met,
    and the study that each is of."""

    folds = True
    refused: ClassVar[frozenset[Reason]] = REFUSED

    def __init__(self) -> None:
        super().__init__()
        self.envelopes: list[Envelope] = []
        self.known: dict[Key, UUID] = {}
        self.forged: set[Key] = set()

    @initialize(min_screenings=st.integers(1, 3))
    def a_review(self, min_screenings: int) -> None:
        super().a_review(min_screenings)
        build_pending_index(self.review.mongo, REVIEW)
        self.enable_folding()
        self.everything_is_published()
        assert self.review.read_all().reason is None
        self.screen(0, 0, Decision.INCLUDE, on_stage=False)
        self.check()

    def teardown(self) -> None:
        if hasattr(self, "review"):
            for record in self.review.mongo.collection(FOLD_QUARANTINE).find({"ProjectId": self.project}):
                quarantined[record["Reason"]] += 1
        super().teardown()

    # --- the fold ---

    @rule(documents=st.integers(1, 3))
    def fold_a_batch(self, documents: int) -> None:
        mongo, of_fold = self.review.mongo, queries.fold_lease_id(self.project)
        with leases.held(mongo, LEASE, of_fold, FOLD_LEASE_TTL_S) as lease:
            fold_batch(Fold(self.host, REVIEW, self.project, lease), Selection(self.project, docs_max=documents))

    @rule()
    def drain(self) -> None:
        before = places(self.review)
        folded = fold_project(self.host, REVIEW, self.project, min_age_s=0.0)
        assert (folded.stopped, folded.aborted) == (Stopped.DRAINED, 0)
        after = places(self.review)
        assert pending_in(self.review.mongo, self.project) == {}
        consumed = set(before.of[Kept.PENDING]) - self.forged
        assert after.of[Kept.RECEIPT].keys() - before.of[Kept.RECEIPT].keys() - self.forged == consumed
        assert set(before.of[Kept.DROPPED]) - self.forged <= after.of[Kept.QUARANTINE].keys()

    @rule()
    def enable_folding(self) -> None:
        """By hosts of their own: this one may just be renewing itself, on a clock that was advanced."""
        mongo = self.review.mongo
        heartbeat(mongo)
        with host_of(mongo.settings) as host, host_of(mongo.settings, Role.PROJECT_MANAGEMENT):
            self.attempt(lambda: enable_fold(host, REVIEW, self.project, action()))
        mongo.clock.advance(mongo.settings.statistics.opening_grace_s)

    @rule(waits=st.booleans())
    def disable_folding(self, waits: bool) -> None:
        disable_fold(self.host, REVIEW, self.project, action())
        if waits:
            self.review.mongo.clock.advance(FOLD_WRITER_GRACE_S)
            self.drain()
            assert self.review.control()["FoldMode"] == FoldMode.DISABLED

    # --- saves that take their time, or come again ---

    @rule(study=PLACE, person=PLACE)
    def open_a_study(self, study: int, person: int) -> None:
        opened = self.acts.study(study), self.acts.person(person)
        self.attempt(lambda: self.envelopes.append(self.review.writer.open(*opened)))

    @precondition(lambda self: self.envelopes)
    @rule(place=PLACE, decision=st.sampled_from(Decision), again=st.booleans())
    def save_what_was_opened(self, place: int, decision: Decision, again: bool) -> None:
        envelope = self.envelopes[place % len(self.envelopes)]
        delivered = envelope.as_redelivered() if again else envelope
        self.attempt(lambda: self.review.writer.save(delivered, decision))

    @rule(study=PLACE, person=PLACE)
    def fill_the_set_of_a_study(self, study: int, person: int) -> None:
        for number in range(ENTRIES_MAX + RECORDED_MAX + 1):
            decision = (Decision.INCLUDE, Decision.EXCLUDE)[number % 2]
            self.screen(study, person, decision, on_stage=False)

    @rule(
        acts=st.lists(st.tuples(st.sampled_from(Act), st.integers(0, 1), PLACE, PLACE), min_size=2, max_size=6),
        spoilt=st.none() | st.sampled_from(Spoilt),
    )
    def work_on_what_is_served(self, acts: list[tuple[Act, int, int, int]], spoilt: Spoilt | None) -> None:
        """Left to chance alone, most of what is saved would meet rows that are stale already, or no fold mode."""
        self.all_is_served()
        for act, study, person, what in acts:
            match act:
                case Act.SCREEN:
                    self.screen(study, person, tuple(Decision)[what % len(Decision)], on_stage=False)
                case Act.ANSWER:
                    self.annotate(study, person, 1 + what % 2, tuple(SessionAct)[what % 2], what, reconciliation=False)
                case Act.CLAIM:
                    self.claim(study, person, 1 + what % 2, enforced=True)
                case Act.RELEASE:
                    self.release(study, person, 1 + what % 2)
            self.check()
        if spoilt is not None:
            self.spoil_an_entry(spoilt, 0, len(acts))
            self.check()
            self.drain()

    def all_is_served(self) -> None:
        """Nothing is under way, saves fold, and the first studies are there to be annotated."""
        while self.held:
            self.end_an_operation(0, owner_lives=True)
        mongo = self.review.mongo
        if self.review.control()["FoldMode"] != FoldMode.ENABLED:
            mongo.clock.advance(FOLD_WRITER_GRACE_S)
            self.drain()
            self.enable_folding()
        for study, person in itertools.product(range(2), range(len(self.review.members))):
            self.screen(study, person, Decision.INCLUDE, on_stage=False)
        mongo.clock.advance(mongo.settings.statistics.opening_grace_s)
        self.everything_is_published()

    # --- entries that nobody may fold ---

    @rule(how=st.sampled_from(Spoilt), study=PLACE, place=PLACE)
    def spoil_an_entry(self, how: Spoilt, study: int, place: int) -> None:
        waiting = [s for s in self.review.stored_studies() if pending.pending_of(s).entries]
        if not waiting:
            return
        chosen = waiting[study % len(waiting)]
        entries = chosen[PENDING]["Entries"]
        place %= len(entries)
        self.forged.update(
            filter(None, map(named, entries if how in {Spoilt.SET, Spoilt.RETIRED} else [entries[place]]))
        )
        if how is Spoilt.SET:
            self._set(chosen["_id"], "Entries", "nonsense")
        elif isinstance(entries[place], dict):
            self._set(chosen["_id"], f"Entries.{place}", self._spoilt(how, chosen["_id"], entries[place], place))

    def _set(self, study: UUID, field: str, value: Any) -> None:
        self.review.mongo.collection(STUDIES).update_one({"_id": study}, {"$set": {f"{PENDING}.{field}": value}})

    def _spoilt(self, how: Spoilt, study: UUID, entry: dict[str, Any], place: int) -> Any:
        mongo, key = self.review.mongo, named(entry) or ("", "")
        match how:
            case Spoilt.PROTOCOL:
                return {**entry, "ProtocolVersion": 99}
            case Spoilt.KIND:
                return {**entry, "Transitions": [{"Kind": "Unheard", "Payload": {}}]}
            case Spoilt.FIELD:
                return {name: value for name, value in entry.items() if name != "Context"}
            case Spoilt.ENTRY:
                return "nonsense"
            case Spoilt.QUARANTINED:
                record = Quarantined(
                    project_id=self.project, study_id=study, operation_namespace=key[0], operation_id=key[1],
                    reason=Poison.LIVELOCKED.value, quarantined_at_utc=entry["CreatedAtUtc"],
                )  # fmt: skip
                mongo.collection(FOLD_QUARANTINE).insert_one(record.to_bson())
            case Spoilt.RETIRED:
                stream = {"ProjectId": self.project, "SourceAggregateId": study, "OperationNamespace": key[0]}
                through = {"RetiredThroughSourceRevision": int(entry.get("ExpectedSourceRevision", 0))}
                mongo.collection(RECEIPT_RETIREMENT).update_one({"_id": stream}, {"$max": through}, upsert=True)
            case _:
                return self._under_another_id(how, entry, place)
        return entry

    def _under_another_id(self, how: Spoilt, entry: dict[str, Any], place: int) -> dict[str, Any]:
        others = self.review.receipts()
        if how is Spoilt.RECORDED:
            folded = {named(delta) for delta in self.review.deltas() if delta["Kind"] == DeltaKind.OPERATION}
            others = [receipt for receipt in others if named(receipt) in folded]
        if not others:
            return entry
        other = others[place % len(others)]
        self.forged.add(named(other) or ("", ""))
        if how is Spoilt.RECORDED:
            self.review.mongo.collection(RECEIPT).delete_one({"_id": other["_id"]})
        digest = "another" if how is Spoilt.RECEIVED_OTHERWISE else other["SourceDigest"]
        named_so = {name: other[name] for name in ("OperationNamespace", "OperationId")}
        return {**entry, **named_so, "SubmissionDigest": digest}

    # --- what must hold ---

    @invariant()
    def check(self) -> None:
        super().check()
        if hasattr(self, "review"):
            self._every_operation_is_in_one_place(places(self.review))

    def _every_operation_is_in_one_place(self, now: Places) -> None:
        assert now.repeated <= self.forged
        there = {study["_id"]: str(study["_id"]) for study in self.review.stored_studies()}
        lost = [
            key
            for key, study in self.known.items()
            if study in there and key not in now.all and key not in self.forged and not now.hides(key)
        ]
        assert lost == []
        for key in now.all:
            self.known.setdefault(key, next((id_ for id_, text in there.items() if text in key[1]), UUID(int=0)))


@pytest.fixture
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "PENDING_ENTRIES_MAX", ENTRIES_MAX)
    monkeypatch.setattr(claim_entries, "PENDING_ENTRIES_MAX", ENTRIES_MAX)
    monkeypatch.setattr(pending, "OVERFLOW_RECORDED_MAX", RECORDED_MAX)


@pytest.mark.req("INV-01", "INV-02", "INV-08", "INV-11")
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("small_sets")
def test_whatever_is_done_while_saves_fold_every_read_is_exact_and_no_operation_lost(emptied: Settings) -> None:
    class OnThisServer(EveryWriterFolding):
        base = emptied

    every_writer.served.clear()
    every_writer.overlaid.clear()
    quarantined.clear()
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
    print(
        f"{HISTORIES} histories of up to {STEPS} steps; scopes compared as served: "
        f"{dict(sorted(every_writer.served.items()))}; of these with something pending: "
        f"{dict(sorted(every_writer.overlaid.items()))}; quarantined: {dict(sorted(quarantined.items()))}"
    )
    assert set(every_writer.served) == set(ALL_FAMILIES), "a family that is never served proves nothing"
    assert sum(every_writer.overlaid.values()), "nor does a history in which nothing is ever pending"
