"""Envelopes: what a caller holds from opening a document until its save is answered, however often it is delivered.

The operation id is fixed when the document is opened, ``<stream>:<expected revision>``, where a stream is one
actor's doings on one document (``screening:{study}:{screener}``). A redelivery resends the same envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from statlib.kernel.digests import digest

if TYPE_CHECKING:
    from statlib.statistics.sources import Loaded

DIGEST_SCHEMA = "statlib.submission.v1"


@dataclass(frozen=True, slots=True)
class Opening:
    """Which openings an envelope was minted under. ``project`` is None while the project has no control."""

    fleet: int
    project: int | None


@dataclass(frozen=True, slots=True)
class Envelope:
    """Identity of one submission. ``part``: which part of the document it is about, where there are several;
    ``siblings``: the actor's other streams on that part, whose later operations supersede this one as its own's do.

    ``fold_sequence`` is the document's count of folds when it was opened, by which a later version is known for the
    work of folds alone; None where nobody noted it. ``loaded`` is what opening read, and is not sent: a redelivery
    loads anew.
    """

    namespace: str
    stream: str
    project: UUID
    aggregate: UUID
    actor: UUID
    stage: UUID | None
    expected: int
    opening: Opening
    created_at: datetime
    part: UUID | None = None
    siblings: tuple[str, ...] = ()
    fold_sequence: int | None = None
    loaded: Loaded | None = field(default=None, compare=False, repr=False)

    @property
    def operation_id(self) -> str:
        return f"{self.stream}:{self.expected}"

    def digest(self, intent: Any) -> str:
        """Of what is submitted: no times and no revisions, so that an honest retry always has the same one."""
        return digest([DIGEST_SCHEMA, self.project, self.aggregate, self.actor, self.stage, intent])

    def to_wire(self) -> dict[str, Any]:
        """JSON values, for callers that keep an envelope across a request."""
        return {
            "namespace": self.namespace,
            "stream": self.stream,
            "project": str(self.project),
            "aggregate": str(self.aggregate),
            "actor": str(self.actor),
            "stage": str(self.stage) if self.stage else None,
            "expected": self.expected,
            "opening": [self.opening.fleet, self.opening.project],
            "createdAt": self.created_at.isoformat(),
            "part": str(self.part) if self.part else None,
            "siblings": list(self.siblings),
            "foldSequence": self.fold_sequence,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Envelope:
        fleet, project = wire["opening"]
        return cls(
            namespace=wire["namespace"],
            stream=wire["stream"],
            project=UUID(wire["project"]),
            aggregate=UUID(wire["aggregate"]),
            actor=UUID(wire["actor"]),
            stage=UUID(wire["stage"]) if wire["stage"] else None,
            expected=wire["expected"],
            opening=Opening(fleet, project),
            created_at=datetime.fromisoformat(wire["createdAt"]),
            part=UUID(wire["part"]) if wire.get("part") else None,
            siblings=tuple(wire.get("siblings", ())),
            fold_sequence=wire.get("foldSequence"),
        )

    def as_redelivered(self) -> Envelope:
        """The envelope as a second delivery brings it: without what opening had read."""
        return replace(self, loaded=None)
