"""The overlay adds what is pending to what is stored, exactly, or refuses by name and no more than it must."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import bson
import pytest
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions

from statlib.statistics import overlay as overlay_module
from statlib.statistics.bounds import (
    OVERLAY_AGE_MAX_S,
    OVERLAY_ENTRIES_MAX,
    OVERLAY_STUDIES_MAX,
    PENDING_ENTRIES_MAX,
)
from statlib.statistics.counters import Counters
from statlib.statistics.derivation import Consumer, Derived, derive
from statlib.statistics.overlay import INVARIANT_VIOLATIONS, Overlaid, OverlayRefusal, Pending, overlay
from statlib.statistics.pending import FOLD_PROTOCOL, PENDING, Entry, Intent, Overflow, PendingSet, stored
from tests.domain import LOANS, SHELVES, VISITS
from tests.pending_books import (
    CONTEXT,
    FOLDING,
    FOLDING_LIBRARY,
    NOW,
    STOCK,
    TRACKING_EPOCH,
    entry,
    lent,
)

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD, tz_aware=True)
AT = Consumer.of(FOLDING_LIBRARY, CONTEXT, TRACKING_EPOCH)
ALL = {family: of.declared_scopes(CONTEXT) for family, of in FOLDING_LIBRARY.families.items()}


@dataclass(frozen=True)
class Stored:
    values: Mapping[str, int]


def rows(**lent_by: int) -> dict[tuple[str, str], Stored]:
    """Every scope's row; ``lent_by`` says of how many a visitor has."""
    return {
        (SHELVES, "shelf/0"): Stored({"Books": 5, "Lent": 1}),
        (SHELVES, "shelf/1"): Stored({"Books": 4}),
        (LOANS, "project"): Stored({"Lent": 1}),
        (VISITS, "visitor/ann"): Stored({"Lent": lent_by.get("ann", 1)}),
        (VISITS, "visitor/bob"): Stored({}),
        (STOCK, "project"): Stored({"Lent": 41}),
    }


def one(*entries: Entry, overflow: Overflow | None = None, **raw: Any) -> bytes:
    """A document with these pending. ``raw`` replaces fields of the stored set."""
    found = stored(PendingSet(tuple(each.to_bson() for each in entries or (entry(),)), overflow))
    document = {"Audit": {"Version": 4}, PENDING: {**found, **raw}}
    return bson.encode({"Kind": "pending", "Document": document}, codec_options=CODEC)


def looked(
    *documents: bytes,
    scopes: Mapping[str, tuple[str, ...]] | None = None,
    at: Consumer = AT,
    later_s: float = 0.0,
    of: Mapping[tuple[str, str], Stored] | None = None,
) -> Overlaid:
    pending = Pending(documents, NOW + timedelta(seconds=later_s))
    return overlay(pending, at, rows() if of is None else of, ALL if scopes is None else scopes)


def refused(*families: str, why: OverlayRefusal) -> dict[str, OverlayRefusal]:
    return dict.fromkeys(families, why)


# --- addition --------------------------------------------------------------------------------------------------------


@pytest.mark.req("OVERLAY-17")
def test_every_pending_entry_moves_the_scopes_that_it_says_and_no_other() -> None:
    found = looked(one(entry(lent("bob")), entry(lent("ann", shelf=1), number=2)), one(entry(lent("bob"), number=3)))
    assert found.refused == {}
    assert found.counters == {
        (SHELVES, "shelf/0"): {"Books": 5, "Lent": 3},
        (SHELVES, "shelf/1"): {"Books": 4, "Lent": 1},
        (LOANS, "project"): {"Lent": 4},
        (VISITS, "visitor/ann"): {"Lent": 2},
        (VISITS, "visitor/bob"): {"Lent": 2},
    }


def test_entries_that_undo_each_other_add_up_to_nothing_whatever_their_order() -> None:
    there, back = entry(lent("bob")), entry(lent(None, was="bob"), number=2)
    for order in ((there, back), (back, there)):
        assert looked(one(*order)).counters[VISITS, "visitor/bob"] == {"Lent": 0}


@pytest.mark.req("OVERLAY-18")
def test_a_counter_that_reaches_zero_stays_among_the_others() -> None:
    found = looked(one(entry(lent(None, was="ann"))))
    assert found.counters[SHELVES, "shelf/0"] == {"Books": 5, "Lent": 0}
    assert found.counters[VISITS, "visitor/ann"] == {"Lent": 0}


def test_what_is_stored_is_left_as_it_was_read() -> None:
    of = rows()
    looked(one(entry(lent("ann"))), of=of)
    assert of == rows()


@pytest.mark.req("OVERLAY-33")
def test_nothing_is_derived_for_a_family_or_a_scope_that_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[frozenset[str]] = []

    def noted(entry: Entry, at: Consumer, families: frozenset[str]) -> Derived:
        asked.append(families)
        return derive(entry, at, families)

    monkeypatch.setattr("statlib.statistics.overlay.derive", noted)
    found = looked(one(entry(lent("ann"))), scopes={VISITS: ("visitor/bob",), STOCK: ("project",)})
    assert asked == [frozenset({VISITS})]
    assert found == Overlaid()


def test_nothing_pending_changes_and_refuses_nothing() -> None:
    assert looked() == Overlaid()


def test_a_visitor_who_is_not_declared_any_more_moves_no_scope() -> None:
    assert (VISITS, "visitor/eve") not in looked(one(entry(lent("eve")))).counters


# --- refusals of everything that folds -------------------------------------------------------------------------------


def _unknown_protocol() -> bytes:
    """Its other fields may mean anything, so nothing else is looked at."""
    return one(Entries=[{"ProtocolVersion": FOLD_PROTOCOL + 1, "Moves": "by pigeon"}])


WHOLE: dict[str, tuple[OverlayRefusal, Callable[[], list[bytes]]]] = {
    "overflow": (OverlayRefusal.OVERFLOW, lambda: [one(entry(lent()), overflow=Overflow(overflowed_at_utc=NOW))]),
    "a set that makes no sense": (OverlayRefusal.OVERFLOW, lambda: [one(entry(lent()), Entries="none")]),
    "unknown protocol": (OverlayRefusal.UNKNOWN_PROTOCOL, lambda: [_unknown_protocol()]),
    "unknown kind": (
        OverlayRefusal.UNKNOWN_KIND,
        lambda: [one(entry(lent().model_copy(update={"kind": "Burning"})))],
    ),
    "an entry without fields": (OverlayRefusal.UNDESERIALIZABLE, lambda: [one(Entries=[{}])]),
    "an entry that is none": (OverlayRefusal.UNDESERIALIZABLE, lambda: [one(Entries=[7])]),
    "a payload of another kind": (
        OverlayRefusal.UNDESERIALIZABLE,
        lambda: [one(entry(lent().model_copy(update={"payload": {"Before": {}}})))],
    ),
}


@pytest.mark.req("OVERLAY-10", "OVERLAY-12", "INV-03")
@pytest.mark.parametrize("name", WHOLE)
def test_what_cannot_be_understood_refuses_every_requested_family_that_folds(name: str) -> None:
    why, documents = WHOLE[name]
    sound = one(entry(lent("bob"), number=2))
    assert looked(sound, *documents()).refused == refused(*FOLDING, why=why)
    assert looked(sound, *documents(), scopes={LOANS: ("project",)}).refused == refused(LOANS, why=why)
    assert looked(sound, *documents(), scopes={STOCK: ("project",)}) == Overlaid()


@pytest.mark.req("OVERLAY-09")
@pytest.mark.parametrize(
    ("documents", "each", "ok"),
    [
        (OVERLAY_STUDIES_MAX, 1, True),
        (OVERLAY_STUDIES_MAX + 1, 1, False),
        (OVERLAY_ENTRIES_MAX // PENDING_ENTRIES_MAX, PENDING_ENTRIES_MAX, True),
        (OVERLAY_ENTRIES_MAX // PENDING_ENTRIES_MAX + 1, PENDING_ENTRIES_MAX, False),
    ],
)
def test_as_much_as_the_caps_say_is_overlaid_and_one_more_refused(documents: int, each: int, ok: bool) -> None:
    assert OVERLAY_ENTRIES_MAX % PENDING_ENTRIES_MAX == 0
    entries = [entry(lent("bob"), number=number) for number in range(each)]
    found = looked(*(one(*entries) for _ in range(documents)))
    if ok:
        assert found.counters[VISITS, "visitor/bob"] == {"Lent": documents * each}
    assert found.refused == ({} if ok else refused(*FOLDING, why=OverlayRefusal.TOO_MANY))


def test_one_entry_more_than_the_cap_is_refused() -> None:
    full = [entry(lent("bob"), number=number) for number in range(PENDING_ENTRIES_MAX)]
    documents = [one(*full) for _ in range(OVERLAY_ENTRIES_MAX // PENDING_ENTRIES_MAX)]
    assert looked(*documents).refused == {}
    assert looked(*documents, one(entry(lent()))).refused == refused(*FOLDING, why=OverlayRefusal.TOO_MANY)


@pytest.mark.req("OVERLAY-11")
@pytest.mark.parametrize(("beyond_s", "ok"), [(0.0, True), (0.001, False)])
def test_what_waits_longer_than_the_bound_is_refused_by_its_oldest(beyond_s: float, ok: bool) -> None:
    young = entry(lent("bob"), number=2, created_at_utc=NOW + timedelta(seconds=60))
    found = looked(one(entry(lent("bob")), young), one(young), later_s=OVERLAY_AGE_MAX_S + beyond_s)
    assert found.refused == ({} if ok else refused(*FOLDING, why=OverlayRefusal.TOO_OLD))


# --- refusals of some families ---------------------------------------------------------------------------------------


@pytest.mark.req("OVERLAY-14", "INV-03")
@pytest.mark.parametrize(
    ("context", "of_group"),
    [
        (replace(CONTEXT, shelves=(0, 1, 2)), {SHELVES}),
        (replace(CONTEXT, visitors=("ann",)), {LOANS, VISITS}),
        (replace(CONTEXT, entitled=11), {LOANS, VISITS}),
    ],
    ids=["building", "visitors", "entitled"],
)
def test_a_changed_context_refuses_its_whole_group_and_nothing_else(context: Any, of_group: set[str]) -> None:
    at = Consumer.of(FOLDING_LIBRARY, context, TRACKING_EPOCH)
    visit = lent("bob").model_copy(update={"kind": "Visit"})  # an entry that says it touches visits alone
    for document in (one(entry(lent("bob"))), one(entry(visit))):
        found = looked(document, at=at)
        assert found.refused == refused(*of_group, why=OverlayRefusal.CONTEXT_CHANGED)
        assert not {family for family, _ in found.counters} & of_group
        others = {family: scopes for family, scopes in ALL.items() if family not in of_group}
        assert looked(document, at=at, scopes=others).refused == {}


def test_a_group_that_the_entry_has_no_digest_of_is_refused() -> None:
    found = looked(one(entry(lent("bob"), context={"Building": repr(CONTEXT.shelves)})))
    assert found.refused == refused(LOANS, VISITS, why=OverlayRefusal.CONTEXT_CHANGED)
    assert found.counters == {(SHELVES, "shelf/0"): {"Books": 5, "Lent": 2}}


@pytest.mark.parametrize("changed", [{"catalogue_version": 2}, {"source_version": 2}], ids=str)
def test_entries_for_other_counters_are_refused_by_everything_that_folds(changed: dict[str, Any]) -> None:
    found = looked(one(entry(lent("bob"), **changed)))
    assert found == Overlaid(refused=refused(*FOLDING, why=OverlayRefusal.CONTEXT_CHANGED))


@pytest.mark.req("OVERLAY-16")
@pytest.mark.parametrize("epoch", [TRACKING_EPOCH - 1, TRACKING_EPOCH + 1])
def test_another_tracking_epoch_is_refused_also_where_the_mode_is_the_same_again(epoch: int) -> None:
    found = looked(one(entry(lent("bob"), assumed_tracking_epoch=epoch)))
    assert found == Overlaid(refused=refused(*FOLDING, why=OverlayRefusal.TRACKING_MODE_CHANGED))


@pytest.mark.req("OVERLAY-15")
@pytest.mark.parametrize(
    ("intent", "scopes", "ok"),
    [
        (Intent(family=VISITS), {VISITS: ("visitor/bob",)}, False),
        (Intent(family=VISITS, scope="visitor/ann"), {VISITS: ("visitor/ann",)}, False),
        (Intent(family=VISITS, scope="visitor/ann"), {VISITS: ("visitor/bob",)}, True),
        (Intent(family=VISITS), {LOANS: ("project",)}, True),
        (Intent(family=VISITS), {VISITS: ()}, True),
    ],
    ids=["family", "scope", "another scope", "another family", "a family without scopes"],
)
def test_an_intent_refuses_the_scopes_that_it_covers(
    intent: Intent, scopes: dict[str, tuple[str, ...]], ok: bool
) -> None:
    found = looked(one(entry(lent("ann"), stales=(intent,))), scopes=scopes)
    assert found.refused == ({} if ok else refused(VISITS, why=OverlayRefusal.INTENT))


@pytest.mark.req("OVERLAY-19")
def test_a_sum_below_zero_refuses_its_family_and_is_a_violation() -> None:
    found = looked(one(entry(lent(None, was="ann"))), of=rows(ann=0))
    assert found.refused == refused(VISITS, why=OverlayRefusal.NEGATIVE_COUNTER)
    assert {family for family, _ in found.counters} == {SHELVES, LOANS}
    assert OverlayRefusal.NEGATIVE_COUNTER in INVARIANT_VIOLATIONS


@pytest.mark.req("OVERLAY-19")
@pytest.mark.parametrize(
    ("bound", "most", "ok"),
    [
        ("COUNTER_KEYS_MAX", 2, True),
        ("COUNTER_KEYS_MAX", 1, False),
        ("COUNTER_BYTES_MAX", 1_000, True),
        ("COUNTER_BYTES_MAX", 10, False),
    ],
)
def test_more_counters_than_a_row_may_have_refuse_the_family(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int, ok: bool
) -> None:
    monkeypatch.setattr(overlay_module, bound, most)
    of: dict[tuple[str, str], Counters] = {(SHELVES, "shelf/1"): {"Books": 4}}
    found = looked(
        one(entry(lent("ann", shelf=1))), scopes={SHELVES: ("shelf/1",)}, of={k: Stored(v) for k, v in of.items()}
    )
    assert found.refused == ({} if ok else refused(SHELVES, why=OverlayRefusal.CAPACITY))
    assert OverlayRefusal.CAPACITY in INVARIANT_VIOLATIONS


def test_the_first_refusal_of_a_family_is_the_one_that_is_named() -> None:
    both = entry(lent(None, was="ann"), stales=(Intent(family=VISITS),))
    assert looked(one(both), of=rows(ann=0)).refused == refused(VISITS, why=OverlayRefusal.INTENT)


def test_every_refusal_is_met_here() -> None:
    met = {why for why, _ in WHOLE.values()} | INVARIANT_VIOLATIONS
    others = {"TOO_MANY", "TOO_OLD", "CONTEXT_CHANGED", "TRACKING_MODE_CHANGED", "INTENT"}
    assert {why.name for why in met} | others == {why.name for why in OverlayRefusal}


# --- fingerprint -----------------------------------------------------------------------------------------------------


@pytest.mark.req("OVERLAY-25", "OVERLAY-28")
def test_the_fingerprint_names_what_is_pending_whatever_the_order() -> None:
    first, second = entry(lent("ann")), entry(lent("bob"), number=2)
    together = Pending((one(first, second),), NOW).fingerprint
    assert (
        together
        == Pending(
            (
                one(second),
                one(first),
            ),
            NOW,
        ).fingerprint
    )
    assert (together.entries, together.overflow) == (2, False)
    others = [
        Pending((one(first),), NOW),
        Pending((one(first, entry(lent("bob"), number=3)),), NOW),
        Pending((one(first, second.model_copy(update={"operation_namespace": "other"})),), NOW),
        Pending((one(first, second, overflow=Overflow(overflowed_at_utc=NOW)),), NOW),
        Pending((), NOW),
    ]
    assert len({together, *(other.fingerprint for other in others)}) == 1 + len(others)
