"""Everything that can be done to a review, chosen by numbers: for histories that a machine or chance makes up.

Each act names whom and what it is about by a *place*, an index into whatever there is by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from statlib.kernel.refusals import Reason
from statlib.mongo.reasons import MongoReason
from statlib.review.annotation_writer import AnnotationWriter, SessionAct
from statlib.review.bulk import DecisionRow, update_studies
from statlib.review.claims import ClaimWriter
from statlib.review.documents import AnswerKind, Question, Search, Stage, StageKind, Study
from statlib.review.edit_reasons import EditReason
from statlib.review.edits import (
    AddQuestion,
    AddStage,
    Join,
    Leave,
    RemoveQuestion,
    RemoveStage,
    Renaming,
    SetOptions,
    SetTarget,
    SetThreshold,
    edit_project,
    set_options,
    set_threshold,
)
from statlib.review.reasons import ReviewReason
from statlib.review.reservation_writer import ReservationWriter
from statlib.review.screening import Decision
from statlib.review.searches import import_search, remove_search
from statlib.statistics.hosts import Host
from statlib.statistics.reasons import FenceReason, OperateReason, SaveReason, ServeReason
from tests.reviews import Review

OPTIONS = ("a.b/c", "ja: 100 %", "é")

REFUSED_ALONE: frozenset[Reason] = frozenset(
    {
        *ReviewReason, *EditReason, *FenceReason, SaveReason.SourceNotFound,
        OperateReason.GateClosed, OperateReason.WriterGracePending, OperateReason.NotServedAfterwards,
        ServeReason.SourceVisibilityFenced, ServeReason.FenceActive, MongoReason.LeaseLost,
    }
)  # fmt: skip
"""What an act may be refused where nobody else acts."""

REFUSED_AMONG_OTHERS: frozenset[Reason] = REFUSED_ALONE | {
    SaveReason.AttemptsExhausted, SaveReason.VersionStale, SaveReason.DigestMismatch,
    MongoReason.Contended, MongoReason.LeaseHeld,
    OperateReason.PublicationRaceLost, OperateReason.RebuildStarved,
}  # fmt: skip
"""And where others do."""


def stages_and_questions() -> tuple[list[Stage], list[Question]]:
    """A screening stage and two annotation stages; a question of each kind, a choice with awkward options."""
    stages = [
        Stage(id=uuid4(), name="titles", kind=StageKind.SCREENING, session_count_target=2),
        Stage(id=uuid4(), name="first", kind=StageKind.ANNOTATION, session_count_target=2),
        Stage(id=uuid4(), name="second", kind=StageKind.ANNOTATION, session_count_target=1),
    ]
    questions = [
        Question(id=uuid4(), stage_id=stages[1].id, text="blinded?", answer=AnswerKind.BOOLEAN),
        Question(id=uuid4(), stage_id=stages[1].id, text="species?", answer=AnswerKind.CHOICE, options=OPTIONS),
        Question(id=uuid4(), stage_id=stages[2].id, text="animals?", answer=AnswerKind.INTEGER),
        Question(id=uuid4(), stage_id=stages[2].id, text="notes?", answer=AnswerKind.TEXT),
    ]
    return stages, questions


@dataclass(frozen=True)
class Acts:
    """Acts of one host on one review. Each raises what the act refuses."""

    review: Review
    host: Host
    strangers: tuple[UUID, ...] = field(default_factory=lambda: (uuid4(), uuid4()))
    spare_stage: UUID = field(default_factory=uuid4)
    spare_question: UUID = field(default_factory=uuid4)

    @property
    def project(self) -> UUID:
        return self.review.project

    # --- what there is ---

    def study(self, place: int) -> UUID:
        ids: Sequence[UUID] = sorted(study["_id"] for study in self.review.stored_studies())
        return ids[place % len(ids)] if ids else uuid4()

    def stage(self, place: int) -> UUID:
        stages: list[UUID] = [*(stage["Id"] for stage in self.review.stored_project()["Stages"]), self.spare_stage]
        return stages[place % len(stages)]

    def person(self, place: int) -> UUID:
        people = (*self.review.members, *self.strangers)
        return people[place % len(people)]

    def answers(self, stage: UUID, place: int) -> Mapping[UUID, bool | int | str]:
        values: dict[str, bool | int | str] = {"Boolean": place % 2 == 0, "Integer": place, "Text": f"note {place}"}
        return {
            question["Id"]: (
                question["Options"][place % len(question["Options"])]
                if question["Answer"] == "Choice"
                else values[question["Answer"]]
            )
            for number, question in enumerate(self.review.stored_project()["Questions"])
            if question["StageId"] == stage and (place + number) % 3
        }

    # --- writers ---

    def screen(self, study: int, person: int, decision: Decision, *, on_stage: bool) -> None:
        stage = self.stage(0) if on_stage else None
        self.review.writer.submit(self.study(study), self.person(person), decision, stage=stage)

    def annotate(
        self, study: int, person: int, stage: int, act: SessionAct, answers: int | None, *, reconciliation: bool
    ) -> None:
        on = self.stage(stage)
        given = None if answers is None or act is SessionAct.DELETE else self.answers(on, answers)
        writer = AnnotationWriter(self.host, self.project)
        writer.submit(self.study(study), self.person(person), on, act, given, reconciliation=reconciliation)

    def claim(self, study: int, person: int, stage: int, *, enforced: bool = True) -> None:
        writer = ClaimWriter(self.host, self.project)
        writer.claim(self.study(study), self.person(person), self.stage(stage), enforce_capacity=enforced)

    def release(self, study: int, person: int, stage: int) -> None:
        ReservationWriter(self.host, self.project).release(self.study(study), self.person(person), self.stage(stage))

    def update_in_bulk(self, rows: Sequence[tuple[int, int, Decision]]) -> None:
        decisions = [DecisionRow(self.study(study), self.person(person), what) for study, person, what in rows]
        update_studies(self.host, self.project, decisions)

    def import_a_search(self, studies: int) -> None:
        found = [Study(id=uuid4(), project_id=self.project, title=f"found {n}") for n in range(studies)]
        import_search(self.host, self.project, Search(id=uuid4(), name="another"), found)

    def remove_a_search(self, place: int) -> None:
        """Never the last one."""
        searches = self.review.stored_project()["Searches"]
        if len(searches) > 1:
            remove_search(self.host, self.project, searches[place % len(searches)]["Id"])

    # --- edits ---

    def come_or_go(self, person: int, *, joins: bool) -> None:
        who = self.person(person)
        edit_project(self.host, self.project, Join(investigator=who) if joins else Leave(investigator=who))

    def set_target(self, stage: int, sessions: int) -> None:
        edit_project(self.host, self.project, SetTarget(stage=self.stage(stage), target=sessions))

    def add_or_remove_a_stage(self, kind: StageKind, *, there: bool) -> None:
        added = AddStage(stage=self.spare_stage, name="spare", stage_kind=kind)
        edit_project(self.host, self.project, added if there else RemoveStage(stage=self.spare_stage))

    def add_or_remove_a_question(self, stage: int, *, there: bool) -> None:
        on, boolean = self.stage(stage), AnswerKind.BOOLEAN
        added = AddQuestion(question=self.spare_question, stage=on, text="new?", answer=boolean)
        edit_project(self.host, self.project, added if there else RemoveQuestion(question=self.spare_question))

    def set_the_threshold(self, minimum: int, ratio: float) -> None:
        set_threshold(self.host, self.project, SetThreshold(min_screenings=minimum, agreement_ratio=ratio))

    def rename_an_option(self, place: int, name: str) -> None:
        (question,) = [q for q in self.review.stored_project()["Questions"] if q["Answer"] == "Choice"]
        old = question["Options"][place % len(question["Options"])]
        options = tuple(name if option == old else option for option in question["Options"])
        renamed = () if old == name else (Renaming(old=old, new=name),)
        set_options(self.host, self.project, SetOptions(question=question["Id"], options=options, renamed=renamed))
