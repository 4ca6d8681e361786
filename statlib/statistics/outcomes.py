"""What a save answers, and what its failed attempts failed of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from statlib.statistics.arms import Arm
from statlib.statistics.catalogue import Document
from statlib.statistics.envelopes import Envelope


class Cause(StrEnum):
    """Why an attempt did not save. ``SOURCE`` conflicts exist without statistics; ``STATISTICS`` and ``FOLD`` ones do
    not, and ``FOLD`` ones are not charged to the save."""

    SOURCE = "SourceConflict"
    STATISTICS = "StatisticsConflict"
    FOLD = "FoldConflict"
    LATE = "PreWriteDeadline"
    UNKNOWN = "UnknownResult"


@dataclass(frozen=True, slots=True)
class FurtherOperation:
    """What the same write does in another namespace. ``families``: those whose moves belong to it and not to the
    submission's own operation. It is told apart by its id, as that one is, and never delivered by itself."""

    namespace: str
    operation_id: str
    families: frozenset[str]


@dataclass(frozen=True, slots=True)
class SourceWrite:
    """What a writer changes: top-level fields of the source document with their new BSON values.

    ``further`` are operations in namespaces other than the envelope's, at most one in each.
    """

    fields: Mapping[str, Any]
    further: tuple[FurtherOperation, ...] = ()


class SourceChange(Protocol):
    """One submission of a domain writer."""

    @property
    def intent(self) -> Any:
        """What is submitted, as JSON values: part of the digest."""
        ...

    def apply(self, source: Document, context: Document, envelope: Envelope) -> SourceWrite:
        """The write that realises the intent on this state of the source. Pure; may refuse, typed."""
        ...


@dataclass(frozen=True, slots=True)
class Saved:
    """A committed save: the document is, or was, at ``revision_after`` by it. ``duplicate``: an earlier delivery had
    committed it. ``leaves_receipt``: its receipt can be counted, in the fold arm once it is folded, and one for each of
    ``further``, the operations that the same write did in other namespaces; None where the save was found committed,
    which does not tell them. A save that overflowed its document's pending set, or that changed nothing counted in the
    fold arm, leaves none."""

    operation_id: str
    namespace: str
    arm: Arm
    duplicate: bool
    leaves_receipt: bool
    revision_after: int
    failed_attempts: tuple[Cause, ...]
    further: tuple[FurtherOperation, ...] | None = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """What one attempt committed. ``leaves_receipt``: as of a save."""

    revision_after: int
    further: tuple[FurtherOperation, ...] = ()
    leaves_receipt: bool = False
