"""The routes of the fold: its index, its mode in a project, and how it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from statlib.admin.actions import in_one_transaction, in_several_transactions
from statlib.admin.asking import Asked, RequestId, TheRequest, plain
from statlib.admin.fold_wire import FoldControl, FoldRequest, FoldStanding, IndexStanding
from statlib.admin.routes import ADMINISTRATORS, PREFIX, READERS
from statlib.admin.rules import Rules
from statlib.passes.audit import Action
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import ProjectControl
from statlib.statistics.fold_modes import disable_fold, enable_fold, reset_fold
from statlib.statistics.fold_status import fold_status
from statlib.statistics.hosts import Host
from statlib.statistics.pending_index import PendingIndex, build_pending_index, index_state
from statlib.statistics.reasons import OperateReason, ServeReason

_CONTROLLED = (OperateReason.ProjectNotFound, OperateReason.ControlMissing)
_FOLDABLE = (
    OperateReason.FoldCoverageIncomplete,
    OperateReason.PendingIndexMissing,
    OperateReason.FoldFleetUnsupported,
)

rules = Rules()


@rules.route(
    "POST",
    f"{PREFIX}/fold/pending-index",
    needs=ADMINISTRATORS,
    answers=IndexStanding,
    refuses=(OperateReason.PendingIndexConflict,),
    long=True,
)
def post_pending_index(asked: FoldRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """Build the index of pending entries. It scans the whole source collection: not at a busy hour."""
    action = at.action("fold/pending-index", request_id, asked)

    def operation() -> Mapping[str, Any]:
        return plain(IndexStanding.of(build_pending_index(at.mongo, at.catalogue)))

    return in_several_transactions(at.mongo, at.operations, action, at.connection, operation)


@rules.route("GET", f"{PREFIX}/fold/pending-index", needs=READERS, answers=IndexStanding)
def get_pending_index(at: TheRequest) -> IndexStanding:
    """Whether the index of pending entries is there."""
    return IndexStanding.of(PendingIndex(index_state(at.mongo, at.catalogue)))


@rules.route(
    "GET",
    f"{PREFIX}/{{project}}/fold",
    needs=READERS,
    answers=FoldStanding,
    refuses=(OperateReason.ControlMissing,),
)
def get_fold(project: UUID, at: TheRequest) -> FoldStanding:
    """The project's fold mode, what is pending, the hosts and workers that fold, quarantine and ledger."""
    return FoldStanding.of(fold_status(at.host, at.catalogue, project))


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/fold/enable",
    needs=ADMINISTRATORS,
    answers=FoldControl,
    refuses=(
        *_CONTROLLED,
        OperateReason.FoldDisabling,
        OperateReason.SettingsExclude,
        *_FOLDABLE,
        ServeReason.VersionIncompatible,
    ),
)
def post_fold_enable(project: UUID, asked: FoldRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """Let the project's saves fold. It is followed by a grace before anything is rebuilt."""
    return _turned(enable_fold, project, asked, at, request_id)


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/fold/disable",
    needs=ADMINISTRATORS,
    answers=FoldControl,
    refuses=_CONTROLLED,
)
def post_fold_disable(project: UUID, asked: FoldRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """Begin to end the project's fold mode; the fold worker ends it once nothing is pending."""
    return _turned(disable_fold, project, asked, at, request_id)


@rules.route(
    "POST",
    f"{PREFIX}/{{project}}/fold/reset",
    needs=ADMINISTRATORS,
    answers=FoldControl,
    refuses=(*_CONTROLLED, *_FOLDABLE),
)
def post_fold_reset(project: UUID, asked: FoldRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """Outdate everything that is stored of the project, and renew its tripwire; its fold mode stays."""
    return _turned(reset_fold, project, asked, at, request_id)


def _turned(
    turn: Callable[[Host, AnyCatalogue, UUID, Action], ProjectControl],
    project: UUID,
    asked: FoldRequest,
    at: Asked,
    request_id: str,
) -> Mapping[str, Any]:
    action = at.action(project, request_id, asked)
    return in_one_transaction(
        at.mongo, action, lambda: plain(FoldControl.of(turn(at.host, at.catalogue, project, action)))
    )
