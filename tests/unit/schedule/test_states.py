"""The table of a slot's states: every edge in it is taken, and no other."""

from __future__ import annotations

from itertools import product

import pytest

from statlib.kernel.refusals import Fault
from statlib.schedule.states import BEGINNINGS, HELD, OPEN, TRANSITIONS, SlotState, require_edge

EDGES = {
    ("Due", "Claimed"), ("Due", "Missed"), ("Claimed", "Running"), ("Claimed", "Due"), ("Claimed", "Failed"),
    ("Running", "Succeeded"), ("Running", "Failed"), ("Running", "Interrupted"), ("Interrupted", "Due"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), list(product(SlotState, SlotState)))
def test_a_slot_moves_along_the_edges_of_the_table_and_no_others(before: SlotState, after: SlotState) -> None:
    if (before.value, after.value) in EDGES:
        require_edge(before, after)
        return
    with pytest.raises(Fault, match=f"does not become {after} from {before}"):
        require_edge(before, after)


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(SlotState)
    assert set().union(*TRANSITIONS.values()) | BEGINNINGS == set(SlotState)
    assert HELD < OPEN


def test_what_has_succeeded_or_failed_or_never_ran_stays_so() -> None:
    final = {state for state, after in TRANSITIONS.items() if not after}
    assert final == {SlotState.SUCCEEDED, SlotState.FAILED, SlotState.SKIPPED, SlotState.MISSED}
