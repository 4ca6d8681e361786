"""Orders in which commands of saves, claims, folds, rebuilds, reads and a disabling can interleave: a bounded share.

``make explore`` plays all of them up to three pre-emptions, and a sample of every triple.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

import pytest

from statlib.kernel.settings import Settings
from statlib.mongo.connection import connected
from statlib.review.documents import STUDIES
from statlib.statistics.fold import transaction
from statlib.statistics.fold.batch import Taken
from statlib.statistics.pending import FOLD_SEQUENCE, PENDING
from statlib.statistics.unit import Unit
from tests.exploring import Played, at_random, orders
from tests.fold_actors import ACTORS, World, world

ORDERS_OF_A_PAIR = 4
FIRST_SEED = 20_000


@pytest.fixture(scope="module")
def played_in(_one_database: Settings) -> Iterator[World]:
    with connected(_one_database) as mongo:  # what is there is compared before each order
        for name in mongo.database.list_collection_names():
            mongo.collection(name).delete_many({})
    with world(_one_database) as made:
        yield made


@pytest.mark.req("INV-01", "INV-02")
def test_after_any_order_every_read_is_exact_and_no_operation_is_lost_or_done_twice(played_in: World) -> None:
    """Of each pair the orders with the fewest pre-emptions, and one order of each triple by chance."""
    preempted: Counter[int] = Counter()

    def judge(names: tuple[str, ...], played: Played) -> None:
        preempted[played.preemptions] += 1
        assert played_in.violations(played) == [], f"{' × '.join(names)}\n{played}"

    for pair in itertools.combinations(ACTORS, 2):
        for _, played in itertools.islice(orders(partial(played_in.play, pair), 1), ORDERS_OF_A_PAIR):
            judge(pair, played)
    for seed, triple in enumerate(itertools.combinations(ACTORS, 3), FIRST_SEED):
        judge(triple, played_in.play(triple, at_random(seed)))
    assert played_in.met.served > played_in.met.fallen_back > 0
    assert max(preempted) > 2


@pytest.mark.req("INV-06")
def test_the_orders_show_a_fold_that_does_not_move_the_version(
    played_in: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opened the study before it would write back what was folded."""

    def remove(_attempt: object, unit: Unit, taken: Iterable[Taken]) -> None:
        ids = [one.aggregate for one in taken]
        update = {"$unset": {PENDING: ""}, "$inc": {FOLD_SEQUENCE: 1}}
        unit.mongo.collection(STUDIES).update_many({"_id": {"$in": ids}}, update, session=unit.session)

    monkeypatch.setattr(transaction._Attempt, "_remove", remove)
    found = (played_in.violations(played) for _, played in orders(partial(played_in.play, ("save", "fold")), 1))
    assert any("in two places" in wrong for wrong in itertools.chain.from_iterable(found))
