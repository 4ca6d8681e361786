"""From filed sessions and reconciled records to acts on sessions, in order. Pure.

An export says when a session was handed in, and what was agreed on in the end. That a session had been started before,
when a withdrawn one was deleted, and who reconciled and when, is made up here, and named in the provenance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from statlib.review.annotation_writer import SessionAct
from statlib.review.loading.annotation.filed import Filed
from statlib.review.loading.annotation.reconciled import Reconciled
from statlib.review.loading.recording import STARTED_AT

RECONCILER = "Reconciler (not named)"
STARTED_BEFORE = timedelta(minutes=10)
RECONCILED_AFTER = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Act:
    """One act on a session. ``answers`` as exported, None where the act leaves what is answered."""

    article: str
    coder: str
    act: SessionAct
    at: datetime
    answers: Mapping[str, str] | None = None
    reconciliation: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """The acts in order, and for people (row of a session, what was made of it)."""

    acts: tuple[Act, ...]
    remarks: tuple[tuple[int, str], ...]


def timeline(sessions: Iterable[Filed], reconciled: Sequence[Reconciled]) -> Timeline:
    """All acts by time, each session's and each record's in their own order."""
    of_pair: dict[tuple[str, str], list[Filed]] = {}
    for session in sorted(sessions, key=lambda session: (session.at, session.row)):
        of_pair.setdefault((session.article, session.coder), []).append(session)
    acts: list[Act] = []
    remarks: list[tuple[int, str]] = []
    for filed in of_pair.values():
        acts += _of_one_coder(filed, remarks)
    last: dict[str, datetime] = {}
    for act in acts:
        last[act.article] = max(act.at, last.get(act.article, act.at))
    for record in reconciled:
        began = last.get(record.article, STARTED_AT) + RECONCILED_AFTER
        acts += [
            Act(record.article, RECONCILER, SessionAct.SAVE, began, {}, True),
            Act(record.article, RECONCILER, SessionAct.COMPLETE, began + RECONCILED_AFTER, record.answers, True),
        ]
    acts.sort(key=lambda act: act.at)  # stable: acts of one moment stay as they were made
    return Timeline(tuple(acts), tuple(remarks))


def _of_one_coder(filed: Sequence[Filed], remarks: list[tuple[int, str]]) -> list[Act]:
    """The acts of one coder on one record: they have one session there, whatever they filed."""
    acts: list[Act] = []
    standing: Filed | None = None
    for session in filed:
        here = (session.article, session.coder)
        began = session.at - STARTED_BEFORE if standing is None else max(session.at - STARTED_BEFORE, standing.at)
        if standing is not None and standing.withdrawn:
            acts.append(Act(*here, SessionAct.DELETE, began))
        if standing is None or standing.withdrawn:
            acts.append(Act(*here, SessionAct.SAVE, began, {}))
            acts.append(Act(*here, SessionAct.COMPLETE, session.at, session.answers))
        else:
            remarks.append((session.row, f"is read as an edit of {session.coder}'s session {standing.key}"))
            acts.append(Act(*here, SessionAct.SAVE, session.at, session.answers))
        if session.withdrawn:
            remarks.append((session.row, f"is read as a session of {session.coder} that was deleted later"))
        standing = session
    if standing is not None and standing.withdrawn:
        acts.append(Act(standing.article, standing.coder, SessionAct.DELETE, standing.at))
    return acts
