"""Savers: concurrent reviewers who submit each recorded decision until it is confirmed, and note every answer."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from pymongo.errors import PyMongoError

from statlib.evidence.soak_captures import Outcome
from statlib.kernel.refusals import Fault, Refusal, StatlibError
from statlib.mongo.transactions import back_off
from statlib.review.loading.review import DecisionEvent
from statlib.review.namespaces import SCREENING_NAMESPACE
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.runbook.soak.schedule import Schedule
from statlib.statistics.arms import Arm
from statlib.statistics.envelopes import Envelope
from statlib.statistics.outcomes import Saved
from statlib.statistics.reasons import SaveReason

PATIENCE_S = 120.0  # outlasts the election of a primary many times over

_OUTCOMES = {
    SaveReason.VersionStale: Outcome.STALE,
    SaveReason.AttemptsExhausted: Outcome.EXHAUSTED,
    SaveReason.StatisticsOperationUnresolved: Outcome.UNRESOLVED,
}


class Rows(Protocol):
    """Where rows of a capture go."""

    def append(self, row: Any, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Submission:
    """One event on its way. ``envelope`` is kept while the same operation may still be delivered again."""

    event: DecisionEvent
    number: int
    resubmission: int
    envelope: Envelope | None
    noop: bool


class Savers:
    """``workers`` threads over one schedule. ``numbers``: the place of each event in the replay, from 0."""

    def __init__(
        self,
        writer: ScreeningWriter,
        schedule: Schedule,
        numbers: dict[int, int],
        rows: Rows,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._writer = writer
        self._schedule = schedule
        self._numbers = numbers
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
            while (event := self._schedule.take()) is not None:
                self._confirm(event)
                self._schedule.done(event)
        except BaseException as error:
            self.failures.append(error)
            self._schedule.stop()
            raise

    def _confirm(self, event: DecisionEvent) -> None:
        """Submit until confirmed. A definite no opens the study anew; an unknown result redelivers its envelope.

        Raises Fault when it was not confirmed for ``patience_s``: the run cannot pass any more, and need not go on.
        """
        envelope: Envelope | None = None
        noop = False
        give_up_at = time.monotonic() + self._patience_s
        for resubmission in itertools.count():
            envelope, noop, confirmed = self._submit(
                Submission(event, self._numbers[event.seq], resubmission, envelope, noop)
            )
            if confirmed:
                with self._lock:
                    self.confirmed += 1
                    self.resubmitted += resubmission > 0
                return
            if time.monotonic() > give_up_at or self._schedule.stopped:
                with self._lock:
                    self.lost += 1
                raise Fault(
                    f"a decision was not confirmed within {self._patience_s:.0f} s",
                    remedy="Look at the last rows of operations.jsonl for the reason.",
                )
            back_off(resubmission)

    def _submit(self, submission: Submission) -> tuple[Envelope | None, bool, bool]:
        """(envelope to deliver again or None, noop, confirmed)."""
        event, envelope, noop = submission.event, submission.envelope, submission.noop
        started = time.perf_counter()
        try:
            if envelope is None:
                envelope = self._writer.open(event.study_id, event.investigator_id)
                noop = _changes_nothing(envelope, event)
            saved = self._writer.save(envelope, event.decision, at=event.at)
        except Refusal as refusal:
            outcome = _OUTCOMES.get(refusal.reason, Outcome.REFUSED)  # type: ignore[call-overload]
            self._note(submission, envelope, noop, started, _refused(outcome, refusal))
            stale = refusal.reason in (SaveReason.VersionStale, SaveReason.DigestMismatch)
            return (None if stale or envelope is None else envelope.as_redelivered()), noop, False
        except (Fault, PyMongoError) as error:
            self._note(submission, envelope, noop, started, _failed(error))
            return (envelope.as_redelivered() if envelope else None), noop, False
        self._note(submission, envelope, noop, started, _saved(saved))
        return envelope, noop, True

    def _note(
        self,
        submission: Submission,
        envelope: Envelope | None,
        noop: bool,
        started: float,
        answer: dict[str, Any],
    ) -> None:
        event = submission.event
        row = {
            "event": submission.number,
            "operation_id": envelope.operation_id if envelope else f"not opened: {event.study_id}",
            "namespace": SCREENING_NAMESPACE,
            "study": str(event.study_id),
            "latency_ms": round((time.perf_counter() - started) * 1000, 3),
            "resubmission": submission.resubmission,
            "at": datetime.now(UTC).isoformat(),
            "noop": noop,
            **answer,
        }
        self._rows.append(row)


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


def _changes_nothing(envelope: Envelope, event: DecisionEvent) -> bool:
    """Whether the study, as it was opened, already says what the event asks for."""
    screenings = envelope.loaded.source["Screenings"] if envelope.loaded else []
    own = next((s["Included"] for s in screenings if s["InvestigatorId"] == event.investigator_id), None)
    wanted = None if event.decision is Decision.RETRACT else event.decision is Decision.INCLUDE
    return bool(own == wanted)
