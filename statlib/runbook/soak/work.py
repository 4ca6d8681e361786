"""What is submitted in a soak: the recorded events, and generated work beside them. Each has one writer.

Invariant: generated work is taken back within the replay, so that the source ends as the record says.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from statlib.review.documents import Project
from statlib.review.edits import Join, Leave, SetThreshold
from statlib.review.loading.review import AnnotationEvent, DecisionEvent


class Writer(StrEnum):
    """Which writer a submission goes through, as captures name it."""

    DECISION = "decision"
    SESSION = "session"
    CLAIM = "claim"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class PlaceAct:
    """A place on a stage of a study: taken, or let go. ``enforce_capacity``: taken only if one is left."""

    study_id: UUID
    investigator_id: UUID
    stage_id: UUID
    taken: bool
    enforce_capacity: bool = True


Act = DecisionEvent | AnnotationEvent | PlaceAct


@dataclass(frozen=True, slots=True)
class Work:
    """One submission to be made. ``seq`` orders the replay; ``number`` is the event's in the captures: recorded events
    are numbered from 0, generated ones after them."""

    seq: int
    number: int
    act: Act

    @property
    def study_id(self) -> UUID:
        return self.act.study_id

    @property
    def writer(self) -> Writer:
        match self.act:
            case DecisionEvent():
                return Writer.DECISION
            case AnnotationEvent():
                return Writer.SESSION
            case PlaceAct(taken=taken):
                return Writer.CLAIM if taken else Writer.RELEASE


@dataclass(frozen=True, slots=True)
class PlannedEdit:
    """An edit of the project, due when ``after`` submissions are handed out."""

    after: int
    change: Leave | Join | SetThreshold

    @property
    def name(self) -> str:
        return type(self.change).__name__


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the window submits and edits. ``recorded``: how much of the work is in the record."""

    project: Project
    work: tuple[Work, ...]
    recorded: int
    edits: tuple[PlannedEdit, ...]

    @property
    def generated(self) -> int:
        return len(self.work) - self.recorded
