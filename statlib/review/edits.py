"""Edits of a review: one model each, as it travels and as it is applied.

What an edit stales, the engine finds out by comparison. An edit of the threshold or of a question's options also
rewrites studies, behind a fence; every other one is a single transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from unicodedata import normalize
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.documents import Stored
from statlib.passes.audit import Action, server_time
from statlib.review.catalogue import REVIEW
from statlib.review.documents import (
    STUDIES,
    AnswerKind,
    Membership,
    Project,
    Question,
    Search,
    Stage,
    StageKind,
)
from statlib.review.edit_reasons import EditReason
from statlib.review.families import question_answers
from statlib.review.reasons import ReviewReason
from statlib.statistics.catalogue import Document
from statlib.statistics.documents import FenceKind
from statlib.statistics.edits import Edited, edit
from statlib.statistics.hosts import Host
from statlib.statistics.rewrites import Rewritten, rewrite

Name = Annotated[str, Field(min_length=1, max_length=400)]
Option = Annotated[str, Field(min_length=1, max_length=400)]
Options = Annotated[tuple[Option, ...], Field(max_length=200)]
Target = Annotated[int, Field(ge=1, le=1_000)]

_Element = TypeVar("_Element", Stage, Question, Search)


class Edit(BaseModel):
    """One edit. ``apply`` yields the project's changed fields."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")

    def apply(self, context: Document) -> Mapping[str, Any]:
        return {name: _stored(value) for name, value in self.changed(Project.from_bson(context)).items()}

    def changed(self, project: Project) -> Mapping[str, Any]:
        raise NotImplementedError

    def barred_by(self) -> tuple[Mapping[str, Any], EditReason] | None:
        """A filter of studies that may not be there if this is to be allowed, and why not."""
        return None


class RenameProject(Edit):
    kind: Literal["RenameProject"] = "RenameProject"
    name: Name

    def changed(self, project: Project) -> Mapping[str, Any]:
        return {"Name": self.name}


class AddStage(Edit):
    kind: Literal["AddStage"] = "AddStage"
    stage: UUID
    name: Name
    stage_kind: StageKind
    target: Target = 2

    def changed(self, project: Project) -> Mapping[str, Any]:
        _require_new(project.stages, self.stage)
        added = Stage(id=self.stage, name=self.name, kind=self.stage_kind, session_count_target=self.target)
        return {"Stages": (*project.stages, added)}


class RenameStage(Edit):
    kind: Literal["RenameStage"] = "RenameStage"
    stage: UUID
    name: Name

    def changed(self, project: Project) -> Mapping[str, Any]:
        return {"Stages": _with(project.stages, _stage(project, self.stage), name=self.name)}


class SetTarget(Edit):
    """How many candidate sessions a study needs on the stage."""

    kind: Literal["SetTarget"] = "SetTarget"
    stage: UUID
    target: Target

    def changed(self, project: Project) -> Mapping[str, Any]:
        return {"Stages": _with(project.stages, _stage(project, self.stage), session_count_target=self.target)}


class RemoveStage(Edit):
    """With its questions, which nobody has answered: no session was ever saved there."""

    kind: Literal["RemoveStage"] = "RemoveStage"
    stage: UUID

    def changed(self, project: Project) -> Mapping[str, Any]:
        gone = _stage(project, self.stage)
        return {
            "Stages": tuple(stage for stage in project.stages if stage is not gone),
            "Questions": tuple(question for question in project.questions if question.stage_id != gone.id),
        }

    def barred_by(self) -> tuple[Mapping[str, Any], EditReason]:
        used = {"$or": [{"Sessions.StageId": self.stage}, {"SlotReservations.StageId": self.stage}]}
        return used, EditReason.StageInUse


class Join(Edit):
    """``at`` is the time of the edit if it is not given."""

    kind: Literal["Join"] = "Join"
    investigator: UUID
    name: Annotated[str, Field(max_length=400)] = ""
    at: datetime | None = None

    def changed(self, project: Project) -> Mapping[str, Any]:
        if any(member.investigator_id == self.investigator for member in project.memberships):
            raise Refusal(EditReason.AlreadyThere, f"investigator {self.investigator}")
        if self.at is None:
            raise ValueError("the time of joining is filled in before the edit is applied")
        joined = Membership(investigator_id=self.investigator, joined_at_utc=self.at, name=self.name)
        return {"Memberships": (*project.memberships, joined)}


class Leave(Edit):
    """What they decided and annotated stays, and counts."""

    kind: Literal["Leave"] = "Leave"
    investigator: UUID

    def changed(self, project: Project) -> Mapping[str, Any]:
        left = tuple(member for member in project.memberships if member.investigator_id != self.investigator)
        if len(left) == len(project.memberships):
            raise Refusal(EditReason.NotAMember, f"investigator {self.investigator}")
        return {"Memberships": left}


class AddQuestion(Edit):
    kind: Literal["AddQuestion"] = "AddQuestion"
    question: UUID
    stage: UUID
    text: Name
    answer: AnswerKind
    options: Options = ()

    def changed(self, project: Project) -> Mapping[str, Any]:
        if _stage(project, self.stage).kind is not StageKind.ANNOTATION:
            raise Refusal(ReviewReason.NotAnnotationStage, f"stage {self.stage}")
        _require_new(project.questions, self.question)
        options = _distinct(self.options, self.answer)
        added = Question(id=self.question, stage_id=self.stage, text=self.text, answer=self.answer, options=options)
        return {"Questions": (*project.questions, added)}


class RewordQuestion(Edit):
    """The text that reviewers read; what they answered stays as it was counted."""

    kind: Literal["RewordQuestion"] = "RewordQuestion"
    question: UUID
    text: Name

    def changed(self, project: Project) -> Mapping[str, Any]:
        return {"Questions": _with(project.questions, _question(project, self.question), text=self.text)}


class RemoveQuestion(Edit):
    kind: Literal["RemoveQuestion"] = "RemoveQuestion"
    question: UUID

    def changed(self, project: Project) -> Mapping[str, Any]:
        gone = _question(project, self.question)
        return {"Questions": tuple(question for question in project.questions if question is not gone)}

    def barred_by(self) -> tuple[Mapping[str, Any], EditReason]:
        return {"Sessions.Answers.QuestionId": self.question}, EditReason.QuestionAnswered


class RenameSearch(Edit):
    kind: Literal["RenameSearch"] = "RenameSearch"
    search: UUID
    name: Name

    def changed(self, project: Project) -> Mapping[str, Any]:
        found = _one(project.searches, self.search, EditReason.SearchUnknown)
        return {"Searches": _with(project.searches, found, name=self.name)}


class SetThreshold(Edit):
    """When screenings of a study suffice. Every study's inclusion is recalculated with it."""

    min_screenings: Annotated[int, Field(ge=1, le=1_000)]
    agreement_ratio: Annotated[float, Field(gt=0.5, le=1.0)]

    def changed(self, project: Project) -> Mapping[str, Any]:
        chosen = {"min_screenings": self.min_screenings, "agreement_ratio": self.agreement_ratio}
        return {"AgreementThreshold": project.agreement_threshold.model_copy(update=chosen)}


class Renaming(BaseModel):
    """An option's old name, and the option that it becomes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    old: Option
    new: Option


class SetOptions(Edit):
    """The options of a choice. ``renamed``: answers are renamed with them.

    An option that is neither renamed nor kept is dropped, which is refused once it was answered.
    """

    question: UUID
    options: Options
    renamed: Annotated[tuple[Renaming, ...], Field(max_length=200)] = ()

    def changed(self, project: Project) -> Mapping[str, Any]:
        question = _question(project, self.question)
        options, renamed = _distinct(self.options, question.answer), self.normal_renamed
        if len(renamed) < len(self.renamed):
            raise Refusal(EditReason.OptionsInvalid, "an option is renamed twice")
        if again := sorted(renamed.keys() & set(options)):
            raise Refusal(EditReason.NameReused, ", ".join(again))
        if unknown := sorted(set(renamed.values()).difference(options)):
            raise Refusal(EditReason.OptionsInvalid, f"no options are: {', '.join(unknown)}")
        old = {_normal(option) for option in question.options}
        if strangers := sorted(name for name, new in renamed.items() if name not in old and new not in old):
            raise Refusal(EditReason.OptionsInvalid, f"no options were: {', '.join(strangers)}")
        return {"Questions": _with(project.questions, question, options=options)}

    @property
    def normal_renamed(self) -> dict[str, str]:
        return {_normal(one.old): _normal(one.new) for one in self.renamed}

    def barred_by(self) -> tuple[Mapping[str, Any], EditReason]:
        kept = sorted({*map(_normal, self.options), *self.normal_renamed})
        dropped = {"QuestionId": self.question, "Key": {"$nin": [*kept, None]}}
        return {"Sessions.Answers": {"$elemMatch": dropped}}, EditReason.OptionAnswered


AnyEdit = Annotated[
    RenameProject
    | AddStage
    | RenameStage
    | SetTarget
    | RemoveStage
    | Join
    | Leave
    | AddQuestion
    | RewordQuestion
    | RemoveQuestion
    | RenameSearch,
    Field(discriminator="kind"),
]
"""The edits that are one transaction each."""


def edit_project(host: Host, project: UUID, change: Edit, *, action: Action | None = None) -> Edited:
    """One edit in one transaction, with what it stales.

    Refuses ProjectNotFound, GateSkew, Contended, CommitOutcomeUnknown; AlreadyThere, NotAMember, StageUnknown,
    NotAnnotationStage, QuestionUnknown, SearchUnknown, OptionsInvalid, StageInUse, QuestionAnswered.
    """
    if isinstance(change, Join) and change.at is None:
        change = change.model_copy(update={"at": server_time(host.mongo)})
    return edit(host, REVIEW, project, change, action=action, require=_allowed(host.mongo, project, change))


def set_threshold(host: Host, project: UUID, change: SetThreshold) -> Rewritten:
    """The project's threshold, and every study's ``InclusionInfo`` under it, while the source is hidden.

    Saves go on meanwhile. The threshold that holds already may be set again: that recalculates, and stales nothing.
    A crash leaves the source hidden until it is completed, by repeating this or by settling the fence.
    """
    intent = change.model_dump(mode="json", by_alias=True)
    return rewrite(host, REVIEW, project, FenceKind.INCLUSION_RECALCULATION, intent=intent, change=change)


def set_options(host: Host, project: UUID, change: SetOptions) -> Rewritten:
    """A choice's options, and stored answers under their new names, while the source is hidden.

    Refuses QuestionUnknown, OptionsInvalid, NameReused, OptionAnswered. Otherwise as ``set_threshold``.
    """
    renamed = [{"old": old, "new": new} for old, new in change.normal_renamed.items()]
    intent = {"question": str(change.question), "options": list(change.options), "renamed": renamed}
    return rewrite(
        host,
        REVIEW,
        project,
        FenceKind.DEFINITION_REWRITE,
        intent=intent,
        change=change,
        families=frozenset({question_answers.NAME}),
        require=_allowed(host.mongo, project, change),
    )


def _allowed(mongo: Mongo, project: UUID, change: Edit) -> Callable[[ClientSession], None]:
    """That no study bars the edit, looked at in its own transaction. A save that would bar it meets its clocks."""

    def look(session: ClientSession) -> None:
        if (barred := change.barred_by()) is None:
            return
        wanted, reason = barred
        found = mongo.collection(STUDIES).find_one({"ProjectId": project, **wanted}, {"_id": 1}, session=session)
        if found is not None:
            raise Refusal(reason, f"study {found['_id']}")

    return look


def _stage(project: Project, stage: UUID) -> Stage:
    return _one(project.stages, stage, ReviewReason.StageUnknown)


def _question(project: Project, question: UUID) -> Question:
    return _one(project.questions, question, EditReason.QuestionUnknown)


def _one(elements: Iterable[_Element], wanted: UUID, unknown: EditReason | ReviewReason) -> _Element:
    for element in elements:
        if element.id == wanted:
            return element
    raise Refusal(unknown, str(wanted))


def _require_new(elements: Iterable[Stage | Question], new: UUID) -> None:
    if any(element.id == new for element in elements):
        raise Refusal(EditReason.AlreadyThere, str(new))


def _with(elements: Iterable[_Element], one: _Element, **fields: Any) -> tuple[_Element, ...]:
    return tuple(element.model_copy(update=fields) if element is one else element for element in elements)


def _distinct(options: Iterable[str], answer: AnswerKind) -> tuple[str, ...]:
    named = tuple(map(_normal, options))
    if (answer is AnswerKind.CHOICE) != bool(named) or len(set(named)) != len(named):
        raise Refusal(EditReason.OptionsInvalid, f"{answer.value}: {', '.join(named) or 'none'}")
    return named


def _normal(option: str) -> str:
    return normalize("NFC", option)


def _stored(value: Any) -> Any:
    """As the database gives it back, so that what is there already is seen to be the same."""
    if isinstance(value, Stored):
        return _stored(value.to_bson())
    if isinstance(value, Mapping):
        return {name: _stored(one) for name, one in value.items()}
    return [_stored(one) for one in value] if isinstance(value, tuple | list) else value
