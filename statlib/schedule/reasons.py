"""Why a schedule was not accepted, or not run."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind


class ScheduleReason(Reason):
    """Refusals of schedule files, of schedulers and of jobs."""

    ScheduleFileUnreadable = (
        RefusalKind.INVALID,
        "Give a TOML file of [[schedule]] entries; docs/schedules.md shows one.",
    )
    ScheduleInvalid = (RefusalKind.INVALID, "Correct the named entry of the schedule file; nothing was started.")
    ScheduleDuplicate = (RefusalKind.INVALID, "Give every schedule a name of its own; history is kept under it.")
    CronInvalid = (
        RefusalKind.INVALID,
        "Write second minute hour day-of-month month day-of-week [year] as Quartz does, one day field being `?`.",
    )
    JobUnknown = (RefusalKind.NOT_FOUND, "Name a job that is installed as an entry point of the group statlib.jobs.")
    ScheduleUnknown = (RefusalKind.NOT_FOUND, "`statlib schedule list` names the schedules of the file.")
    NothingScheduled = (RefusalKind.DISABLED, "Set enabled = true on a schedule of the file.")
    ScheduleSuperseded = (
        RefusalKind.CONFLICT,
        "Another host registered another definition since: give both hosts the same file and start this one again.",
    )
    SlotTaken = (RefusalKind.CONTENTION, "Another host has this slot; its history says how it ended.")
    RunInterrupted = (RefusalKind.UNRESOLVED, "See the run's report and the target's own state, then run it by hand.")
