"""Why a backfill was not moved."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind


class BackfillReason(Reason):
    """Refusals of definitions, controls, claims and batches."""

    BackfillUnknown = (RefusalKind.NOT_FOUND, "List the backfills: the stable id must be one of them.")
    BackfillConflict = (RefusalKind.CONFLICT, "Look at the current state: the action does not apply to it.")
    GenerationConflict = (RefusalKind.CONFLICT, "Somebody changed it meanwhile: look at it anew, then decide.")
    DefinitionUnknown = (
        RefusalKind.CONFLICT,
        "Ask a process whose release knows this stable id; this one must not touch it.",
    )
    StateUninterpretable = (
        RefusalKind.CONFLICT,
        "Its stored positions do not fit this release's definition: other behaviour needs a new stable id.",
    )
    DefinitionInvalid = (RefusalKind.INVALID, "Correct the definition as the message says.")
    ClaimLost = (RefusalKind.CONTENTION, "The claim was paused, expired or taken over: nothing was committed.")
    ClaimTooShort = (
        RefusalKind.INVALID,
        "Raise backfills.claim_ttl_s, or let the definition's transactions be shorter.",
    )
    BoundExceeded = (
        RefusalKind.CAPACITY,
        "The definition selected or changed more than it declares: correct it under a new stable id.",
    )
    PrerequisiteUnmet = (RefusalKind.CONFLICT, "Provide what the definition requires, then retry it.")
