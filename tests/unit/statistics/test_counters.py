"""Counter maps: adding and subtracting undo one another, and storing keeps every key as it is."""

from __future__ import annotations

import bson
from hypothesis import given
from hypothesis import strategies as st

from statlib.statistics.counters import differences, from_stored, minus, plus, to_stored, without_zeros

keys = st.sampled_from(["a", "a.b", "$a", "Profile/2:1", "Class/Included", "", "ä.b.c", "a b"]) | st.text(max_size=8)
counters = st.dictionaries(keys, st.integers(-(2**40), 2**40), max_size=8)


@given(counters, counters)
def test_adding_a_difference_makes_the_later_one(before: dict[str, int], after: dict[str, int]) -> None:
    assert without_zeros(plus(before, minus(after, before))) == without_zeros(after)


@given(counters, counters)
def test_the_difference_of_a_sum_is_what_was_added(before: dict[str, int], moves: dict[str, int]) -> None:
    assert minus(plus(before, moves), before) == without_zeros(moves)


@given(counters)
def test_nothing_is_different_from_itself(some: dict[str, int]) -> None:
    assert minus(some, some) == {}
    assert differences(some, some) == {}


@given(counters, counters)
def test_differences_name_exactly_the_keys_that_a_difference_would_move(
    stored: dict[str, int], counted: dict[str, int]
) -> None:
    found = differences(stored, counted)
    assert {key: after - before for key, (before, after) in found.items()} == minus(counted, stored)


@given(counters)
def test_dotted_and_odd_keys_survive_storage(some: dict[str, int]) -> None:
    stored = bson.decode(bson.encode({"Counters": to_stored(some)}))["Counters"]
    assert from_stored(stored) == some
    assert [entry["k"] for entry in stored] == sorted(some)


@given(counters, counters)
def test_adding_leaves_both_sides_alone(one: dict[str, int], other: dict[str, int]) -> None:
    kept = dict(one), dict(other)
    plus(one, other)
    assert (one, other) == kept
