"""Why the statistics engine says no."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind

_K = RefusalKind


class SaveReason(Reason):
    """Refusals of a save. All but StatisticsOperationUnresolved are a definite no: nothing was saved."""

    VersionStale = (_K.CONFLICT, "The document changed since it was opened: open it again and resubmit.")
    DigestMismatch = (_K.CONFLICT, "Another decision was already saved under this operation: open the document again.")
    StatisticsOperationUnresolved = (
        _K.UNRESOLVED,
        "It cannot be known whether this was saved: open the document, look, and resubmit if needed.",
    )
    AttemptsExhausted = (_K.CONTENTION, "Too many rivals at once: resubmit the same envelope.")
    GateSkew = (
        _K.DISABLED,
        "This host excludes a project that statistics are on for: align its statistics settings and restart it.",
    )
    SourceNotFound = (_K.NOT_FOUND, "Check the project and document ids.")
    HostNotRegistered = (_K.DISABLED, "Run it inside `with statlib.host(...)`.")


class ServeReason(Reason):
    """Why a bundle is not served from storage, in the order in which the gates are asked.

    Every gate falls back to the authoritative calculation, but the first: while the source itself is being rewritten
    no value would be right, and the read is refused.
    """

    SourceVisibilityFenced = (
        _K.CONTENTION,
        "The source is being rewritten: read again in a moment; `statlib fences list` shows by what.",
        503,
    )
    FleetDisabled = (_K.DISABLED, "Open the fleet mode when every host runs with the intended settings.")
    ProjectDisabled = (_K.DISABLED, "Open the project's narrow gate, then backfill.")
    NotAllowlisted = (_K.DISABLED, "Add the project to statistics.allowlist on every host and restart them.")
    AllowlistInconsistent = (_K.DISABLED, "Live hosts disagree about this project: give them all the same settings.")
    VersionIncompatible = (_K.CONFLICT, "Rows were written by another release: finish the rollout, then backfill.")
    FamilyDisabled = (_K.DISABLED, "Add the family to statistics.families on every host and restart them.")
    GuardNotFresh = (_K.DISABLED, "Backfill the family.")
    FenceActive = (
        _K.CONTENTION,
        "`statlib fences list` shows what is under way: backfill the family when it has ended.",
    )
    RowMissing = (_K.DISABLED, "Backfill the family: this scope has never been published.")
    RowNotFresh = (_K.DISABLED, "Backfill the family: this scope was invalidated.")
    RowEpochOutdated = (_K.DISABLED, "Backfill the family: its rows precede an opening or an invalidation.")
    RowVersionIncompatible = (_K.CONFLICT, "Backfill the family: its rows were calculated by another release.")
    ConfigurationChanged = (_K.CONFLICT, "Backfill the family: the project's configuration changed since.")
    TrackingModeChanged = (_K.CONFLICT, "Backfill the family: the reviewer-tracking mode was switched since.")
    PendingOverlayUnavailable = (
        _K.CONTENTION,
        "What saves left pending cannot be added to the rows: `statlib worker fold` takes it away.",
    )


class OperateReason(Reason):
    """Refusals of an operator's action on statistics. Nothing was changed."""

    ProjectNotFound = (_K.NOT_FOUND, "Check the project id; `statlib load` prints it.")
    ControlMissing = (_K.NOT_FOUND, "Open the project's narrow gate first.")
    FamilyUnknown = (_K.INVALID, "Name a registered family.")
    ScopeUnknown = (_K.INVALID, "Name a scope that the family declares for this project.")
    WriterGracePending = (_K.CONTENTION, "A save begun before the opening may still land: try again after the grace.")
    PublicationRaceLost = (_K.CONTENTION, "Saves moved the clocks meanwhile: try again, best at a quiet moment.")
    PendingNotDrained = (
        _K.CONTENTION,
        "What was written meanwhile cannot be told from what is counted: try again, the fold takes it away first.",
    )
    RebuildStarved = (_K.CONTENTION, "Saves come faster than the family calculates: backfill when they pause.")
    SettingsExclude = (_K.DISABLED, "Add the project and family to this host's settings and restart it.")
    GateClosed = (_K.DISABLED, "Open the fleet mode and the project's narrow gate first.")
    NotServedAfterwards = (_K.CONFLICT, "Something invalidated the family at once: run the backfill again.")
    PendingIndexMissing = (
        _K.CONFLICT,
        "Build it in a quiet hour (`statlib fold index build`); `statlib fold index show` tells when it is ready.",
    )
    PendingIndexConflict = (
        _K.CONFLICT,
        "Drop the other index of that name on the source collection, or with those keys, then build again.",
    )
    FoldFleetUnsupported = (
        _K.CONFLICT,
        "Have live hosts of both roles, all of this release with statistics.fold on, and run `statlib worker fold`.",
    )
    FoldCoverageIncomplete = (_K.CONFLICT, "Saves of this domain do not fold in this release.")
    FoldDisabling = (
        _K.CONTENTION,
        "Wait until it is Disabled: the fold worker ends it; `statlib fold status` shows what is left.",
    )
    AllowlistTooLarge = (_K.INVALID, "Keep statistics.allowlist to 1,000 projects per deployment.")


class LedgerReason(Reason):
    """Refusals of a pass that compacts a project's ledger. Nothing was changed."""

    LedgerMaintenanceDisabled = (
        _K.DISABLED,
        "Set statistics.ledger_maintenance on this host and restart it.",
    )
    RebuildActive = (_K.CONTENTION, "A backfill of the project is under way: compact again when it has ended.")
    PublicationOperationActive = (
        _K.CONTENTION,
        "`statlib fences list` shows what is under way: compact again when it has ended.",
    )
    PublicationGuardBusy = (
        _K.CONTENTION,
        "A family is fenced, or half published by a backfill that died: run its backfill, then compact again.",
    )
    PublicationGuardCapacity = (_K.CAPACITY, "The project has guards of families that no release ever had: report it.")
    SealCapacity = (
        _K.CAPACITY,
        "Seals that do not adjoin mean that the floor was moved by hand: keep the oldest elsewhere, then delete them.",
    )
    ConcurrentStatisticsWrite = (_K.CONTENTION, "Something else wrote at the same time: compact again.")


class FenceReason(Reason):
    """Refusals of an operation that would rewrite many source documents. Nothing was changed."""

    FenceHeld = (
        _K.CONTENTION,
        "One of its kind is under way: `statlib fences list` shows it; wait until it has ended.",
    )
    FenceUnknown = (_K.NOT_FOUND, "Nothing of that kind is under way: `statlib fences list` shows what is.")
    FenceMustComplete = (
        _K.CONFLICT,
        "Half-rewritten, the source is not right: complete it with `statlib fences release`.",
    )
