"""A rebuild is exact or refused, whoever saves, freezes or dies meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.mongo.connection import Mongo
from statlib.statistics.bounds import PUBLICATION_SCOPES_MAX, REBUILD_LEASE_TTL_S
from statlib.statistics.parity import compare
from statlib.statistics.reader import ALL
from tests.children import Child, child
from tests.domain import FAMILIES, LIBRARY, LOANS, SHELVES, Library, library, served_library

OWNER = "tests.fault.rebuild_owner"

LEASE = ("find", "findAndModify")  # the project's scopes, then the lease
ADMISSION = ("update", "aggregate", "update", "commitTransaction")
COUNT = ("aggregate", "find", "aggregate")
PUBLICATION = (  # fence, state, guard, clocks, old row, new row, ledger, outbox
    *("update", "aggregate", "update", "update", "delete", "insert", "insert", "update"),
    "commitTransaction",
)
RELEASE = ("update",)
COMMANDS = (*LEASE, *ADMISSION, *COUNT, *PUBLICATION, *RELEASE)
ACQUIRING = len(LEASE)
HOLDING_FROM = len(LEASE) + 1  # the first command that is sent under the lease
RELEASING_FROM = len(COMMANDS)

RACES = {"PublicationRaceLost", "Contended", "LeaseLost", "LeaseHeld"}


@contextmanager
def short_transactions(mongo: Mongo) -> Iterator[None]:
    """The server ends a transaction whose client is frozen after two seconds, instead of the product's ten."""
    admin = mongo.client.admin
    before = admin.command("getParameter", transactionLifetimeLimitSeconds=1)["transactionLifetimeLimitSeconds"]
    admin.command("setParameter", transactionLifetimeLimitSeconds=2)
    try:
        yield
    finally:
        admin.command("setParameter", transactionLifetimeLimitSeconds=before)


@contextmanager
def owner_of(opened: Library, *families: str) -> Iterator[Child]:
    with (
        short_transactions(opened.mongo),
        child(OWNER, opened.mongo.settings, str(opened.project), *families) as owner,
    ):
        yield owner


def assert_right(opened: Library, *, served: bool | None = None) -> None:
    bundle = opened.read()
    assert bundle.values == {family: opened.truth(family) for family in FAMILIES}
    if served is not None:
        assert (bundle.reason is None) == served, bundle.reason


def test_a_rebuild_sends_the_commands_that_are_swept_below(settings: Settings) -> None:
    with served_library(settings) as served:
        with counting(served.mongo.client) as count:
            served.rebuild(LOANS, force=True)
        assert count.names == COMMANDS


@pytest.mark.parametrize("at", range(1, len(COMMANDS) + 1), ids=lambda at: f"{at}-{COMMANDS[at - 1]}")
def test_an_owner_frozen_past_its_lease_and_woken_publishes_nothing(settings: Settings, at: int) -> None:
    with served_library(settings) as served, owner_of(served, LOANS) as owner:
        owner.say(str(at))
        assert owner.hear() == f"at {at}"
        owner.freeze()
        served.mongo.clock.advance(REBUILD_LEASE_TTL_S)
        served.lend_surely(served.books[0])  # what the frozen owner may have counted is no longer true
        served.backfill(LOANS, force=True)
        served.lend_surely(served.books[1])
        before = served.statistics()
        owner.thaw()
        owner.say("go on")
        outcome = owner.hear()
        if HOLDING_FROM <= at < RELEASING_FROM:
            assert outcome in RACES
            assert served.statistics() == before
        elif at == ACQUIRING:  # its command was built before the clock was advanced, and so asks by the time of then
            assert outcome == "LeaseHeld"
        else:  # it had not yet begun, or had published in time
            assert outcome == "published"
        assert_right(served, served=True)
        assert served.backfill(LOANS).verified.exact


@pytest.mark.parametrize("at", range(1, len(COMMANDS) + 1), ids=lambda at: f"{at}-{COMMANDS[at - 1]}")
def test_an_owner_killed_at_any_command_leaves_a_state_that_reads_right_and_recovers(
    settings: Settings, at: int
) -> None:
    with library(settings) as stale:
        stale.backfill(SHELVES)
        with owner_of(stale, LOANS) as owner:
            owner.say(str(at))
            assert owner.hear() == f"at {at}"
            owner.kill()
            assert_right(stale)
            published = at == RELEASING_FROM
            assert (stale.rows(LOANS) != {}) == published, "all of the publication or nothing"
            stale.lend_surely(stale.books[0])
            assert_right(stale)
            if at >= HOLDING_FROM:
                with pytest.raises(Refusal, match="LeaseHeld"):
                    stale.rebuild(LOANS)
                stale.mongo.clock.advance(REBUILD_LEASE_TTL_S)
            assert stale.backfill(LOANS).verified.exact
            stale.backfill_all()
            assert_right(stale, served=True)
            assert stale.guard(LOANS)["Candidate"] is None


@pytest.mark.parametrize("into", [0, 4, len(PUBLICATION) - 1], ids=lambda into: f"{into}-{PUBLICATION[into]}")
def test_an_owner_killed_in_its_second_batch_leaves_the_first_served_and_the_rest_to_the_next(
    settings: Settings, into: int
) -> None:
    scopes = PUBLICATION_SCOPES_MAX + 1
    at = len(LEASE) + len(ADMISSION) + len(COUNT) + len(PUBLICATION) + into + 1
    with library(settings, shelves=scopes, books=scopes) as wide, owner_of(wide, SHELVES) as owner:
        owner.say(str(at))
        assert owner.hear() == f"at {at}"
        owner.kill()
        first = list(wide.rows())
        assert len(first) == PUBLICATION_SCOPES_MAX
        wide.lend_surely(wide.books[0])
        truth = wide.truth(SHELVES)
        bundle = wide.read(*[(SHELVES, scope) for scope in first])
        assert bundle.reason is None
        assert bundle.values[SHELVES] == {scope: truth[scope] for scope in first}
        wide.mongo.clock.advance(REBUILD_LEASE_TTL_S)
        assert len(wide.backfill().rebuilt.published) == 1
        assert wide.read((SHELVES, ALL)).values[SHELVES] == truth


@pytest.mark.parametrize("into", [0, 4, len(PUBLICATION) - 1], ids=lambda into: f"{into}-{PUBLICATION[into]}")
def test_an_owner_of_several_killed_between_publications_leaves_each_family_right(
    settings: Settings, into: int
) -> None:
    """The second family's publication is under way: the first is published, the other two are not."""
    at = 1 + len(FAMILIES) + len(ADMISSION) + len(COUNT) + len(PUBLICATION) + into + 1
    with library(settings) as stale, owner_of(stale, *FAMILIES) as owner:
        owner.say(str(at))
        assert owner.hear() == f"at {at}"
        owner.kill()
        assert [bool(stale.rows(family)) for family in FAMILIES] == [True, False, False]
        assert_right(stale)
        stale.lend_surely(stale.books[0])
        assert stale.read((SHELVES, ALL)).reason is None
        assert_right(stale)
        with pytest.raises(Refusal, match="LeaseHeld"):
            stale.rebuild(FAMILIES[-1])
        stale.mongo.clock.advance(REBUILD_LEASE_TTL_S)
        stale.backfill_all()
        assert_right(stale, served=True)


def test_rebuilds_under_four_savers_at_full_speed_are_exact_or_refused_at_every_moment(settings: Settings) -> None:
    savers, tries = 4, 25
    with served_library(settings, shelves=8, books=80) as served:
        stop = threading.Event()
        saved: Counter[int] = Counter()
        outcomes: Counter[str] = Counter()
        compared: Counter[str] = Counter()
        failures: list[BaseException] = []

        def guarded(doing: object) -> threading.Thread:
            def run() -> None:
                try:
                    assert callable(doing)
                    doing()
                except BaseException as error:
                    failures.append(error)
                    stop.set()

            return threading.Thread(target=run)

        def save(number: int) -> None:
            mine = served.books[number::savers]
            while not stop.is_set():
                book = mine[saved[number] % len(mine)]
                served.lend_surely(book, f"v{saved[number] % 7}" if saved[number] % 3 else None)
                saved[number] += 1

        def watch() -> None:
            while not stop.is_set():
                for comparison in compare(served.host, LIBRARY, served.project, FAMILIES):
                    assert not comparison.differences, comparison
                    compared[comparison.reason.name if comparison.reason else "exact"] += 1

        def rebuild_again() -> None:
            for number in range(tries):
                try:
                    served.rebuild(FAMILIES[number % len(FAMILIES)], force=True)
                    outcomes["published"] += 1
                except Refusal as refusal:
                    outcomes[refusal.reason.name] += 1

        working = [guarded(lambda number=number: save(number)) for number in range(savers)]
        working.append(guarded(watch))
        for thread in working:
            thread.start()
        rebuilding = guarded(rebuild_again)
        rebuilding.start()
        rebuilding.join(timeout=120)
        stop.set()
        for thread in working:
            thread.join(timeout=60)
        assert not any(thread.is_alive() for thread in (*working, rebuilding))
        assert failures == []
        assert outcomes.total() == tries
        assert set(outcomes) <= RACES | {"published"}
        assert compared["exact"] > 0
        assert min(saved[number] for number in range(savers)) > 0
        for family in FAMILIES:
            assert served.backfill(family).verified.exact, "the closing backfill"
        assert_right(served, served=True)
