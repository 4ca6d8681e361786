"""Which pending sets fit into one batch, and which documents are asked for."""

from __future__ import annotations

from uuid import UUID

import pytest

from statlib.kernel.clock import Clock
from statlib.statistics.bounds import FOLD_BATCH_ENTRIES_MAX, FOLD_MIN_AGE_S
from statlib.statistics.fold.batch import Selection, Taken, due, take
from statlib.statistics.pending import OLDEST, PendingSet
from tests.pending_books import NOW

PROJECT = UUID(int=9)


def sets(*sizes: int) -> list[Taken]:
    return [Taken(UUID(int=number), 1, PendingSet((None,) * size, None, NOW)) for number, size in enumerate(sizes)]


@pytest.mark.req("WORKER-16")
@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        ((), 0),
        ((1, 1, 1), 3),
        ((FOLD_BATCH_ENTRIES_MAX,), 1),
        ((FOLD_BATCH_ENTRIES_MAX, 1), 1),
        ((FOLD_BATCH_ENTRIES_MAX - 1, 1), 2),
        ((FOLD_BATCH_ENTRIES_MAX - 1, 2, 1), 1),  # whole sets in their order: none is passed over for a smaller one
        ((FOLD_BATCH_ENTRIES_MAX, 0), 2),  # a set of nothing but an overflow
        ((FOLD_BATCH_ENTRIES_MAX + 1, 1), 1),  # a set is not divided
        ((1,) * 40, FOLD_BATCH_ENTRIES_MAX),
    ],
)
def test_whole_sets_are_taken_up_to_the_entries_of_one_batch(sizes: tuple[int, ...], taken: int) -> None:
    assert take(sets(*sizes)) == sets(*sizes)[:taken]


def test_everything_pending_is_asked_for_unless_more_is_said() -> None:
    assert due(Selection(PROJECT), Clock()) == {"ProjectId": PROJECT, OLDEST: {"$exists": True}}


def test_a_drain_asks_for_what_was_pending_when_it_began_however_young() -> None:
    wanted = due(Selection(PROJECT, until=NOW, skipped=frozenset({UUID(int=1)})), Clock())
    assert wanted == {
        "ProjectId": PROJECT,
        OLDEST: {"$exists": True, "$lte": NOW},
        "_id": {"$nin": [UUID(int=1)]},
    }


def test_the_age_is_held_against_the_servers_time() -> None:
    assert "$$NOW" in str(due(Selection(PROJECT, min_age_s=FOLD_MIN_AGE_S), Clock())["$expr"])
