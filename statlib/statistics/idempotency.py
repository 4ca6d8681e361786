"""May this delivery be written? One pure decision table for first deliveries, retries and redeliveries.

Three facts make it short:

* a document at exactly the expected revision, or moved on by folds alone, has never taken this operation, since
  taking it moves the revision, and not by a fold;
* an operation that left evidence (a receipt, or what will become one) is found by it, whatever has happened since;
* where no evidence can be relied on (source only, a closed gate, another opening, a save that would leave none, a
  retired or unrecorded range), a newer document proves nothing, and the operation is never written onto it: that would
  repeat it, or undo what came between.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from statlib.statistics.arms import Arm


class Evidence(StrEnum):
    """What the trail says of an operation."""

    NONE = "None"  # this operation left none, and no later one of its actor did
    SAME = "Same"  # it committed, with this digest
    OTHER = "Other"  # it committed, with another digest
    SUPERSEDED = "Superseded"  # it did not commit, and a later one of the same actor on this document did
    RETIRED = "Retired"  # receipts up to its revision were reclaimed: nothing can be read from their absence
    HIDDEN = "Hidden"  # it may be among what was kept without a name, or its record cannot be read


class Position(StrEnum):
    """Where the loaded document stands against the envelope."""

    EXPECTED = "Expected"  # as it was opened, but for what folds did
    NEWER = "Newer"
    OLDER = "Older"  # only after a restore


class Answer(StrEnum):
    WRITE = "Write"
    SAVED = "Saved"
    DIGEST_MISMATCH = "DigestMismatch"
    VERSION_STALE = "VersionStale"
    UNRESOLVED = "Unresolved"


@dataclass(frozen=True, slots=True)
class Situation:
    """``evidenced``: since the envelope was minted, every committed save of it has left evidence, because the
    project's gate has been open and under the same opening all the while, and because it is none that a fold arm would
    have saved without. ``unknown``: an earlier write of this delivery has an unknown result. ``image_matches``: that
    write left no evidence, and the stored document is exactly what it would have left, one revision on."""

    arm: Arm
    position: Position
    evidenced: bool
    evidence: Evidence
    unknown: bool = False
    image_matches: bool = False


def decide(at: Situation) -> Answer:
    """The table. Never answers SAVED without proof, and WRITE onto a newer document only where a repeat would show."""
    if at.position is Position.EXPECTED:
        return Answer.WRITE
    if at.evidence is Evidence.SAME:
        return Answer.SAVED
    if at.evidence is Evidence.OTHER:
        return Answer.DIGEST_MISMATCH
    if at.unknown and at.image_matches:
        return Answer.SAVED
    if at.position is Position.OLDER or at.evidence in {Evidence.RETIRED, Evidence.HIDDEN}:
        return Answer.UNRESOLVED
    if at.arm is Arm.SOURCE_ONLY or not at.evidenced:
        return Answer.UNRESOLVED if at.unknown else Answer.VERSION_STALE
    if at.evidence is Evidence.SUPERSEDED:
        return Answer.VERSION_STALE
    return Answer.WRITE
