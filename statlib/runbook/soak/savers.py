"""Savers: concurrent reviewers who submit each piece of work until it is confirmed, and note every answer."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from pymongo.errors import PyMongoError

from statlib.evidence.soak_captures import FURTHER, Outcome
from statlib.kernel.refusals import Fault, Refusal, StatlibError
from statlib.mongo.transactions import back_off
from statlib.runbook.soak.delivering import Deliverer, changes_nothing, further_of, namespace_of
from statlib.runbook.soak.schedule import Schedule
from statlib.runbook.soak.work import Work
from statlib.statistics.arms import Arm
from statlib.statistics.envelopes import Envelope
from statlib.statistics.outcomes import FurtherOperation, Saved
from statlib.statistics.reasons import SaveReason

PATIENCE_S = 120.0  # outlasts the election of a primary many times over

_OUTCOMES = {
    SaveReason.VersionStale: Outcome.STALE,
    SaveReason.AttemptsExhausted: Outcome.EXHAUSTED,
    SaveReason.StatisticsOperationUnresolved: Outcome.UNRESOLVED,
}
_OPENED_ANEW = (SaveReason.VersionStale, SaveReason.DigestMismatch)


class Rows(Protocol):
    """Where rows of a capture go."""

    def append(self, row: Any, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Submission:
    """One piece of work on its way.

    ``opened`` is the envelope as it was minted; ``envelope``, which may still be delivered again, what is delivered.
    ``unanswered``: some delivery got no answer.
    """

    work: Work
    resubmission: int = 0
    opened: Envelope | None = None
    envelope: Envelope | None = None
    noop: bool = False
    unanswered: bool = False


class Savers:
    """``workers`` threads over one schedule."""

    def __init__(self, deliverer: Deliverer, schedule: Schedule, rows: Rows, *, patience_s: float = PATIENCE_S) -> None:
        self._deliverer = deliverer
        self._schedule = schedule
        self._rows = rows
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self.confirmed = 0
        self.resubmitted = 0
        self.lost = 0
        self.failures: list[BaseException] = []

    def start(self, workers: int) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._guarded, name=f"saver-{number}", daemon=True) for number in range(workers)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _guarded(self) -> None:
        try:
            while (work := self._schedule.take()) is not None:
                self._confirm(work)
                self._schedule.done(work)
        except BaseException as error:
            self.failures.append(error)
            self._schedule.stop()
            raise

    def _confirm(self, work: Work) -> None:
        """Submit until confirmed. A definite no opens the study anew; an unknown result redelivers its envelope.

        Raises Fault when it was not confirmed for ``patience_s``: the run cannot pass any more, and need not go on.
        """
        submission = Submission(work)
        give_up_at = time.monotonic() + self._patience_s
        for resubmission in itertools.count():
            following = self._submit(replace(submission, resubmission=resubmission))
            if following is None:
                with self._lock:
                    self.confirmed += 1
                    self.resubmitted += resubmission > 0
                return
            if time.monotonic() > give_up_at or self._schedule.stopped:
                with self._lock:
                    self.lost += 1
                raise Fault(
                    f"a {work.writer} was not confirmed within {self._patience_s:.0f} s",
                    remedy="Look at the last rows of operations.jsonl for the reason.",
                )
            submission = following
            back_off(resubmission)

    def _submit(self, at: Submission) -> Submission | None:
        """What to submit next; None: it was confirmed."""
        act = at.work.act
        started = time.perf_counter()
        try:
            if at.envelope is None:
                opened = self._deliverer.open(act)
                at = replace(at, opened=opened, envelope=opened, noop=changes_nothing(act, opened))
            saved = self._deliverer.deliver(act, at.envelope, again=at.unanswered)
        except Refusal as refusal:
            outcome = _OUTCOMES.get(refusal.reason, Outcome.REFUSED)  # type: ignore[call-overload]
            self._note(at, started, _refused(outcome, refusal))
            if refusal.reason in _OPENED_ANEW:
                return replace(at, envelope=None)
            return _redelivered(at, unanswered=at.unanswered or outcome is Outcome.UNRESOLVED)
        except (Fault, PyMongoError) as error:
            self._note(at, started, _failed(error))
            return _redelivered(at, unanswered=True)
        self._note(at, started, _saved(saved), operation_id=saved.operation_id)
        for operation in further_of(act, at.opened, saved):
            self._note_further(at, started, saved, operation)
        return None

    def _note_further(self, at: Submission, started: float, saved: Saved, operation: FurtherOperation) -> None:
        answer = {**_saved(saved), "namespace": operation.namespace, "writer": FURTHER}
        self._note(at, started, answer, operation_id=operation.operation_id)

    def _note(self, at: Submission, started: float, answer: dict[str, Any], *, operation_id: str = "") -> None:
        work = at.work
        opened = at.envelope.operation_id if at.envelope else f"not opened: {work.writer} {work.number}"
        row = {
            "event": work.number,
            "operation_id": operation_id or opened,
            "namespace": namespace_of(work.act),
            "writer": work.writer.value,
            "study": str(work.study_id),
            "latency_ms": round((time.perf_counter() - started) * 1000, 3),
            "resubmission": at.resubmission,
            "at": datetime.now(UTC).isoformat(),
            "noop": at.noop,
            **answer,
        }
        self._rows.append(row)


def _redelivered(at: Submission, *, unanswered: bool) -> Submission:
    return replace(at, envelope=at.envelope.as_redelivered() if at.envelope else None, unanswered=unanswered)


def _saved(saved: Saved) -> dict[str, Any]:
    return {
        "arm": saved.arm.value,
        "outcome": (Outcome.DUPLICATE if saved.duplicate else Outcome.SAVED).value,
        "reason": None,
        "attempts": len(saved.failed_attempts) + 1,
        "expects_receipt": saved.leaves_receipt,
        "applied": not saved.duplicate,
    }


def _refused(outcome: Outcome, refusal: Refusal) -> dict[str, Any]:
    causes = refusal.state.get("failedAttempts", [])
    return {
        "arm": Arm.TRANSACTIONAL.value,
        "outcome": outcome.value,
        "reason": reason_with_causes(refusal),
        "kind": refusal.reason.kind.value,
        "attempts": len(causes),
        "expects_receipt": False,
        "applied": False,
    }


def reason_with_causes(refusal: Refusal) -> str:
    """``AttemptsExhausted (2 × StatisticsConflict, 1 × WriteConflict)``: causes in the order of their first."""
    counted = ", ".join(
        f"{times:,} × {cause}" for cause, times in Counter(refusal.state.get("failedAttempts", [])).items()
    )
    return f"{refusal.reason.name} ({counted})" if counted else refusal.reason.name


def _failed(error: StatlibError | PyMongoError) -> dict[str, Any]:
    cause = error.__cause__ or error
    return {
        "arm": Arm.TRANSACTIONAL.value,
        "outcome": Outcome.FAILED.value,
        "reason": type(cause).__name__,
        "attempts": 0,
        "expects_receipt": False,
        "applied": False,
    }
