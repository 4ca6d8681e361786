"""A save frozen with SIGSTOP at each command, across a closing, a reopening, its grace and a rebuild, and woken.

Whatever it then does, no row that is served may be wrong. The clock file is advanced past the opening grace while the
saver is frozen, so a command that it had already made still carries the earlier time; where that matters, the
saver's deadline is shortened instead, and the server's own clock is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.review.screening import Decision
from statlib.statistics.arms import Arm
from statlib.statistics.documents import Mode
from statlib.statistics.reader import Source
from tests.fault.savers import APP_NAME, Condition, Job, Report, Savers, Signal, savers
from tests.fault.test_killed_saves import COMMANDS
from tests.interruptions import When
from tests.open_transactions import end_transactions, open_transactions
from tests.reviews import FAMILY, Review, review

ANNA, BEN = UUID(int=0xA), UUID(int=0xB)
CONTROL_WRITTEN = 4  # commands after which the frozen transaction stands in the way of an opening
SHORT_DEADLINE_S = 0.3


@pytest.fixture(scope="module")
def kit() -> Iterator[Savers]:
    with savers() as running:
        yield running


def close_and_reopen(opened: Review) -> None:
    opened.gate(enabled=False)
    opened.gate(enabled=True)


def rebuild_after_the_grace(opened: Review) -> None:
    opened.mongo.clock.advance(opened.mongo.settings.statistics.opening_grace_s)
    opened.backfill()
    assert opened.read().source is Source.MATERIALISED


def require_exact_or_not_served(opened: Review, case: str) -> None:
    bundle = opened.read()
    assert bundle.counters(FAMILY) == opened.truth(), (case, bundle.source)


def wait_for_server_time(mongo: Mongo, seconds: float) -> None:
    """Until the server's own clock has moved on by ``seconds``."""
    started = mongo.client.admin.command("hello")["localTime"]
    give_up_at = time.monotonic() + 20
    while mongo.client.admin.command("hello")["localTime"] < started + timedelta(seconds=seconds):
        assert time.monotonic() < give_up_at


@pytest.mark.parametrize("rival", [False, True], ids=["alone", "with-a-rival"])
def test_a_transactional_save_frozen_across_an_opening_never_leaves_a_wrong_row_served(
    settings: Settings, kit: Savers, rival: bool
) -> None:
    number_of_commands = len(COMMANDS[Arm.TRANSACTIONAL])
    cases = [(1, When.BEFORE_SENDING), *((number, When.AFTER_REPLY) for number in range(1, number_of_commands + 1))]
    with review(settings, studies=len(cases)) as opened:
        opened.backfill()
        for (number, when), study in zip(cases, opened.studies, strict=True):
            taken = number if when is When.AFTER_REPLY else number - 1
            _freeze_across_an_opening(opened, kit, study, Arm.TRANSACTIONAL, (number, when), taken, rival=rival)


def _freeze_across_an_opening(
    opened: Review, kit: Savers, study: UUID, arm: Arm, at: tuple[int, When], taken: int, *, rival: bool
) -> None:
    case = f"{arm}, command {at[0]}, {at[1]}, rival {rival}"
    envelope = opened.writer.open(study, ANNA)
    frozen = kit.run(Job(opened.mongo.settings, envelope, Decision.INCLUDE, Signal.STOP, at[1], at[0]))
    assert frozen.condition is Condition.FROZEN, case
    half_done = 2 <= taken < len(COMMANDS[arm])
    left_open = open_transactions(opened.mongo.client, APP_NAME)
    assert len(left_open) == int(half_done), case
    if half_done and taken >= CONTROL_WRITTEN:
        with pytest.raises(Refusal) as refused:  # the frozen transaction holds the control
            close_and_reopen(opened)
        assert refused.value.reason is MongoReason.Contended, case
        end_transactions(opened.mongo.client, left_open)  # as the server does when its lifetime has run out
    close_and_reopen(opened)
    if rival:
        opened.writer.submit(study, BEN, Decision.EXCLUDE)
    rebuild_after_the_grace(opened)

    woken = kit.resume(frozen)

    assert woken.condition is Condition.ANSWERED, case
    applied_before = taken == len(COMMANDS[arm])
    assert woken.answer == ("VersionStale" if rival and not applied_before else "Saved"), case
    saved = woken.answer == "Saved"
    assert opened.decisions(study).get(ANNA) is (True if saved else None), case
    assert opened.study(study)["Audit"]["Version"] == int(saved) + int(rival), case
    require_exact_or_not_served(opened, case)
    assert opened.read().source is Source.MATERIALISED, case


@contextmanager
def _source_only(settings: Settings) -> Iterator[Review]:
    """The fleet is open, and the project has no control yet."""
    with review(settings, studies=2, under_statistics=False) as opened:
        opened.fleet(Mode.ENABLED)
        yield opened


SOURCE_ONLY_CASES = [
    (1, When.BEFORE_SENDING),
    (1, When.AFTER_REPLY),
    (2, When.BEFORE_SENDING),
    (2, When.AFTER_REPLY),
]


def _open_while_frozen(opened: Review, kit: Savers, job: Callable[[Review], Job]) -> tuple[Report, dict[str, Any]]:
    """Freeze, open the gate for the first time, rebuild, wake. Returns the answer and the study as it then is."""
    frozen = kit.run(job(opened))
    assert frozen.condition is Condition.FROZEN
    opened.gate(enabled=True)
    close_and_reopen(opened)
    wait_for_server_time(opened.mongo, 2 * SHORT_DEADLINE_S)
    rebuild_after_the_grace(opened)
    woken = kit.resume(frozen)
    assert woken.condition is Condition.ANSWERED
    return woken, opened.study(opened.studies[0])


@pytest.mark.parametrize(("number", "when"), SOURCE_ONLY_CASES)
def test_a_source_only_save_frozen_across_the_first_opening_never_leaves_a_wrong_row_served(
    settings: Settings, kit: Savers, number: int, when: When
) -> None:
    def job(opened: Review) -> Job:
        envelope = opened.writer.open(opened.studies[0], ANNA)
        return Job(
            opened.mongo.settings,
            envelope,
            Decision.INCLUDE,
            Signal.STOP,
            when,
            number,
            deadline_s=SHORT_DEADLINE_S,
        )

    with _source_only(settings) as opened:
        woken, study = _open_while_frozen(opened, kit, job)
        # A first attempt that is late is tried again, and finds the gate open.
        assert woken.answer == "Saved"
        assert study["Audit"]["Version"] == 1
        require_exact_or_not_served(opened, f"command {number}, {when}")
        assert opened.read().source is Source.MATERIALISED


def _between_its_deadline_check_and_its_write(opened: Review, *, without: str | None = None) -> Job:
    envelope = opened.writer.open(opened.studies[0], ANNA)
    return Job(opened.mongo.settings, envelope, Decision.INCLUDE, Signal.STOP, None, without=without)


def test_a_source_only_save_frozen_after_its_own_deadline_check_is_stopped_by_the_servers(
    settings: Settings, kit: Savers
) -> None:
    """It then looks again, finds the gate open, and keeps the statistics."""
    with _source_only(settings) as opened:
        woken, study = _open_while_frozen(opened, kit, _between_its_deadline_check_and_its_write)
        assert woken.answer == "Saved"
        assert study["Audit"]["Version"] == 1
        assert len(opened.receipts()) == 1
        require_exact_or_not_served(opened, "before the write is made")
        assert opened.read().source is Source.MATERIALISED


def test_without_the_servers_deadline_the_same_save_leaves_a_wrong_row_served(settings: Settings, kit: Savers) -> None:
    """The predicate is what stops it: nothing else notices."""
    with _source_only(settings) as opened:
        woken, study = _open_while_frozen(
            opened, kit, lambda of: _between_its_deadline_check_and_its_write(of, without="before_deadline")
        )
        assert woken.answer == "Saved"
        assert study["Audit"]["Version"] == 1
        assert opened.receipts() == []
        bundle = opened.read()
        assert bundle.source is Source.MATERIALISED
        assert bundle.counters(FAMILY) != opened.truth()
