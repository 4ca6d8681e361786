"""``statlib schedule``: run the schedules of the file, and see what became of them."""

from __future__ import annotations

from pathlib import Path

import click

from statlib.cli.output import answer, json_option, wants_json
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings, load_settings
from statlib.mongo.connection import connected
from statlib.schedule.definitions import Schedule, read_schedules, schedule_file
from statlib.schedule.documents import Slot
from statlib.schedule.history import Past, coming, past
from statlib.schedule.reasons import ScheduleReason

_file_option = click.option(
    "-f", "file", type=click.Path(path_type=Path, dir_okay=False), help="The schedule file; else the setting's."
)


@click.group()
def schedule() -> None:
    """Run jobs and runbooks in their slots, once across any number of hosts."""


@schedule.command()
@_file_option
@click.option("--once", is_flag=True, help="Look once, wait for what was started, and exit.")
@json_option
def run(*, file: Path | None, once: bool) -> None:
    """Run the enabled schedules until SIGTERM, which lets own runs finish first.

    Run it on as many hosts as you like: a slot runs on one of them.
    """
    from statlib.mongo.probe import probe  # noqa: PLC0415
    from statlib.schedule.scheduler import Scheduler  # noqa: PLC0415
    from statlib.statistics.hosts import Role, registered  # noqa: PLC0415

    settings = load_settings()
    enabled = tuple(entry for entry in _schedules(settings, file) if entry.enabled)
    with connected(settings, app_name="statlib-schedule") as mongo:
        probe(mongo)
        quiet = wants_json(click.get_current_context())
        scheduler = Scheduler(mongo, enabled, say=lambda line: click.echo(line, err=True))
        scheduler.start()
        with registered(mongo, Role.PROJECT_MANAGEMENT):
            if not quiet:
                click.echo(f"running {', '.join(entry.name for entry in enabled)}", err=True)
            scheduler.once() if once else scheduler.serve()
    answer({"schedules": [entry.name for entry in enabled], "stopped": True}, "stopped")


@schedule.command("list")
@_file_option
@json_option
def list_schedules(*, file: Path | None) -> None:
    """Show every schedule of the file. Checks the whole file; asks no database."""
    found = _schedules(load_settings(), file)
    width = max((len(entry.name) for entry in found), default=0)
    lines = [
        f"{entry.name:<{width}}  {'on ' if entry.enabled else 'off'}  {entry.cron:<20}  {entry.kind} {entry.target}"
        for entry in found
    ]
    answer({"schedules": [entry.model_dump(mode="json") for entry in found]}, lines or "no schedules")


@schedule.command("next")
@click.argument("names", nargs=-1)
@_file_option
@click.option("-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True, help="Slots of each.")
@json_option
def next_slots(*, names: tuple[str, ...], file: Path | None, count: int) -> None:
    """Show when the enabled schedules, or those named, run next, by the server's clock."""
    settings = load_settings()
    chosen = _chosen(_schedules(settings, file), names)
    with connected(settings, app_name="statlib-schedule") as mongo:
        found = coming(mongo, chosen, count)
    answer(
        {"next": found},
        [f"{slot:%Y-%m-%d %H:%M:%S} UTC  {one.schedule}" for one in found for slot in one.slots] or "nothing to come",
    )


@schedule.command()
@click.argument("names", nargs=-1)
@click.option("-n", "count", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Records.")
@json_option
def history(*, names: tuple[str, ...], count: int) -> None:
    """Show what became of slots, newest first: also of those that were skipped or missed, with the reason."""
    settings = load_settings()
    with connected(settings, app_name="statlib-schedule") as mongo:
        found = past(mongo, names, count)
    described = [
        {
            **one.slot.model_dump(mode="json", exclude={"id"}),
            "run": one.run.model_dump(mode="json") if one.run else None,
        }
        for one in found
    ]
    answer({"history": described}, [_line(one) for one in found] or "no slots yet")


def _line(one: Past) -> str:
    reason = f" {one.slot.reason}" if one.slot.reason else ""
    detail = f" ({one.slot.detail})" if one.slot.detail else ""
    report = f"  {one.run.report}" if one.run and one.run.report else ""
    hook = f"  hook {one.run.hook}" if one.run and one.run.hook != "None" else ""
    return f"{_when(one.slot)}  {one.slot.schedule}  {one.slot.state}{reason}{detail}{report}{hook}"


def _when(slot: Slot) -> str:
    last = f"{slot.slot_at_utc:%Y-%m-%d %H:%M:%S}"
    if slot.slot_count == 1:
        return f"{last} UTC"
    return f"{slot.first_slot_at_utc:%Y-%m-%d %H:%M:%S} to {last} UTC ({plural(slot.slot_count, 'slot')})"


def _schedules(settings: Settings, file: Path | None) -> tuple[Schedule, ...]:
    return read_schedules(file or schedule_file(settings), settings)


def _chosen(found: tuple[Schedule, ...], names: tuple[str, ...]) -> tuple[Schedule, ...]:
    if unknown := sorted(set(names) - {entry.name for entry in found}):
        raise Refusal(ScheduleReason.ScheduleUnknown, ", ".join(unknown))
    return tuple(entry for entry in found if (entry.name in names if names else entry.enabled))
