"""What every loader yields: a project, its studies before any screening or session, and what happened to them in order.

Invariant: ids depend only on the format, the project's name and the name within the source, so that loading the same
export again yields the same documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol
from uuid import UUID

from statlib.kernel.identifiers import loaded_id
from statlib.kernel.refusals import Reason, RefusalKind
from statlib.review.annotation_writer import SessionAct
from statlib.review.answers import Answers
from statlib.review.documents import Project, Screening, SessionStatus, Study
from statlib.review.screening import Decision, decide


class LoadReason(Reason):
    """Why a review was not loaded at all. A single malformed row is a ``RowProblem`` instead."""

    ExportUnreadable = (RefusalKind.INVALID, "Give a readable folder of CSV files saved as UTF-8.")
    FormatUnknown = (
        RefusalKind.INVALID,
        "Export again with the columns that are named, or load the simulated project.",
    )
    FormatAmbiguous = (RefusalKind.INVALID, "Put each review into a folder of its own.")
    ReviewNotNamed = (RefusalKind.INVALID, "Name one of the reviews that the export holds, or none if it is one.")
    SimulationInvalid = (RefusalKind.INVALID, "Correct the named parameter of the simulated review.")
    ProjectConflict = (RefusalKind.CONFLICT, "Load under another name, or into an empty database.")


@dataclass(frozen=True, slots=True)
class DecisionEvent:
    """One submitted decision. ``seq`` is unique in its review and grows in recorded order; ``at`` is UTC."""

    seq: int
    study_id: UUID
    investigator_id: UUID
    decision: Decision
    at: datetime


@dataclass(frozen=True, slots=True)
class AnnotationEvent:
    """One submitted act on a session, as ``AnnotationWriter.submit`` takes it.

    ``seq`` is unique among all events of its review, decisions included. ``answers`` become all that the session
    answers; None leaves what it answers.
    """

    seq: int
    study_id: UUID
    investigator_id: UUID
    stage_id: UUID
    act: SessionAct
    at: datetime
    answers: Answers | None = None
    reconciliation: bool = False


@dataclass(frozen=True, slots=True, order=True)
class RowProblem:
    """A row that was not loaded. ``row`` counts as spreadsheets do: the header is row 1."""

    file: str
    row: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, row {self.row}: {self.reason}"


class RowRemark(RowProblem):
    """A row that was loaded, but not just as it is written, or that contradicts itself or another file."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LoadedReview:
    """A review ready to be stored and replayed. Studies carry no screenings or sessions yet: the events make them.

    ``events`` and ``annotations`` share one order, that of ``in_order``.
    """

    project: Project
    studies: tuple[Study, ...]
    events: tuple[DecisionEvent, ...]
    problems: tuple[RowProblem, ...] = ()
    ignored: int = 0  # rows that are well formed but record no decision (labels, exclusion reasons)
    untitled: int = 0  # studies that decisions name and no row describes: loaded under a placeholder title
    remarks: tuple[RowRemark, ...] = ()
    unread: tuple[str, ...] = ()  # other CSV files of the folder, which this format has no use for
    annotations: tuple[AnnotationEvent, ...] = ()

    @property
    def in_order(self) -> tuple[DecisionEvent | AnnotationEvent, ...]:
        """Everything that is submitted, in the order to submit it in."""
        return tuple(sorted([*self.events, *self.annotations], key=lambda event: event.seq))


@dataclass(frozen=True, slots=True)
class EventCounts:
    """What replaying events in recorded order amounts to. ``unchanged`` events leave the screenings as they are."""

    submitted: int
    unchanged: int
    standing: int
    included: int


@dataclass(frozen=True, slots=True)
class AnnotationCounts:
    """How many acts are submitted, and what they leave standing. ``answers`` are those of completed sessions."""

    submitted: int
    candidates: int
    reconciliations: int
    answers: int


class Loader(Protocol):
    """One export format."""

    @property
    def format(self) -> str:
        """The format's name, for people."""
        ...

    @property
    def expects(self) -> str:
        """Which files with which columns are looked for, in one phrase."""
        ...

    def recognises(self, folder: Path) -> bool:
        """Whether the header lines in ``folder`` are of this format. Reads no further than headers."""
        ...

    def load(self, folder: Path) -> LoadedReview:
        """Read the one review of the export: of a two-stage review the first stage.

        Refuses (LoadReason) what cannot be read as this format, and ReviewNotNamed an export of several reviews.
        """
        ...

    def load_all(self, folder: Path) -> tuple[LoadedReview, ...]:
        """Read the whole export: one project for each review, and for each stage of a two-stage review."""
        ...


@dataclass(frozen=True, slots=True)
class Naming:
    """Ids of everything in one loaded project."""

    format: str
    project: str

    def project_id(self) -> UUID:
        return loaded_id(self.format, self.project)

    def study_id(self, key: str) -> UUID:
        return loaded_id(self.format, self.project, "study", key)

    def reviewer_id(self, name: str) -> UUID:
        return loaded_id(self.format, self.project, "reviewer", name)

    def search_id(self, name: str) -> UUID:
        return loaded_id(self.format, self.project, "search", name)

    def stage_id(self, name: str) -> UUID:
        return loaded_id(self.format, self.project, "stage", name)

    def question_id(self, key: str) -> UUID:
        return loaded_id(self.format, self.project, "question", key)


def replayed(events: Iterable[DecisionEvent]) -> Mapping[UUID, tuple[Screening, ...]]:
    """The screenings that stand on each study once the events are replayed in the given order."""
    screenings: dict[UUID, tuple[Screening, ...]] = {}
    for event in events:
        before = screenings.get(event.study_id, ())
        screenings[event.study_id] = decide(before, event.investigator_id, event.decision, event.at)
    return screenings


def event_counts(events: Iterable[DecisionEvent]) -> EventCounts:
    """Count what a replay of the events, in the given order, changes and leaves standing."""
    screenings: dict[UUID, tuple[Screening, ...]] = {}
    submitted = unchanged = 0
    for event in events:
        before = screenings.get(event.study_id, ())
        after = decide(before, event.investigator_id, event.decision, event.at)
        screenings[event.study_id] = after
        submitted += 1
        unchanged += after == before
    standing = [screening for of_study in screenings.values() for screening in of_study]
    return EventCounts(submitted, unchanged, len(standing), sum(screening.included for screening in standing))


SessionKey = tuple[UUID, UUID, UUID, bool]
"""(study, stage, investigator, whether it is a reconciliation): there is one session of each at most."""


def annotated(events: Iterable[AnnotationEvent]) -> Mapping[SessionKey, tuple[SessionStatus, Answers]]:
    """The sessions that stand once the events are replayed in the given order, with what they answer."""
    standing: dict[SessionKey, tuple[SessionStatus, Answers]] = {}
    for event in events:
        key = (event.study_id, event.stage_id, event.investigator_id, event.reconciliation)
        if event.act is SessionAct.DELETE:
            del standing[key]
            continue
        status, answers = standing.get(key, (SessionStatus.STARTED, {}))
        standing[key] = (
            SessionStatus.COMPLETED if event.act is SessionAct.COMPLETE else status,
            answers if event.answers is None else event.answers,
        )
    return standing


def annotation_counts(events: Sequence[AnnotationEvent]) -> AnnotationCounts:
    """Count what a replay of the events, in the given order, leaves standing."""
    standing = annotated(events)
    reconciliations = sum(reconciliation for *_, reconciliation in standing)
    answers = sum(len(answers) for status, answers in standing.values() if status is SessionStatus.COMPLETED)
    return AnnotationCounts(len(events), len(standing) - reconciliations, reconciliations, answers)
