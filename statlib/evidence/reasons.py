"""Why evidence was not accepted, or why a gate could not be measured."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind


class EvidenceReason(Reason):
    """The closed list of this floor; a gate that could not be measured carries one of these."""

    JournalDamaged = (
        RefusalKind.INVALID,
        "Keep the folder as it is and start a new run; a broken chain is never mended.",
    )
    RunIsClosed = (RefusalKind.CONFLICT, "Start a new run in a new folder; a closed journal takes no further entry.")
    RunNotClosed = (RefusalKind.CONFLICT, "Close every step and append RunClosed before sealing.")
    BundleIncomplete = (RefusalKind.CONFLICT, "Write the notebook and the report before sealing.")
    AlreadySealed = (RefusalKind.CONFLICT, "A sealed folder is never sealed again; start a new run.")
    CaptureMissing = (RefusalKind.NOT_FOUND, "Run again; the step that writes this capture did not.")
    CaptureMalformed = (
        RefusalKind.INVALID,
        "Correct the step that wrote it: the model in soak_captures gives the fields.",
    )
    CaptureIncomplete = (RefusalKind.INVALID, "Run again; the process that wrote this capture died before closing it.")
    NothingMeasured = (RefusalKind.INVALID, "Run longer, or with more load, so that there is something to measure.")
    KeyExists = (RefusalKind.CONFLICT, "Name another file: a key that signed before is never overwritten.")
    KeyUnusable = (RefusalKind.INVALID, "Make one with `statlib evidence keygen`; it says which file is which half.")
    TooFewSamples = (RefusalKind.INVALID, "Sample more often or run longer.")
