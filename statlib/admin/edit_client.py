"""The client's calls for edits, operations over many studies, and fences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

from statlib.admin import edit_wire as wire
from statlib.admin.wire import Request
from statlib.review.edits import Edit, SetOptions, SetThreshold
from statlib.statistics.documents import FenceKind, TrackingMode

T = TypeVar("T")


class EditCalls:
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

    def set_tracking_mode(self, mode: TrackingMode, *, request_id: str | None = None) -> wire.Tracking:
        asked = wire.TrackingModeRequest(mode=mode)
        return self._send("PUT", "/tracking-mode", asked, wire.Tracking, request_id)

    def edit(self, project: UUID, edit: Edit, *, request_id: str | None = None) -> wire.Edited:
        """One edit of one transaction. Of a threshold or of options: the two calls below."""
        return self._send("POST", f"/{project}/edits", edit, wire.Edited, request_id)

    def set_threshold(self, project: UUID, edit: SetThreshold, *, request_id: str | None = None) -> wire.Rewritten:
        path = f"/{project}/agreement-threshold"
        return self._send("PUT", path, edit, wire.Rewritten, request_id, long=True)

    def set_options(self, project: UUID, edit: SetOptions, *, request_id: str | None = None) -> wire.Rewritten:
        path = f"/{project}/question-options"
        return self._send("PUT", path, edit, wire.Rewritten, request_id, long=True)

    def apply_decisions(
        self, project: UUID, rows: Sequence[wire.DecisionLine], *, request_id: str | None = None
    ) -> wire.DecisionsApplied:
        asked = wire.DecisionsRequest(rows=tuple(rows))
        return self._send("POST", f"/{project}/decisions", asked, wire.DecisionsApplied, request_id, long=True)

    def import_search(
        self, project: UUID, search: wire.SearchRequest, *, request_id: str | None = None
    ) -> wire.Imported:
        return self._send("POST", f"/{project}/searches", search, wire.Imported, request_id, long=True)

    def remove_search(self, project: UUID, search: UUID, *, request_id: str | None = None) -> wire.Removed:
        path = f"/{project}/searches/{search}/removal"
        return self._send("POST", path, wire.RemovalRequest(), wire.Removed, request_id, long=True)

    def fences(self, project: UUID) -> list[wire.Fence]:
        """Operations in force, and which of them were interrupted."""
        return self._get(f"/{project}/fences", list[wire.Fence])

    def release_fence(self, project: UUID, kind: FenceKind, *, request_id: str | None = None) -> wire.Released:
        path = f"/{project}/fences/{kind.value}/release"
        return self._send("POST", path, wire.ReleaseRequest(), wire.Released, request_id, long=True)
