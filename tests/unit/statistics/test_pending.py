"""The pending set of one document: what fits into it, what is dropped on record, and what cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.kernel.digests import digest
from statlib.statistics import pending
from statlib.statistics.bounds import OVERFLOW_RECORDED_MAX, PENDING_ENTRIES_MAX, PENDING_SET_BYTES_MAX
from statlib.statistics.pending import (
    FOLD_PROTOCOL,
    PENDING,
    Entry,
    PendingSet,
    Poison,
    Underivable,
    appended,
    encoded_size,
    parse_entry,
    pending_of,
)

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
VERSION = 40


def entry(number: int, *, filling: int = 0, minutes: int = 0) -> Entry:
    return Entry(
        protocol_version=FOLD_PROTOCOL,
        operation_namespace="n",
        operation_id=f"s:{number}",
        expected_source_revision=number,
        source_revision_before=number,
        source_revision_after=number + 1,
        submission_digest=f"d{number}",
        created_at_utc=NOW + timedelta(minutes=minutes),
        context={},
        catalogue_version=1,
        assumed_tracking_epoch=0,
        trigger_reason="x" * filling,
    )


def source(stored: Any) -> dict[str, Any]:
    return {"Audit": {"Version": VERSION, "LastModified": NOW}, PENDING: stored}


def again(stored: dict[str, Any]) -> PendingSet:
    options: Any = bson.codec_options.CodecOptions(tz_aware=True)
    return pending_of(source(bson.decode(bson.encode(stored), codec_options=options)))


def filled(number: int, **of: Any) -> PendingSet:
    found = PendingSet()
    for count in range(number):
        found = again(appended(found, [entry(count, **of)], NOW))
    return found


def drops(of: PendingSet) -> list[str]:
    return [dropped.operation_id for dropped in of.overflow.dropped] if of.overflow else []


@pytest.mark.req("ENTRY-47", "ENTRY-48", "ENTRY-04")
def test_a_set_takes_as_many_entries_as_it_may_and_drops_the_next_by_name() -> None:
    full = filled(PENDING_ENTRIES_MAX)
    assert (len(full.entries), full.overflow) == (PENDING_ENTRIES_MAX, None)
    over = again(appended(full, [entry(99)], NOW + timedelta(hours=1)))
    assert over.entries == full.entries
    assert drops(over) == ["s:99"]
    assert over.overflow is not None
    assert over.overflow.dropped[0].submission_digest == "d99"
    assert over.overflow.overflowed_at_utc == NOW + timedelta(hours=1)
    assert (over.overflow.unrecorded_count, over.overflow.unrecorded_from_revision) == (0, None)


@pytest.mark.req("ENTRY-47", "ENTRY-51")
def test_a_set_takes_as_many_bytes_as_it_may_the_new_entry_included() -> None:
    almost = filled(11, filling=4_000)
    room = PENDING_SET_BYTES_MAX - encoded_size(appended(almost, [entry(11)], NOW))
    fitting = appended(almost, [entry(11, filling=room)], NOW)
    assert encoded_size(fitting) == PENDING_SET_BYTES_MAX
    assert again(fitting).overflow is None
    assert drops(again(appended(almost, [entry(11, filling=room + 1)], NOW))) == ["s:11"]


@pytest.mark.req("ENTRY-48")
def test_what_follows_a_drop_is_dropped_too_though_it_would_fit() -> None:
    over = again(appended(filled(11, filling=4_000), [entry(11, filling=8_000)], NOW))
    assert drops(again(appended(over, [entry(12)], NOW))) == ["s:11", "s:12"]


@pytest.mark.req("ENTRY-52")
def test_entries_of_one_write_are_all_appended_or_all_dropped() -> None:
    one_left = filled(PENDING_ENTRIES_MAX - 1)
    both = again(appended(one_left, [entry(50), entry(51)], NOW))
    assert both.entries == one_left.entries
    assert drops(both) == ["s:50", "s:51"]


@pytest.mark.req("ENTRY-05", "ENTRY-49", "SAVE-68", "ENTRY-53")
def test_beyond_the_drops_that_are_kept_by_name_revisions_are_all_that_is_known() -> None:
    found = filled(PENDING_ENTRIES_MAX + OVERFLOW_RECORDED_MAX)
    assert len(drops(found)) == OVERFLOW_RECORDED_MAX
    assert found.overflow is not None
    assert not found.overflow.hides(0)
    for number in (200, 205):
        found = again(appended(found, [entry(number)], NOW))
    assert len(drops(found)) == OVERFLOW_RECORDED_MAX
    overflow = found.overflow
    assert overflow is not None
    bounds = (overflow.unrecorded_count, overflow.unrecorded_from_revision, overflow.unrecorded_to_revision)
    assert bounds == (2, 200, 206)
    assert [overflow.hides(revision) for revision in (0, 206, 207)] == [True, True, False]


@pytest.mark.req("ENTRY-03")
@given(st.lists(st.integers(-60, 60), min_size=1, max_size=PENDING_ENTRIES_MAX + 3))
def test_the_oldest_time_of_a_set_is_the_oldest_in_it(minutes: list[int]) -> None:
    found, times = PendingSet(), []
    for number, later in enumerate(minutes):
        made = entry(number, minutes=later)
        found = again(appended(found, [made], made.created_at_utc))
        if number <= PENDING_ENTRIES_MAX:  # the first drop is the one that is timed
            times.append(made.created_at_utc)
        assert found.oldest == min(times)


NONSENSE: list[Any] = [
    "text", 3, [], {}, {"Entries": []}, {"OldestAtUtc": NOW, "Entries": "text"}, {"OldestAtUtc": "x", "Entries": []},
    {"OldestAtUtc": NOW, "Entries": [], "Overflow": "text"}, {"OldestAtUtc": NOW, "Entries": [], "Overflow": {}},
]  # fmt: skip


@pytest.mark.req("CLAIM-32")
@pytest.mark.parametrize("stored", NONSENSE, ids=repr)
def test_a_set_that_makes_no_sense_counts_as_drops_that_nobody_recorded(stored: Any) -> None:
    found = pending_of(source(stored))
    assert found.entries == ()
    assert found.overflow is not None
    assert (found.overflow.unrecorded_from_revision, found.overflow.unrecorded_to_revision) == (0, VERSION)
    grown = again(appended(found, [entry(VERSION)], NOW))
    assert drops(grown) == [f"s:{VERSION}"]
    assert grown.overflow is not None
    assert grown.overflow.hides(VERSION)


@pytest.mark.req("ENTRY-02")
def test_a_document_without_a_set_has_nothing_pending() -> None:
    assert not pending_of({"Audit": {"Version": 1}})


@pytest.mark.req("ENTRY-12", "ENTRY-29", "ENTRY-54")
def test_entries_are_read_by_their_own_protocol_and_tolerate_fields_that_they_need_not_know() -> None:
    raw = entry(1).to_bson()
    assert parse_entry({**raw, "Unheard": 1}).key == ("n", "s:1")
    for changed, reason in (
        ({**raw, "ProtocolVersion": FOLD_PROTOCOL + 1, "OperationId": None}, Poison.UNKNOWN_PROTOCOL),
        ({**raw, "OperationId": None}, Poison.UNDESERIALIZABLE),
        ("text", Poison.UNDESERIALIZABLE),
    ):
        with pytest.raises(Underivable) as underivable:
            parse_entry(changed)
        assert underivable.value.reason is reason


@pytest.mark.req("CLAIM-31")
def test_an_entry_without_a_submission_has_the_digest_of_its_id() -> None:
    assert parse_entry({**entry(1).to_bson(), "SubmissionDigest": ""}).submission_digest == digest("s:1")


def test_two_readings_of_the_same_operations_have_one_fingerprint() -> None:
    one, other = filled(2), filled(3)
    assert pending.fingerprint([one, other]) == pending.fingerprint([other, one])
    assert pending.fingerprint([one]) != pending.fingerprint([other])
