"""Envelopes: the wire keeps them whole, and a digest knows what was submitted and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.statistics.envelopes import Envelope, Opening

AT = datetime(2024, 2, 29, 23, 59, 59, 123000, tzinfo=UTC)

envelopes = st.builds(
    Envelope,
    namespace=st.just("stats.source.screening"),
    stream=st.text(min_size=1, max_size=20),
    project=st.uuids(),
    aggregate=st.uuids(),
    actor=st.uuids(),
    stage=st.none() | st.uuids(),
    expected=st.integers(0, 2**31),
    opening=st.builds(Opening, st.integers(0, 99), st.none() | st.integers(0, 99)),
    created_at=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7))])),
    part=st.none() | st.uuids(),
    siblings=st.lists(st.text(min_size=1, max_size=20), max_size=2).map(tuple),
)


def an_envelope(**changed: Any) -> Envelope:
    given_: dict[str, Any] = {
        "namespace": "stats.source.screening",
        "stream": "screening:s:a",
        "project": UUID(int=1),
        "aggregate": UUID(int=2),
        "actor": UUID(int=3),
        "stage": None,
        "expected": 7,
        "opening": Opening(1, 2),
        "created_at": AT,
    }
    return Envelope(**given_ | changed)


@given(envelopes)
def test_an_envelope_survives_the_wire(envelope: Envelope) -> None:
    sent = json.loads(json.dumps(envelope.to_wire()))
    received = Envelope.from_wire(sent)
    assert received == envelope
    assert received.operation_id == envelope.operation_id
    assert received.digest("Include") == envelope.digest("Include")


def test_the_operation_is_the_stream_at_the_expected_revision() -> None:
    assert an_envelope().operation_id == "screening:s:a:7"
    assert an_envelope(expected=8).operation_id != an_envelope().operation_id


@pytest.mark.parametrize(
    "changed",
    [
        {"created_at": AT + timedelta(days=1)},
        {"expected": 8},
        {"opening": Opening(3, None)},
        {"namespace": "other"},
        {"stream": "screening:other"},
        {"part": UUID(int=4)},
        {"siblings": ("session-complete:s",)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_times_revisions_and_openings_are_not_in_the_digest(changed: dict[str, Any]) -> None:
    assert an_envelope(**changed).digest("Include") == an_envelope().digest("Include")


@pytest.mark.parametrize("part", ["project", "aggregate", "actor", "stage"])
def test_everything_that_identifies_the_submission_is_in_the_digest(part: str) -> None:
    assert an_envelope(**{part: uuid4()}).digest("Include") != an_envelope().digest("Include")


def test_the_intent_is_in_the_digest() -> None:
    assert an_envelope().digest("Include") != an_envelope().digest("Exclude")


def test_a_uuid_has_one_digest_in_whatever_case_it_was_written() -> None:
    text = "6D0AB0E0-6F0B-5A59-9D0C-5A1D3C1F7A44"
    upper, lower = an_envelope(actor=UUID(text)), an_envelope(actor=UUID(text.lower()))
    assert upper.digest("Include") == lower.digest("Include")
    wire = upper.to_wire()
    assert wire["actor"] == text.lower()
    assert Envelope.from_wire({**wire, "actor": text}).digest("Include") == lower.digest("Include")


def test_the_digest_of_the_first_release_never_changes() -> None:
    """Kept as a literal: a stored receipt is compared with it for as long as receipts are kept."""
    assert an_envelope().digest("Include") == "df05b9ea6b2eae3ff8b3b369293dd9a1d1c51d5255ccad1d745491d526be9c8e"


def test_a_redelivery_brings_nothing_of_what_opening_read() -> None:
    loaded: Any = object()
    first = replace(an_envelope(), loaded=loaded)
    assert first.as_redelivered().loaded is None
    assert first.as_redelivered() == first
    assert "loaded" not in first.to_wire()
