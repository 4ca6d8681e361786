"""Fences cycling under savers, a rebuild loop and a watching reader: typed for each of them, and exact throughout."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import count

from statlib.kernel.refusals import Reason, Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.reasons import MongoReason
from statlib.statistics.backfill import backfill_together
from statlib.statistics.fences import finish, underway
from statlib.statistics.parity import compare
from statlib.statistics.reasons import FenceReason, OperateReason, SaveReason, ServeReason
from tests.domain import FAMILIES, LIBRARY, Library, served_library
from tests.editing import assert_right, begin, edit_library, label, lend_all

CYCLES = 12
SAVERS = 3
BOOKS_OF_OPERATIONS = 12

ALLOWED: dict[str, set[Reason]] = {
    "save": {SaveReason.AttemptsExhausted, SaveReason.VersionStale},
    "rebuild": {
        ServeReason.FenceActive,
        ServeReason.SourceVisibilityFenced,
        OperateReason.PublicationRaceLost,
        OperateReason.RebuildStarved,
        OperateReason.NotServedAfterwards,
        MongoReason.Contended,
    },
    "operate": {MongoReason.Contended, FenceReason.FenceHeld},
    "watch": {ServeReason.SourceVisibilityFenced, MongoReason.Contended},
}


def test_fences_cycling_among_savers_rebuilds_and_readers_are_typed_and_exact(settings: Settings) -> None:
    with served_library(settings, shelves=4, books=60) as served:
        stop, failures, seen = threading.Event(), list[BaseException](), Counter[str]()

        def again_and_again(what: str, act: Callable[[int], None]) -> threading.Thread:
            def run() -> None:
                for turn in count():
                    if stop.is_set():
                        return
                    try:
                        act(turn)
                        seen[what] += 1
                    except Refusal as refusal:
                        seen[f"{what}: {refusal.reason.name}"] += 1
                        if refusal.reason not in ALLOWED[what]:
                            failures.append(refusal)
                    except BaseException as error:
                        failures.append(error)
                    if failures:
                        stop.set()

            return threading.Thread(target=run)

        def save(number: int) -> Callable[[int], None]:
            mine = served.books[BOOKS_OF_OPERATIONS + number :: SAVERS]
            return lambda turn: _ignore(served.lend(mine[turn % len(mine)], ("ann", "bob", None)[turn % 3]))

        def operate(turn: int) -> None:
            if turn >= CYCLES:
                stop.set()
            elif turn % 3 == 0:
                label(served, 10 + turn)
            elif turn % 3 == 1:
                edit_library(served, Visitors=["ann", "bob", *(["cy"] if turn % 2 else [])])
            else:
                with underway(begin(served)) as held:
                    for first in range(0, BOOKS_OF_OPERATIONS, 4):
                        lend_all(held, served, first, first + 4, "ann" if turn % 2 else "bob")
                    finish(held)

        def watch(turn: int) -> None:
            for compared in compare(served.host, LIBRARY, served.project, FAMILIES):
                assert not compared.differences, compared

        threads = [
            *(again_and_again("save", save(number)) for number in range(SAVERS)),
            again_and_again("operate", operate),
            again_and_again("watch", watch),
            again_and_again(
                "rebuild",
                lambda turn: _ignore(backfill_together(served.host, LIBRARY, served.project, FAMILIES)),
            ),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=240)
        assert not any(thread.is_alive() for thread in threads)
        assert failures == []
        assert seen["save"] > 0
        assert seen["watch"] > 0
        settle(served)


def settle(of: Library) -> None:
    """Quiet again: nothing is counted any more, and everything is served and right."""
    assert {of.guard(family)["ActiveFenceCount"] for family in FAMILIES} <= {0, 1}
    with underway(begin(of)) as held:  # takes over what a contention may have left
        finish(held)
    label(of, 10)
    assert {of.guard(family)["ActiveFenceCount"] for family in FAMILIES} == {0}
    of.backfill_all()
    assert_right(of, served=True)


def _ignore(result: object) -> None:
    del result
