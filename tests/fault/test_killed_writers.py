"""Every writer killed with SIGKILL before each of its commands and after the last: all or nothing, and done once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.review.screening import Decision
from statlib.statistics.arms import Arm
from statlib.statistics.reasons import SaveReason
from tests import arms
from tests.doings import DOINGS, Doing, done_to, insert
from tests.exactness import unserved
from tests.fault.savers import APP_NAME, Condition, Job, Savers, Signal, savers
from tests.interruptions import When
from tests.open_transactions import end_transactions, open_transactions

COMMANDS_MAX = 16  # more studies than any doing has commands; the rest stay as they are


@pytest.fixture(scope="module")
def kit() -> Iterator[Savers]:
    with savers() as running:
        yield running


@pytest.mark.parametrize("arm", list(Arm))
@pytest.mark.parametrize("doing", DOINGS.values(), ids=lambda doing: doing.name)
def test_a_writer_killed_at_any_command_leaves_all_or_nothing_and_is_done_once(
    settings: Settings, kit: Savers, arm: Arm, doing: Doing
) -> None:
    with done_to(settings, arm) as opened:
        once, first, *studies = insert(opened, doing, COMMANDS_MAX)
        arms.begin(opened, arm)
        # What the first stales, the others find stale: from then on each sends the same commands.
        assert doing.answer(opened.host, doing.open(opened.host, opened.project, once)) == "Saved"
        envelope = doing.open(opened.host, opened.project, first).as_redelivered()
        with counting(opened.mongo.client) as count:
            assert doing.answer(opened.host, envelope) == "Saved"
        commands = count.names
        assert commands[-1] == ("commitTransaction" if arm is Arm.TRANSACTIONAL else "findAndModify")
        assert len(commands) < len(studies)

        cases = [(number, When.BEFORE_SENDING) for number in range(1, len(commands) + 1)]
        cases.append((len(commands), When.AFTER_REPLY))
        for (number, when), study in zip(cases, studies, strict=False):
            case = f"{commands[number - 1]}, command {number}, {when}"
            envelope = doing.open(opened.host, opened.project, study).as_redelivered()
            before = opened.snapshot_of_statistics()
            job = Job(opened.mongo.settings, envelope, Decision.INCLUDE, Signal.KILL, when, number, doing=doing.name)

            assert kit.run(job).condition is Condition.KILLED, case

            applied, left_open = when is When.AFTER_REPLY, open_transactions(opened.mongo.client, APP_NAME)
            half_done = arm is Arm.TRANSACTIONAL and number > 2 and not applied  # loaded, and then began
            assert len(left_open) == int(half_done), case
            end_transactions(opened.mongo.client, left_open)
            assert (opened.snapshot_of_statistics() != before) is applied, case

            again = doing.answer(opened.host, envelope)
            told = {"claim": "None"}.get(doing.name, "Duplicate")
            if arm is Arm.SOURCE_ONLY and doing.name != "claim":
                told = SaveReason.VersionStale.name
            assert again == (told if applied else "Saved"), case
            assert opened.study(study)["Audit"]["Version"] == 1, case
            assert doing.answer(opened.host, envelope) == told, case

        done = len(cases) + 2
        if arm in arms.UNDER_STATISTICS:
            arms.fold(opened)
            assert len(opened.receipts()) == doing.receipts * done
            assert set(unserved(opened)) <= {"ReviewerAnnotation", "QuestionAnswers"}
        if arm is Arm.TRANSACTIONAL:
            entries = [(d["Revision"], d["Record"]) for d in opened.deltas() if d["Kind"] == "Operation"]
            moving = 1 if doing.name == "edit" else done  # an edit only stales, and only once
            assert len({revision for revision, _ in entries}) == moving
            assert len(entries) == len(set(entries)) == doing.receipts * moving
