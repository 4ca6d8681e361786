"""The primary stepped down amid every writer: all or nothing, and done once by a redelivery at the latest."""

from __future__ import annotations

import pytest

from statlib.local.replica_set import ReplicaSet
from statlib.mongo.connection import Mongo
from statlib.statistics.arms import Arm
from statlib.statistics.reasons import SaveReason
from tests import arms
from tests.doings import DOINGS, done_to, insert
from tests.exactness import unserved
from tests.interruptions import Interrupter, When, host_with

# The write itself, and in a transaction every other time the first of its updates, when it has been applied there.
MOMENTS = {
    Arm.SOURCE_ONLY: [(When.BEFORE_SENDING, "findAndModify")],
    Arm.FOLD: [(When.BEFORE_SENDING, "findAndModify"), (When.AFTER_REPLY, "findAndModify")],
    Arm.TRANSACTIONAL: [(When.BEFORE_SENDING, "commitTransaction"), (When.AFTER_REPLY, "update")],
}
UNRESOLVED = SaveReason.StatisticsOperationUnresolved.name
DONE_BEFORE = {"Duplicate", "None", SaveReason.VersionStale.name}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("arm", list(Arm))
def test_a_writer_whose_primary_steps_down_is_done_once(
    mongo_on_three: Mongo, three_nodes: ReplicaSet, arm: Arm
) -> None:
    def step_down() -> None:
        three_nodes.step_down()

    interrupter = Interrupter()
    with done_to(mongo_on_three.settings, arm) as opened:
        studies = {name: insert(opened, doing)[0] for name, doing in DOINGS.items()}
        arms.begin(opened, arm)
        with host_with(opened.mongo.settings, interrupter, app_name="statlib-tests-through-failover") as host:
            for number, (name, doing) in enumerate(DOINGS.items()):
                envelope = doing.open(host, opened.project, studies[name]).as_redelivered()
                when, command = MOMENTS[arm][number % len(MOMENTS[arm])]
                with interrupter.armed(when, 1, step_down, name=command) as armed:
                    answers = [doing.answer(host, envelope)]
                assert armed.reached, name
                three_nodes.wait_for_primary()
                answers.append(doing.answer(host, envelope))
                assert opened.study(studies[name])["Audit"]["Version"] == 1, (name, answers)
                assert answers.count("Saved") == 1 or answers[0] == UNRESOLVED, (name, answers)
                assert answers[1] in {"Saved", *DONE_BEFORE}, (name, answers)
        if arm in arms.UNDER_STATISTICS:
            arms.fold(opened)
            assert len(opened.receipts()) == sum(doing.receipts for doing in DOINGS.values())
            assert set(unserved(opened)) <= {"ReviewerAnnotation", "QuestionAnswers"}
