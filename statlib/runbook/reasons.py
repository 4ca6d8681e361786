"""Why a runbook is not run: the closed list of refusals of this floor."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind


class RunbookReason(Reason):
    """Each is decided before anything is acted upon."""

    RunbookUnknown = (RefusalKind.NOT_FOUND, "`statlib runbook list` names the runbooks of this installation.")
    NotebookMalformed = (RefusalKind.INVALID, "Give the notebook the fixed shape that docs/runbooks.md describes.")
    ParameterUnknown = (RefusalKind.INVALID, "`statlib runbook show` and its name list the parameters of a runbook.")
    ParameterMistyped = (RefusalKind.INVALID, "`statlib runbook show` and its name give the type and bounds of each.")
    ParameterMissing = (RefusalKind.INVALID, "Give each named parameter a value; it has no default.")
    ParameterSecret = (
        RefusalKind.INVALID,
        "Put credentials into the settings, which are masked; parameters are stored with the report.",
    )
    ParameterFileUnreadable = (RefusalKind.INVALID, "Give a TOML file of `name = value` lines.")
    ConfirmationMissing = (RefusalKind.INVALID, "To act, repeat the name of the deployment or project in `confirm`.")
    RolloutUnconfirmed = (
        RefusalKind.INVALID,
        "See that every rollout has ended and no process of an earlier release is alive; then give "
        "rollout_complete=true.",
    )
    QuietHourUnconfirmed = (
        RefusalKind.INVALID,
        "Agree on a quiet hour, since the build scans every study; then name it in `quiet_hour`.",
    )
    RunNotFound = (RefusalKind.NOT_FOUND, "Give the id of a run in this archive that has not been sealed.")
    RunDiffers = (RefusalKind.CONFLICT, "Resume with the parameters of that run, or start a new one.")
    RunBusy = (RefusalKind.CONTENTION, "Wait for the process that holds the run, or stop it.")
    AnchorMissing = (
        RefusalKind.CONFLICT,
        "Make the boundary reachable, or set evidence.anchor to wanted: the report then says that it is not anchored.",
    )
    NotebookBehind = (
        RefusalKind.CONFLICT,
        "Save the notebook with every cell executed and run the last cell again, or close with as_it_is=True.",
    )
