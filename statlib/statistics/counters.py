"""Counter maps. An absent key is zero.

Stored as ``[{k, v}]`` sorted by ``k``, because a dot inside a key must not nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Counters = Mapping[str, int]

_PAIR_BYTES = 40  # of {k, v} in an array: its index, both names, the types and lengths, and eight bytes of a count
_CHARACTER_BYTES_MAX = 4  # in UTF-8


def to_stored(counters: Counters) -> list[dict[str, Any]]:
    return [{"k": key, "v": counters[key]} for key in sorted(counters)]


def from_stored(stored: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {entry["k"]: entry["v"] for entry in stored}


def fit(counters: Counters, bytes_max: int) -> bool:
    """Whether they take ``bytes_max`` at most as they are stored."""
    room = bytes_max - len(counters) * _PAIR_BYTES
    if sum(map(len, counters)) * _CHARACTER_BYTES_MAX <= room:
        return True  # which holds for nearly every row, and is asked of every move
    return sum(len(key.encode()) for key in counters) <= room


def without_zeros(counters: Counters) -> dict[str, int]:
    return {key: value for key, value in counters.items() if value}


def plus(counters: Counters, moves: Counters) -> dict[str, int]:
    """The sum; keys that reach zero stay, since a row's key set only grows between rebuilds."""
    total = dict(counters)
    for key, change in moves.items():
        total[key] = total.get(key, 0) + change
    return total


def minus(after: Counters, before: Counters) -> dict[str, int]:
    """What must be added to ``before`` to make ``after``; keys that do not change are left out."""
    changes = {key: after.get(key, 0) - before.get(key, 0) for key in {*after, *before}}
    return without_zeros(changes)


def differences(stored: Counters, authoritative: Counters) -> dict[str, tuple[int, int]]:
    """``key: (stored, authoritative)`` where they disagree."""
    keys = {*stored, *authoritative}
    return {
        key: (stored.get(key, 0), authoritative.get(key, 0))
        for key in sorted(keys)
        if stored.get(key, 0) != authoritative.get(key, 0)
    }
