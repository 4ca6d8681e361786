"""The routes of edits, of operations over many studies, and of the fences that these hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any
from uuid import UUID

from fastapi import Body

from statlib.admin import edit_wire as wire
from statlib.admin.actions import in_one_transaction, in_several_transactions
from statlib.admin.asking import Asked, RequestId, TheRequest
from statlib.admin.principals import Capability
from statlib.admin.rules import Rules
from statlib.kernel.refusals import Reason
from statlib.passes.actions import Action
from statlib.review import bulk, edits, searches
from statlib.review.documents import Search, Study
from statlib.review.edit_reasons import EditReason
from statlib.review.reasons import ReviewReason
from statlib.statistics.documents import FenceKind
from statlib.statistics.fences import as_wire, release_interrupted, standing
from statlib.statistics.modes import set_tracking_mode
from statlib.statistics.reasons import FenceReason, OperateReason, SaveReason, ServeReason
from statlib.statistics.rewrites import complete

PREFIX = "/api/admin/project-statistics"
READERS = (Capability.AUDITOR, Capability.APPLICATION_ADMINISTRATOR)
ADMINISTRATORS = (Capability.APPLICATION_ADMINISTRATOR,)

_EDIT_REFUSES: tuple[Reason, ...] = (OperateReason.ProjectNotFound, SaveReason.GateSkew)
_FENCED: tuple[Reason, ...] = (*_EDIT_REFUSES, FenceReason.FenceHeld)
_REWRITES: tuple[Reason, ...] = (*_FENCED, ServeReason.SourceVisibilityFenced)

rules = Rules()


@rules.route("PUT", f"{PREFIX}/tracking-mode", needs=ADMINISTRATORS, answers=wire.Tracking)
def put_tracking_mode(asked: wire.TrackingModeRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """Switch whether reservations count towards allocation, fleet-wide. Every row is outdated by a switch."""
    action = at.action("fleet", request_id, asked)

    def operation() -> Mapping[str, Any]:
        after = set_tracking_mode(at.mongo, asked.mode, action)
        switched = wire.Tracking(
            reviewer_tracking_mode=after.reviewer_tracking_mode,
            reviewer_tracking_epoch=after.reviewer_tracking_epoch,
        )
        return switched.model_dump(mode="json", by_alias=True)

    return in_one_transaction(at.mongo, action, operation)


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/edits",
    needs=ADMINISTRATORS,
    answers=wire.Edited,
    refuses=(
        *_EDIT_REFUSES,
        EditReason.AlreadyThere,
        EditReason.NotAMember,
        EditReason.QuestionUnknown,
        EditReason.SearchUnknown,
        EditReason.OptionsInvalid,
        EditReason.StageInUse,
        EditReason.QuestionAnswered,
        ReviewReason.StageUnknown,
        ReviewReason.NotAnnotationStage,
    ),
)
def post_edit(
    project: UUID, asked: Annotated[edits.AnyEdit, Body()], at: TheRequest, request_id: RequestId
) -> Mapping[str, Any]:
    """Edit the project, and stale what was counted under what the edit changes."""
    action = _action(at, project, request_id, asked)
    return in_one_transaction(
        at.mongo, action, lambda: edits.edit_project(at.host, project, asked, action=action).as_wire()
    )


@rules.route(
    "PUT",
    f"{PREFIX}/{{project}}/agreement-threshold",
    needs=ADMINISTRATORS,
    answers=wire.Rewritten,
    refuses=_REWRITES,
    long=True,
)
def put_agreement_threshold(
    project: UUID, asked: edits.SetThreshold, at: TheRequest, request_id: RequestId
) -> Mapping[str, Any]:
    """Set the threshold and recalculate every study's inclusion. Readers get 503 meanwhile."""
    action = _action(at, project, request_id, asked)
    return _long(at, action, lambda: edits.set_threshold(at.host, project, asked).as_wire())


@rules.route(
    "PUT",
    f"{PREFIX}/{{project}}/question-options",
    needs=ADMINISTRATORS,
    answers=wire.Rewritten,
    refuses=(
        *_REWRITES,
        EditReason.QuestionUnknown,
        EditReason.OptionsInvalid,
        EditReason.NameReused,
        EditReason.OptionAnswered,
    ),
    long=True,
)
def put_question_options(
    project: UUID, asked: edits.SetOptions, at: TheRequest, request_id: RequestId
) -> Mapping[str, Any]:
    """Set the options of a choice, and rename stored answers with them. Readers get 503 meanwhile."""
    action = _action(at, project, request_id, asked)
    return _long(at, action, lambda: edits.set_options(at.host, project, asked).as_wire())


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/decisions",
    needs=ADMINISTRATORS,
    answers=wire.DecisionsApplied,
    refuses=(*_FENCED, EditReason.TooManyRows),
    long=True,
)
def post_decisions(
    project: UUID, asked: wire.DecisionsRequest, at: TheRequest, request_id: RequestId
) -> Mapping[str, Any]:
    """Apply many decisions at once; a row that cannot be applied is named, and the others go on."""
    action = at.action(project, request_id, asked)
    rows = [bulk.DecisionRow(row.study, row.investigator, row.decision, row.at) for row in asked.rows]
    return _long(at, action, lambda: bulk.update_studies(at.host, project, rows).as_wire())


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/searches",
    needs=ADMINISTRATORS,
    answers=wire.Imported,
    refuses=(*_FENCED, EditReason.AlreadyThere, EditReason.SearchBusy),
    long=True,
)
def post_search(project: UUID, asked: wire.SearchRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """Import a search with its studies, whole or piece by piece."""
    action = at.action(project, request_id, asked)
    search = Search(id=asked.search, name=asked.name, source=asked.source)
    studies = [_study(project, line) for line in asked.studies]
    return _long(
        at,
        action,
        lambda: searches.import_search(at.host, project, search, studies, complete=asked.complete).as_wire(),
    )


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/searches/{{search}}/removal",
    needs=ADMINISTRATORS,
    answers=wire.Removed,
    refuses=(*_FENCED, EditReason.SearchUnknown, EditReason.SearchBusy),
    long=True,
)
def post_search_removal(
    project: UUID, search: UUID, asked: wire.RemovalRequest, at: TheRequest, request_id: RequestId
) -> Mapping[str, Any]:
    """Delete a search with its studies, and what reviewers did on them."""
    del asked
    action = at.action(project, request_id, {"search": str(search)})
    return _long(at, action, lambda: searches.remove_search(at.host, project, search).as_wire())


@rules.route("GET", f"{PREFIX}/{{project}}/fences", needs=READERS, answers=list[wire.Fence])
def get_fences(project: UUID, at: TheRequest) -> list[wire.Fence]:
    """Operations in force, and which of them were interrupted."""
    return [wire.Fence.model_validate(as_wire(one)) for one in standing(at.mongo, project)]


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/fences/{{kind}}/release",
    needs=ADMINISTRATORS,
    answers=wire.Released,
    refuses=(
        FenceReason.FenceUnknown,
        FenceReason.FenceHeld,
        FenceReason.FenceMustComplete,
        OperateReason.ProjectNotFound,
    ),
    long=True,
)
def post_fence_release(
    project: UUID, kind: FenceKind, asked: wire.ReleaseRequest, at: TheRequest, request_id: RequestId
) -> Mapping[str, Any]:
    """Settle an interrupted operation: complete one that hides the source, give up any other."""
    del asked
    action = at.action(project, request_id, {"kind": kind.value})

    def operation() -> Mapping[str, Any]:
        if kind in at.catalogue.rewrites:
            done = complete(at.host, at.catalogue, project, kind)
            released = wire.Released(kind=kind, completed=True, visited=done.visited, changed=done.changed)
        else:
            release_interrupted(at.mongo, project, kind)
            released = wire.Released(kind=kind, completed=False, visited=0, changed=0)
        return released.model_dump(mode="json", by_alias=True)

    return _long(at, action, operation)


def _action(at: Asked, project: UUID, request_id: str, asked: edits.Edit) -> Action:
    return at.action(project, request_id, asked.model_dump(mode="json", by_alias=True))


def _long(at: Asked, action: Action, operation: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    return in_several_transactions(at.mongo, at.operations, action, at.connection, operation)


def _study(project: UUID, line: wire.StudyLine) -> Study:
    return Study(id=line.id, project_id=project, title=line.title, **line.fields)
