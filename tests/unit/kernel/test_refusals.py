"""Refusals and faults carry what to do about them wherever they surface."""

from __future__ import annotations

import traceback

import pytest

from statlib.kernel.refusals import Fault, Refusal, SettingsReason, StatlibError


@pytest.mark.parametrize(
    ("error", "first", "remedy"),
    [
        (
            Refusal(SettingsReason.InputUnreadable, "a.toml"),
            "InputUnreadable: a.toml",
            SettingsReason.InputUnreadable.remedy,
        ),
        (Refusal(SettingsReason.InputUnreadable, "a.toml", remedy="Say b."), "InputUnreadable: a.toml", "Say b."),
        (Fault("it broke", remedy="Look at it."), "it broke", "Look at it."),
    ],
)
def test_a_traceback_ends_with_the_remedy(error: StatlibError, first: str, remedy: str) -> None:
    assert str(error) == first
    assert traceback.format_exception_only(error)[-1] == f"remedy: {remedy}\n"


def test_a_fault_without_a_remedy_has_no_empty_line_for_it() -> None:
    assert "remedy" not in "".join(traceback.format_exception_only(Fault("it broke")))
