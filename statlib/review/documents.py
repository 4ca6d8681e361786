"""Source documents of a systematic review, as stored in ``pmProject`` and ``pmStudy``.

``Screenings`` and the project's threshold are the truth; ``InclusionInfo`` is a denormalised copy for filters.
``Sessions`` and ``SlotReservations`` are the truth of annotation; every write that changes them recomputes the
``Tallies`` of the stages it touches (``annotation.py``), and statistics count the tallies.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import Field

from statlib.mongo.documents import Audit, Stored, UtcTime

PROJECTS = "pmProject"
STUDIES = "pmStudy"


class AgreementThreshold(Stored):
    """When screenings of a study suffice: ``min_screenings`` or more, a share of ``agreement_ratio`` or more alike."""

    min_screenings: int = Field(default=2, ge=1)
    agreement_ratio: float = Field(default=0.66, gt=0.5, le=1.0)


class StageKind(StrEnum):
    SCREENING = "Screening"
    ANNOTATION = "Annotation"


class Stage(Stored):
    id: UUID
    name: str
    kind: StageKind
    session_count_target: int = Field(default=2, ge=1)


class Membership(Stored):
    """An investigator of the project; ``name`` is what the source called them, empty if unknown."""

    investigator_id: UUID
    joined_at_utc: UtcTime
    name: str = ""


class AnswerKind(StrEnum):
    BOOLEAN = "Boolean"
    CHOICE = "Choice"
    INTEGER = "Integer"
    TEXT = "Text"


class Question(Stored):
    """What reviewers answer in the sessions of one stage. ``options`` are those of a choice, and empty otherwise."""

    id: UUID
    stage_id: UUID
    text: str
    answer: AnswerKind
    options: tuple[str, ...] = ()


class Search(Stored):
    id: UUID
    name: str
    source: str = ""
    imported_at_utc: UtcTime | None = None


class Provenance(Stored):
    """Where a project's data come from; shown on the first screen of every report.

    ``recorded`` says what was taken over as it was; ``simulated`` names what a loader made up, empty if nothing.
    """

    source: str = ""
    recorded: str = ""
    simulated: str = ""
    seed: int | None = None


class Project(Stored):
    id: UUID = Field(alias="_id")
    name: str
    provenance: Provenance = Provenance()
    agreement_threshold: AgreementThreshold = AgreementThreshold()
    stages: tuple[Stage, ...] = ()
    memberships: tuple[Membership, ...] = ()
    questions: tuple[Question, ...] = ()
    searches: tuple[Search, ...] = ()
    audit: Audit = Audit()


class Screening(Stored):
    """One investigator's decision on one study; a correction replaces it, a retraction removes it."""

    investigator_id: UUID
    included: bool
    at_utc: UtcTime


class InclusionClass(StrEnum):
    UNDECIDED = "Undecided"
    INCLUDED = "Included"
    EXCLUDED = "Excluded"


class InclusionInfo(Stored):
    """Denormalised from ``Screenings`` and the project's threshold, for the application's filters."""

    class_: InclusionClass = Field(default=InclusionClass.UNDECIDED, alias="Class")
    screened: int = 0
    included: int = 0


class SessionStatus(StrEnum):
    STARTED = "Started"
    COMPLETED = "Completed"


class Answer(Stored):
    """``key`` is the value as it is counted, canonical since it was written; None for free text."""

    question_id: UUID
    value: Any
    key: str | None = None


class Session(Stored):
    """One investigator's annotation of one study in one stage; a reconciliation settles what candidates differ in."""

    id: UUID
    stage_id: UUID
    investigator_id: UUID
    status: SessionStatus = SessionStatus.STARTED
    reconciliation: bool = False
    answers: tuple[Answer, ...] = ()
    at_utc: UtcTime


class SlotReservation(Stored):
    """A claimed place on a stage of a study, held until its investigator saves there or lets go."""

    stage_id: UUID
    investigator_id: UUID
    at_utc: UtcTime


class Tally(Stored):
    """A stage's sessions and reservations on one study, counted.

    ``ncs`` candidate sessions, ``nccs`` the completed of these; ``rs`` and ``rc``: a reconciliation session exists, is
    completed. ``total_allocated`` is ncs + reservations, ``total_engaged`` one more while a reconciliation exists.
    """

    stage_id: UUID
    ncs: int = Field(default=0, alias="NCS")
    nccs: int = Field(default=0, alias="NCCS")
    rs: bool = Field(default=False, alias="RS")
    rc: bool = Field(default=False, alias="RC")
    reservations: int = 0
    total_allocated: int = 0
    total_engaged: int = 0


class Study(Stored):
    """One record under review. Bibliographic fields beyond ``title`` are kept as loaded."""

    id: UUID = Field(alias="_id")
    project_id: UUID
    search_id: UUID | None = None
    title: str = ""
    screenings: tuple[Screening, ...] = ()
    inclusion_info: InclusionInfo = InclusionInfo()
    sessions: tuple[Session, ...] = ()
    tallies: tuple[Tally, ...] = ()
    slot_reservations: tuple[SlotReservation, ...] = ()
    audit: Audit = Audit()
