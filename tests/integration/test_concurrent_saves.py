"""Ten writers at once, each as a process would be: nothing lost, nothing doubled, and every loser told why."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from uuid import UUID

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics.arms import Arm
from statlib.statistics.counters import from_stored, plus, without_zeros
from statlib.statistics.outcomes import Cause, Saved
from statlib.statistics.reader import Source
from statlib.statistics.reasons import SaveReason
from tests.reviews import FAMILY, Review, host_of, review

WRITERS = [UUID(int=number) for number in range(1, 11)]


@dataclass(frozen=True)
class Submission:
    """One decision of one investigator, and what became of it."""

    study: UUID
    who: UUID
    decision: Decision
    outcome: Saved | Refusal


def work(
    settings: Settings, project: UUID, who: UUID, studies: tuple[UUID, ...], count: int, start: threading.Barrier
) -> list[Submission]:
    chance, submissions = random.Random(who.int), []
    with host_of(settings) as host:
        writer = ScreeningWriter(host, project)
        start.wait(timeout=60)
        for _ in range(count):
            study, decision = chance.choice(studies), chance.choice(list(Decision))
            try:
                outcome: Saved | Refusal = writer.submit(study, who, decision)
            except Refusal as refusal:
                outcome = refusal
            submissions.append(Submission(study, who, decision, outcome))
    return submissions


def all_at_once(opened: Review, studies: tuple[UUID, ...], each: int) -> list[Submission]:
    """Every writer's submissions, in each writer's own order."""
    start = threading.Barrier(len(WRITERS))
    with ThreadPoolExecutor(len(WRITERS)) as pool:
        running = [
            pool.submit(work, opened.mongo.settings, opened.project, who, studies, each, start) for who in WRITERS
        ]
        return [submission for future in running for submission in future.result(timeout=120)]


def saved(submissions: list[Submission]) -> list[tuple[Submission, Saved]]:
    return [(s, s.outcome) for s in submissions if isinstance(s.outcome, Saved)]


def account(opened: Review, submissions: list[Submission]) -> None:
    """Each submission is in the source exactly once, or typed and not at all."""
    committed = saved(submissions)
    versions = Counter(s.study for s, _ in committed)
    standing: dict[UUID, dict[UUID, bool]] = {study: {} for study in opened.studies}
    for s, _ in committed:
        standing[s.study].pop(s.who, None)
        if s.decision is not Decision.RETRACT:
            standing[s.study][s.who] = s.decision is Decision.INCLUDE
    for study in opened.studies:
        assert opened.study(study)["Audit"]["Version"] == versions[study]
        assert opened.decisions(study) == standing[study]
    assert not [s for s, answer in committed if answer.duplicate]
    assert len({answer.operation_id for _, answer in committed}) == len(committed)
    for s in submissions:
        if isinstance(s.outcome, Refusal):
            assert s.outcome.reason in {SaveReason.VersionStale, SaveReason.AttemptsExhausted}
            causes = [Cause(cause) for cause in s.outcome.state["failedAttempts"]]
            exhausted = s.outcome.reason is SaveReason.AttemptsExhausted
            assert len(causes) == 3 if exhausted else len(causes) <= 3
            assert set(causes) <= {Cause.SOURCE, Cause.STATISTICS}


def account_for_statistics(opened: Review, submissions: list[Submission], published: dict[str, int]) -> None:
    """Receipts are those of the saves; the ledger leads, without a hole, from the published row to the one served."""
    committed = {answer.operation_id: answer for _, answer in saved(submissions)}
    receipts = {receipt["OperationId"]: receipt for receipt in opened.receipts()}
    assert receipts.keys() == committed.keys()
    for operation, answer in committed.items():
        assert answer.leaves_receipt
        assert receipts[operation]["CommittedSourceAfterRevision"] == answer.revision_after
    deltas = sorted((d for d in opened.deltas() if d["Kind"] == "Operation"), key=lambda delta: int(delta["Revision"]))
    assert [d["OperationId"] for d in deltas if d["OperationId"] not in committed] == []
    first = opened.control()["CommittedProjectionRevision"] - len(deltas) + 1
    assert [d["Revision"] for d in deltas] == list(range(first, first + len(deltas)))
    counters = published
    for delta in deltas:
        for move in delta["Moves"]:
            counters = plus(counters, from_stored(move["Counters"]))
    bundle = opened.read()
    assert bundle.source is Source.MATERIALISED
    assert bundle.counters(FAMILY) == without_zeros(counters) == opened.truth()


@pytest.mark.parametrize(
    ("arm", "same_study", "each"),
    [
        (Arm.TRANSACTIONAL, True, 60),
        (Arm.TRANSACTIONAL, False, 90),
        (Arm.SOURCE_ONLY, True, 80),
        (Arm.SOURCE_ONLY, False, 100),
    ],
)
def test_ten_writers_lose_and_double_nothing(settings: Settings, arm: Arm, same_study: bool, each: int) -> None:
    transactional = arm is Arm.TRANSACTIONAL
    with ExitStack() as stack:
        opened = stack.enter_context(review(settings, studies=20, under_statistics=transactional))
        published: dict[str, int] = {}
        if transactional:
            opened.backfill()
            published = from_stored(opened.row()["Counters"])
        submissions = all_at_once(opened, opened.studies[:1] if same_study else opened.studies, each)
        assert len(submissions) == each * len(WRITERS)
        assert saved(submissions)
        account(opened, submissions)
        if transactional:
            account_for_statistics(opened, submissions, published)
        else:
            assert opened.receipts() == opened.deltas() == []
