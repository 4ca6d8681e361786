"""An operator's action and its records, whichever database keeps them.

Each system keeps its audit and its requests in its own database, in the transaction that makes the change. What is the
same everywhere is here: who asked for what under which request id, and what a boundary needs of the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from statlib.kernel.digests import digest
from statlib.kernel.refusals import Reason, Refusal, RefusalKind


class RequestReason(Reason):
    """Refusals of a repeated request."""

    RequestConflict = (RefusalKind.CONFLICT, "This request id was used for something else: use a new one.")


class Outcome(StrEnum):
    INTENDED = "Intended"  # work of several transactions was begun; its outcome follows, or it died
    ACCEPTED = "Accepted"
    COMPLETED = "Completed"  # it ran to its end, whatever it found
    COALESCED = "Coalesced"  # the same was being done already; nothing was done twice
    REPLAYED = "Replayed"  # accepted before; its first outcome was returned and nothing was done
    REJECTED = "Rejected"
    UNRESOLVED = "Unresolved"  # it cannot be known whether it was carried out
    FAILED = "Failed"  # an unexpected fault; the log has its correlation id


@dataclass(frozen=True, slots=True)
class Action:
    """Who does what to what, under which request id. ``payload``: JSON values that the request consists of.

    ``route`` is the route template of a request that came over HTTP, ``run`` the runbook's run that it belongs to.
    """

    principal: str
    authority: str
    action: str
    target: str
    request_id: str
    payload: Mapping[str, Any]
    route: str = ""
    run: str = ""

    @property
    def key(self) -> dict[str, str]:
        return {
            "Principal": self.principal,
            "Route": self.route or self.action,
            "Target": self.target,
            "RequestId": self.request_id,
        }

    @property
    def digest(self) -> str:
        return digest(dict(self.payload))


class Records(Protocol):
    """The audit and the remembered requests of one system."""

    def recall(self, action: Action) -> Mapping[str, Any] | None:
        """The outcome of this request if it was accepted before. Refuses RequestConflict if it said something else."""

    def note_replay(self, action: Action, earlier: Mapping[str, Any]) -> None:
        """Record that an accepted request came again."""

    def reject(self, action: Action, refusal: Refusal) -> None:
        """Record a refused action on its own: there is no change to commit it with."""

    def note_failure(self, action: Action, correlation: str) -> None:
        """Record that an action ended in an unexpected fault; what it did is for the log to tell."""
