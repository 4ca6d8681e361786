"""What becomes of each entry of a batch: applied or discarded per family, or set aside with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from statlib.statistics.derivation import Consumer
from statlib.statistics.fold.batch import Taken
from statlib.statistics.fold.dispositions import Dispositions, Known, SetAside, dispose, keys_of, touched
from statlib.statistics.moves import StaleCause
from statlib.statistics.pending import Dropped, Entry, Intent, Overflow, PendingSet, Poison, pending_of
from tests.domain import LOANS, SHELVES, VISITS
from tests.pending_books import CONTEXT, FOLDING, FOLDING_LIBRARY, NOW, TRACKING_EPOCH, entry, lent

BOOK, OTHER_BOOK = UUID(int=1), UUID(int=2)
AT = Consumer.of(FOLDING_LIBRARY, CONTEXT, TRACKING_EPOCH)
ALL_POISONED = dict.fromkeys(FOLDING, StaleCause.POISONED)


def of(*raws: Any, aggregate: UUID = BOOK, overflow: Overflow | None = None) -> Taken:
    stored = tuple(raw.to_bson() if isinstance(raw, Entry) else raw for raw in raws)
    return Taken(aggregate, 7, PendingSet(stored, overflow, NOW))


def decide(*batch: Taken, known: Known | None = None) -> Dispositions:
    return dispose(batch, known or Known(), AT)


LENDING = entry(lent())
KEY = LENDING.key


def test_an_entry_that_nobody_knows_is_consumed_with_what_it_does_to_each_family() -> None:
    decided = decide(of(LENDING))
    assert [(one.aggregate, one.entry) for one in decided.consumed] == [(BOOK, LENDING)]
    assert decided.consumed[0].effects.keys() == set(FOLDING)
    assert decided.aside == ()
    assert decided.staled == {}


def test_an_entry_that_does_nothing_is_consumed_and_stales_nothing() -> None:
    decided = decide(of(entry()))
    assert len(decided.consumed) == 1
    assert decided.consumed[0].effects == {}
    assert decided.staled == {}


KNOWN: dict[Poison, Known] = {
    Poison.DUPLICATE_RECEIPT: Known(receipts={KEY: LENDING.submission_digest}),
    Poison.CONFLICTING_RECEIPT: Known(receipts={KEY: "another"}),
    Poison.DUPLICATE_DELTA: Known(deltas=frozenset({KEY})),
    Poison.RETIRED_SOURCE_REVISION: Known(retired={(BOOK, LENDING.operation_namespace): 0}),
    Poison.QUARANTINE_EXISTS: Known(quarantined=frozenset({KEY})),
}


@pytest.mark.req("POISON-01", "POISON-02", "POISON-03", "POISON-05", "POISON-07", "POISON-24")
@pytest.mark.parametrize("reason", KNOWN)
def test_an_operation_of_which_something_is_stored_is_set_aside_and_its_families_are_staled(reason: Poison) -> None:
    decided = decide(of(LENDING), known=KNOWN[reason])
    assert decided.consumed == ()
    digest = LENDING.submission_digest
    assert decided.aside == (SetAside(BOOK, reason, KEY, digest, entry=LENDING.to_bson()),)
    assert decided.staled == ALL_POISONED


@pytest.mark.parametrize(
    "known",
    [
        Known(receipts={("another namespace", KEY[1]): "digest"}, deltas=frozenset({(KEY[0], "another")})),
        Known(retired={(BOOK, LENDING.operation_namespace): -1}),
        Known(retired={(OTHER_BOOK, LENDING.operation_namespace): 9, (BOOK, "another namespace"): 9}),
    ],
    ids=["of other operations", "not as far as its revision", "of another document or namespace"],
)
def test_what_is_stored_of_others_is_none_of_its_business(known: Known) -> None:
    assert len(decide(of(LENDING), known=known).consumed) == 1


@pytest.mark.req("POISON-07")
def test_a_readable_poison_stales_only_the_families_that_it_could_touch() -> None:
    visit = entry(lent(), stales=())
    visit = entry(visit.transitions[0].model_copy(update={"kind": "Visit"}))
    decided = decide(of(visit), known=Known(deltas=frozenset({visit.key})))
    assert decided.staled == {VISITS: StaleCause.POISONED}


@pytest.mark.req("POISON-21")
def test_one_operation_twice_in_a_batch_leaves_one_receipt() -> None:
    decided = decide(of(LENDING), of(LENDING, entry(lent("bob"), submission_digest="other"), aggregate=OTHER_BOOK))
    assert [one.aggregate for one in decided.consumed] == [BOOK]
    assert [one.reason for one in decided.aside] == [Poison.DUPLICATE_RECEIPT, Poison.CONFLICTING_RECEIPT]
    assert decided.staled == ALL_POISONED


def raw(**changed: Any) -> Mapping[str, Any]:
    return {**LENDING.to_bson(), **changed}


UNREADABLE: dict[str, tuple[Any, Poison]] = {
    "another protocol": (raw(ProtocolVersion=99), Poison.UNKNOWN_PROTOCOL),
    "another protocol, and nothing else right": ({"ProtocolVersion": 99}, Poison.UNKNOWN_PROTOCOL),
    "a kind that is none": (raw(Transitions=[{"Kind": "Sale", "Payload": {}}]), Poison.UNKNOWN_KIND),
    "no payload": (raw(Transitions=[{"Kind": "Lending", "Payload": {}}]), Poison.UNDESERIALIZABLE),
    "a payload of other things": (
        raw(Transitions=[{"Kind": "Lending", "Payload": {"Before": [], "After": 3}}]),
        Poison.UNDESERIALIZABLE,
    ),
    "a field is missing": ({k: v for k, v in raw().items() if k != "Context"}, Poison.UNDESERIALIZABLE),
    "no document": ("entry", Poison.UNDESERIALIZABLE),
    "nothing": (None, Poison.UNDESERIALIZABLE),
}


@pytest.mark.req("POISON-04", "POISON-06", "POISON-23", "POISON-27")
@pytest.mark.parametrize("name", UNREADABLE)
def test_an_entry_that_cannot_be_read_is_set_aside_and_stales_every_folding_family(name: str) -> None:
    stored, reason = UNREADABLE[name]
    decided = decide(of(stored, LENDING.model_copy(update={"operation_id": "lending:next"})))
    assert [one.reason for one in decided.aside] == [reason]
    named = isinstance(stored, Mapping) and "OperationId" in stored
    assert decided.aside[0].key == (KEY if named else ("", ""))
    assert decided.aside[0].digest == (LENDING.submission_digest if named else None)
    assert decided.staled == ALL_POISONED
    assert [one.entry.operation_id for one in decided.consumed] == ["lending:next"]  # what follows goes on


@pytest.mark.req("WORKER-38", "WORKER-43")
@pytest.mark.parametrize(
    ("changed", "staled"),
    [
        ({"context": {**LENDING.context, "People": "others"}}, {LOANS, VISITS}),
        ({"context": {**LENDING.context, "Building": "others"}}, {SHELVES}),
        ({"context": {}}, set(FOLDING)),
        ({"assumed_tracking_epoch": TRACKING_EPOCH - 1}, set(FOLDING)),
        ({"catalogue_version": LENDING.catalogue_version + 1}, set(FOLDING)),
        ({"source_version": LENDING.source_version + 1}, set(FOLDING)),
    ],
    ids=str,
)
def test_an_entry_of_another_context_is_consumed_and_its_whole_groups_are_staled(
    changed: dict[str, Any], staled: set[str]
) -> None:
    decided = decide(of(LENDING.model_copy(update=changed)))
    assert len(decided.consumed) == 1
    assert decided.consumed[0].effects.keys() == set(FOLDING) - staled
    assert decided.staled == dict.fromkeys(staled, StaleCause.CONTEXT_CHANGED)


@pytest.mark.req("WORKER-38")
def test_under_another_context_even_what_does_nothing_stales_the_group() -> None:
    nothing = entry(context={**LENDING.context, "People": "others"})
    assert decide(of(nothing)).staled.keys() == {LOANS, VISITS}


@pytest.mark.req("WORKER-44")
def test_an_intent_is_an_effect_like_any_other() -> None:
    decided = decide(of(entry(stales=(Intent(family=LOANS), Intent(family=VISITS, scope="visitor/ann")))))
    effects = decided.consumed[0].effects
    assert effects[LOANS].stale_family
    assert effects[VISITS].stale_scopes == {"visitor/ann"}
    assert decided.staled == {}


OVERFLOW = Overflow(
    overflowed_at_utc=NOW,
    dropped=[
        Dropped(operation_namespace="n", operation_id=str(number), submission_digest=f"d{number}") for number in (1, 2)
    ],
    unrecorded_count=3,
    unrecorded_from_revision=4,
    unrecorded_to_revision=9,
)


@pytest.mark.req("WORKER-45", "WORKER-46")
def test_an_overflow_goes_into_quarantine_whole_and_stales_every_folding_family() -> None:
    decided = decide(of(LENDING, overflow=OVERFLOW))
    assert decided.aside == (
        SetAside(BOOK, Poison.OVERFLOWED, ("n", "1"), "d1"),
        SetAside(BOOK, Poison.OVERFLOWED, ("n", "2"), "d2"),
        SetAside(BOOK, Poison.UNRECORDED_DROPS, revisions=(4, 9)),
    )
    assert len(decided.consumed) == 1  # what did fit leaves its receipt
    assert decided.staled == dict.fromkeys(FOLDING, StaleCause.OVERFLOWED)


def test_a_set_that_makes_no_sense_counts_as_drops_up_to_the_documents_version() -> None:
    taken = Taken(BOOK, 7, pending_of({"PendingStatistics": "?", "Audit": {"Version": 7}}), "?")
    assert taken.malformed
    assert decide(taken).aside == (SetAside(BOOK, Poison.UNRECORDED_DROPS, revisions=(0, 7)),)
    assert not of(LENDING).malformed
    assert not Taken.of({"_id": BOOK, "Audit": {"Version": 7}}).malformed


def test_the_first_reason_for_staling_a_family_is_the_one_told() -> None:
    changed = LENDING.model_copy(update={"context": {**LENDING.context, "People": "x"}, "operation_id": "second"})
    decided = decide(of(changed, None, overflow=OVERFLOW))
    assert decided.staled == {
        LOANS: StaleCause.CONTEXT_CHANGED,
        VISITS: StaleCause.CONTEXT_CHANGED,
        SHELVES: StaleCause.POISONED,
    }


def test_the_operations_of_a_batch_are_asked_for_once_each() -> None:
    batch = [of(LENDING, None, {"OperationNamespace": "n"}), of(LENDING, entry(number=2), aggregate=OTHER_BOOK)]
    assert keys_of(batch) == sorted({KEY, entry(number=2).key})


def test_what_an_entry_could_touch_is_everything_where_it_cannot_be_read() -> None:
    assert touched(LENDING.to_bson(), AT) == set(FOLDING)
    assert touched(entry().to_bson(), AT) == frozenset()
    assert touched({}, AT) == set(FOLDING)
    assert touched(entry(context={**LENDING.context, "People": "x"}).to_bson(), AT) == {LOANS, VISITS}
