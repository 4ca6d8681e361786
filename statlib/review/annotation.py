"""What sessions and reservations mean: tallies, allocation, canonical answer keys. Pure.

Rules: ``docs/glossary.md``, entries *tally* and *allocation*.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from statlib.review.documents import AnswerKind, Question, Session, SessionStatus, SlotReservation, Study, Tally
from statlib.statistics.documents import TrackingMode


def tally_of(stage: UUID, sessions: Iterable[Session], reservations: Iterable[SlotReservation]) -> Tally:
    """Counted from what is there for ``stage``; sessions and reservations of other stages are left out."""
    here = [session for session in sessions if session.stage_id == stage]
    candidates = [session for session in here if not session.reconciliation]
    reconciliations = [session for session in here if session.reconciliation]
    reserved = sum(reservation.stage_id == stage for reservation in reservations)
    return Tally(
        stage_id=stage,
        ncs=len(candidates),
        nccs=sum(session.status is SessionStatus.COMPLETED for session in candidates),
        rs=bool(reconciliations),
        rc=any(session.status is SessionStatus.COMPLETED for session in reconciliations),
        reservations=reserved,
        total_allocated=len(candidates) + reserved,
        total_engaged=len(candidates) + reserved + bool(reconciliations),
    )


def tallies_after(
    study: Study, sessions: tuple[Session, ...], reservations: tuple[SlotReservation, ...]
) -> tuple[Tally, ...]:
    """The study's tallies once these are its sessions and reservations.

    A stage keeps its tally, at zero too; one appears with the first session or reservation there, after those that
    are. Fields that only another release knows stay.
    """
    known = {tally.stage_id: tally for tally in study.tallies}
    stages = dict.fromkeys([*known, *(s.stage_id for s in sessions), *(r.stage_id for r in reservations)])
    counted = (tally_of(stage, sessions, reservations) for stage in stages)
    return tuple(
        known[tally.stage_id].model_copy(update=dict(tally)) if tally.stage_id in known else tally for tally in counted
    )


def allocation(tally: Tally | None, tracking: TrackingMode) -> int:
    """Places taken on a stage: reservations count where reviewers are tracked."""
    if tally is None:
        return 0
    return tally.total_allocated if tracking is TrackingMode.TRACKED else tally.ncs


def answer_key(question: Question, value: Any) -> str | None:
    """The value as it is counted: ``true``/``false``, decimal text, or option text in NFC; None for free text.

    ValueError where the value is none that the question asks for.
    """
    match question.answer:
        case AnswerKind.TEXT if isinstance(value, str):
            return None
        case AnswerKind.BOOLEAN if isinstance(value, bool):
            return "true" if value else "false"
        case AnswerKind.INTEGER if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        case AnswerKind.CHOICE if isinstance(value, str):
            key = unicodedata.normalize("NFC", value)
            if key in {unicodedata.normalize("NFC", option) for option in question.options}:
                return key
    raise ValueError(f"{question.text!r} asks for {question.answer.value}, not {value!r}")
