"""The one table of edges: what is in it is allowed, and everything else is refuted."""

from __future__ import annotations

from itertools import product

import pytest

from statlib.kernel.refusals import Fault
from statlib.statistics.documents import State
from statlib.statistics.lifecycle import EDGES, allowed, require

REFUTED = sorted(set(product(State, State)) - set(EDGES))


@pytest.mark.parametrize(("before", "after"), sorted(EDGES))
def test_an_edge_of_the_table_is_taken(before: State, after: State) -> None:
    assert allowed(before, after)
    assert require(before, after) is after


@pytest.mark.parametrize(("before", "after"), REFUTED)
def test_any_other_edge_is_a_fault(before: State, after: State) -> None:
    assert not allowed(before, after)
    with pytest.raises(Fault, match=f"from {before} to {after}"):
        require(before, after)


def test_only_a_rebuild_makes_anything_fresh() -> None:
    assert {before for before, after in EDGES if after is State.FRESH} == {State.REBUILDING, State.FRESH}


def test_nothing_returns_to_missing() -> None:
    assert not [edge for edge in EDGES if edge[1] is State.MISSING]


@pytest.mark.parametrize("edge", sorted(EDGES))
def test_every_edge_is_explained(edge: tuple[State, State]) -> None:
    assert EDGES[edge].strip()
