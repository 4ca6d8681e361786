"""The clock yields expressions for the server's time, shifted by a file that every process re-reads."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from statlib.kernel.clock import Clock
from statlib.kernel.refusals import Fault


def test_without_an_offset_the_servers_time_is_asked_as_it_is(tmp_path: Path) -> None:
    for clock in (Clock(), Clock(tmp_path / "absent")):
        assert clock.offset_ms == 0
        assert clock.mongo_now() == "$$NOW"
        assert clock.mongo_in(-1.5) == {"$add": ["$$NOW", -1500]}


def test_an_advance_reaches_every_clock_on_the_same_file_and_every_kind_of_reading(tmp_path: Path) -> None:
    one, other = Clock(tmp_path / "offset"), Clock(tmp_path / "offset")
    before, label = other.monotonic(), other.local_utc()
    one.advance(3600)
    one.advance(0.5)
    assert other.offset_ms == 3_600_500
    assert other.mongo_now() == {"$add": ["$$NOW", 3_600_500]}
    assert other.mongo_in(1) == {"$add": ["$$NOW", 3_601_500]}
    assert other.monotonic() - before >= 3600.5
    assert (other.local_utc() - label).total_seconds() >= 3600.5
    assert Clock().monotonic() - time.monotonic() < 1


def test_a_clock_without_a_file_is_not_advanced() -> None:
    with pytest.raises(Fault, match="no offset file"):
        Clock().advance(1)


def test_a_file_that_holds_no_number_is_a_fault_and_never_taken_for_zero(tmp_path: Path) -> None:
    path = tmp_path / "offset"
    path.write_text("soon")
    with pytest.raises(Fault, match="whole number") as raised:
        _ = Clock(path).offset_ms
    assert raised.value.remedy
    path.write_text("")
    assert Clock(path).offset_ms == 0
