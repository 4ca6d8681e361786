"""The client's calls for the fold: its index, its mode in a project, and how it stands."""

from __future__ import annotations

from typing import Any, TypeVar
from uuid import UUID

from statlib.admin import fold_wire
from statlib.admin.wire import Request
from statlib.review.edits import Edit

T = TypeVar("T")


class FoldCalls:
    """Each is one request; ``request_id`` as everywhere."""

    def _get(self, path: str, type_: type[T], **query: Any) -> T:
        raise NotImplementedError

    def _send(
        self,
        method: str,
        path: str,
        asked: Request | Edit,
        type_: type[T],
        request_id: str | None,
        *,
        long: bool = False,
        patient: bool = False,
    ) -> T:
        raise NotImplementedError

    def pending_index(self) -> fold_wire.IndexStanding:
        return self._get("/fold/pending-index", fold_wire.IndexStanding)

    def build_pending_index(self, *, request_id: str | None = None) -> fold_wire.IndexStanding:
        """Build it if it is not there, and wait until it is ready."""
        asked = fold_wire.FoldRequest()
        return self._send("POST", "/fold/pending-index", asked, fold_wire.IndexStanding, request_id, long=True)

    def fold(self, project: UUID) -> fold_wire.FoldStanding:
        """How the project's fold stands."""
        return self._get(f"/{project}/fold", fold_wire.FoldStanding)

    def enable_fold(self, project: UUID, *, request_id: str | None = None) -> fold_wire.FoldControl:
        return self._turn_fold(project, "enable", request_id)

    def disable_fold(self, project: UUID, *, request_id: str | None = None) -> fold_wire.FoldControl:
        """Begin to end it: the fold worker does."""
        return self._turn_fold(project, "disable", request_id)

    def reset_fold(self, project: UUID, *, request_id: str | None = None) -> fold_wire.FoldControl:
        """Outdate everything that is stored of the project, and renew its tripwire."""
        return self._turn_fold(project, "reset", request_id)

    def _turn_fold(self, project: UUID, what: str, request_id: str | None) -> fold_wire.FoldControl:
        asked = fold_wire.FoldRequest()
        return self._send("POST", f"/{project}/fold/{what}", asked, fold_wire.FoldControl, request_id)
