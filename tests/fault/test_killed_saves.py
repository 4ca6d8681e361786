"""A writer killed with SIGKILL at each command of a save: all or nothing, and a redelivery saves exactly once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import UUID

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics.arms import Arm
from statlib.statistics.envelopes import Envelope
from statlib.statistics.reader import Source
from statlib.statistics.reasons import SaveReason
from tests import arms
from tests.fault.savers import APP_NAME, Condition, Job, Savers, Signal, savers
from tests.interruptions import When
from tests.open_transactions import end_transactions, open_transactions
from tests.reviews import FAMILY, Review, review

ANNA = UUID(int=0xA)

SOURCE_ONLY = ("aggregate", "findAndModify")
TRANSACTIONAL = (
    "aggregate",  # loads; the transaction begins with the next one
    "aggregate",
    "find",
    "update",
    "update",
    "update",
    "insert",
    "update",
    "update",
    "insert",
    "commitTransaction",
)
COMMANDS = {Arm.SOURCE_ONLY: SOURCE_ONLY, Arm.TRANSACTIONAL: TRANSACTIONAL, Arm.FOLD: SOURCE_ONLY}


@pytest.fixture(scope="module")
def kit() -> Iterator[Savers]:
    with savers() as running:
        yield running


def deliver(writer: ScreeningWriter, envelope: Envelope) -> str:
    try:
        saved = writer.save(envelope.as_redelivered(), Decision.INCLUDE)
    except Refusal as refusal:
        return refusal.reason.name
    return "Duplicate" if saved.duplicate else "Saved"


@pytest.mark.parametrize("arm", list(COMMANDS))
def test_the_sweep_covers_every_command_of_a_redelivered_save(settings: Settings, arm: Arm) -> None:
    with review(settings, studies=1, **arms.options(arm)) as opened:
        arms.begin(opened, arm)
        envelope = opened.writer.open(opened.studies[0], ANNA)
        with counting(opened.mongo.client) as count:
            deliver(opened.writer, envelope)
        assert count.names == COMMANDS[arm]


@pytest.mark.parametrize("arm", list(COMMANDS))
def test_a_save_killed_at_any_command_is_all_or_nothing_and_its_redelivery_saves_once(
    settings: Settings, kit: Savers, arm: Arm
) -> None:
    cases = [(number, when) for number in range(1, len(COMMANDS[arm]) + 1) for when in When]
    with review(settings, studies=len(cases), **arms.options(arm)) as opened:
        arms.begin(opened, arm)
        for (number, when), study in zip(cases, opened.studies, strict=True):
            _kill_and_redeliver(opened, kit, arm, study, number, when)
        if arm in arms.UNDER_STATISTICS:
            arms.fold(opened)
            bundle = opened.read()
            assert bundle.source is Source.MATERIALISED
            assert bundle.counters(FAMILY) == opened.truth()
            assert len(opened.receipts()) == len(cases)
        if arm is Arm.TRANSACTIONAL:
            revisions = sorted(d["Revision"] for d in opened.deltas() if d["Kind"] == "Operation")
            assert len(revisions) == len(set(revisions)) == len(cases)


def _kill_and_redeliver(opened: Review, kit: Savers, arm: Arm, study: UUID, number: int, when: When) -> None:
    case = f"{arm}, command {number}, {when}"
    taken = number if when is When.AFTER_REPLY else number - 1  # commands that the server had answered
    applied = taken == len(COMMANDS[arm])
    half_done = arm is Arm.TRANSACTIONAL and 2 <= taken < len(COMMANDS[arm])
    client, before = opened.mongo.client, opened.snapshot_of_statistics()
    envelope = opened.writer.open(study, ANNA)

    killed = kit.run(Job(opened.mongo.settings, envelope, Decision.INCLUDE, Signal.KILL, when, number))

    assert killed.condition is Condition.KILLED, case
    left_open = open_transactions(client, APP_NAME)
    assert len(left_open) == int(half_done), case
    assert (opened.snapshot_of_statistics() != before) is applied, case
    end_transactions(client, left_open)

    expected = "Saved"
    if applied:
        expected = "Duplicate" if arm in arms.UNDER_STATISTICS else SaveReason.VersionStale.name
    assert deliver(opened.writer, envelope) == expected, case
    assert opened.study(study)["Audit"]["Version"] == 1, case
    assert opened.decisions(study) == {ANNA: True}, case
    assert deliver(opened.writer, envelope) != "Saved", case
    assert opened.study(study)["Audit"]["Version"] == 1, case


def test_the_server_itself_ends_what_a_killed_writer_left_open(settings: Settings, kit: Savers) -> None:
    """Until then its study is locked, and saves on it are refused as contended, never half done."""
    with review(settings, studies=1) as opened:
        opened.backfill()
        admin = opened.mongo.client.admin
        admin.command({"setParameter": 1, "transactionLifetimeLimitSeconds": 1})
        try:
            envelope = opened.writer.open(opened.studies[0], ANNA)
            job = Job(opened.mongo.settings, envelope, Decision.INCLUDE, Signal.KILL, When.BEFORE_SENDING, 11)
            assert kit.run(job).condition is Condition.KILLED
            assert len(open_transactions(opened.mongo.client, APP_NAME)) == 1
            answers = [deliver(opened.writer, envelope)]
            give_up_at = time.monotonic() + 20
            while answers[-1] == SaveReason.AttemptsExhausted.name and time.monotonic() < give_up_at:
                answers.append(deliver(opened.writer, envelope))
            assert answers[-1] == "Saved"
            assert set(answers[:-1]) == {SaveReason.AttemptsExhausted.name}
        finally:
            admin.command({"setParameter": 1, "transactionLifetimeLimitSeconds": 10})
        assert opened.read().counters(FAMILY) == opened.truth()
        assert len(opened.receipts()) == 1
