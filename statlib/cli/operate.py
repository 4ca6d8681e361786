"""Operators' actions on statistics, each one call of the boundary's client.

The boundary is imported when it is called, so that help answers at once, and without the extra.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from statlib.cli.output import answer, counted, json_option

if TYPE_CHECKING:
    from statlib.admin import wire
    from statlib.admin.client import AdminClient

EXIT_NOT_EXACT = 3

_T = TypeVar("_T")
_request_id = click.option(
    "--request-id", help="Repeat with the same one: an accepted request returns its first outcome and does nothing."
)


@click.group()
def gate() -> None:
    """Open or close the narrow gate of one project."""


@gate.command("open")
@click.argument("project", type=click.UUID)
@_request_id
@json_option
def open_gate(project: UUID, request_id: str | None) -> None:
    """Open PROJECT's narrow gate. What is stored is outdated by it: backfill once the grace has passed."""
    _turn_gate(project, request_id, enabled=True)


@gate.command("close")
@click.argument("project", type=click.UUID)
@_request_id
@json_option
def close_gate(project: UUID, request_id: str | None) -> None:
    """Close PROJECT's narrow gate: its pages are served from the source."""
    _turn_gate(project, request_id, enabled=False)


@click.group()
def fleet() -> None:
    """Open or close statistics for the whole fleet."""


@fleet.command("open")
@_request_id
@json_option
def open_fleet(request_id: str | None) -> None:
    """Open the fleet. Every row is outdated by it: backfill once the grace has passed."""
    _turn_fleet(request_id, enabled=True)


@fleet.command("close")
@_request_id
@json_option
def close_fleet(request_id: str | None) -> None:
    """Close the fleet: every page is served from the source."""
    _turn_fleet(request_id, enabled=False)


@fleet.command("tracking")
@click.argument("mode", type=click.Choice(["tracked", "untracked"]))
@_request_id
@json_option
def track_reviewers(mode: str, request_id: str | None) -> None:
    """Count reservations towards allocation, or not. Every row is outdated by a switch: backfill."""
    from statlib.statistics.documents import TrackingMode  # noqa: PLC0415

    chosen = TrackingMode(mode.capitalize())
    turned = ask(lambda client: client.set_tracking_mode(chosen, request_id=request_id))
    epoch = turned.reviewer_tracking_epoch
    answer(turned.model_dump(mode="json"), f"reviewers: {turned.reviewer_tracking_mode}, tracking epoch {epoch}")


@click.command()
@click.argument("project", type=click.UUID)
@click.argument("families", metavar="[FAMILY]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every family that the deployment keeps.")
@click.option("--force", is_flag=True, help="Publish also what is current and right.")
@_request_id
@json_option
def backfill(project: UUID, families: tuple[str, ...], every: bool, force: bool, request_id: str | None) -> None:
    """Publish what is not current of PROJECT's FAMILY, and prove it served and exact.

    Several families, or --all, are counted together, in one walk over the studies. Interrupted (Ctrl-C), it stops
    between two steps and leaves no lease behind.
    """
    if bool(families) == every:
        raise click.UsageError("Name one family or more, or give --all.")
    if len(families) == 1:
        done = ask(lambda client: client.backfill(project, families[0], force=force, request_id=request_id))
        answer(done.model_dump(mode="json"), _backfilled(done, project))
        return
    together = ask(lambda client: client.backfill_together(project, families, force=force, request_id=request_id))
    answer(together.model_dump(mode="json"), [line for one in together.families for line in _backfilled(one, project)])


@click.command()
@click.argument("project", type=click.UUID)
@click.option("--family", "families", multiple=True, help="Only this family; may be given more than once.")
@json_option
@click.pass_context
def parity(context: click.Context, project: UUID, families: tuple[str, ...]) -> None:
    """Compare PROJECT's stored counters with the source, each family at one moment.

    Exit codes: 0 every family is exact, 3 one is not or could not be compared.
    """
    found = ask(lambda client: client.parity(project, families or kept_families()))
    lines = []
    for comparison in found:
        lines.append(_compared(comparison, project))
        lines += [
            f"  {one.scope} {one.counter}: stored {one.stored:,}, source {one.authoritative:,}"
            for one in comparison.differences
        ]
    answer({"comparisons": [comparison.model_dump(mode="json") for comparison in found]}, lines)
    if not all(comparison.exact for comparison in found):
        context.exit(EXIT_NOT_EXACT)


def ask(call: Callable[[AdminClient], _T]) -> _T:
    """One call: of the deployment's boundary, or of one embedded for as long as it takes."""
    from statlib.admin.embedded import boundary  # noqa: PLC0415
    from statlib.kernel.settings import load_settings  # noqa: PLC0415
    from statlib.review.catalogue import REVIEW  # noqa: PLC0415

    with boundary(load_settings(), REVIEW) as client:
        return call(client)


def kept_families() -> tuple[str, ...]:
    """Those that the settings here keep; every family where they name none, as beside a boundary elsewhere."""
    from statlib.kernel.settings import load_settings  # noqa: PLC0415
    from statlib.review.catalogue import REVIEW  # noqa: PLC0415

    kept = load_settings().statistics.families
    return tuple(family for family in REVIEW.families if not kept or family in kept)


def _turn_gate(project: UUID, request_id: str | None, *, enabled: bool) -> None:
    turned = ask(lambda client: client.set_narrow_gate(project, enabled=enabled, request_id=request_id))
    _turned(f"project {project}", turned.model_dump(mode="json"), turned.mode, _openings(turned.opening_count))


def _turn_fleet(request_id: str | None, *, enabled: bool) -> None:
    turned = ask(lambda client: client.set_fleet_mode(enabled=enabled, request_id=request_id))
    _turned("fleet", turned.model_dump(mode="json"), turned.mode, f"mode epoch {turned.mode_epoch}")


def _turned(what: str, value: Any, mode: str, count: str) -> None:
    state = "open" if mode == "Enabled" else "closed"
    answer(value, f"{what}: {state}{f', {count}' if count else ''}")


def _openings(count: int) -> str:
    """A project that was loaded under statistics is open from its first study on, and that is no opening."""
    return f"opened {counted(count, 'time')} since it was loaded" if count else ""


def _backfilled(done: wire.Backfill, project: UUID) -> list[str]:
    published, current = len(done.rebuild.published), len(done.rebuild.current)
    return [
        f"{done.rebuild.family}: {counted(published, 'scope')} published, {current:,} current before",
        f"races lost to saves: {done.races_lost}",
        _compared(done.parity, project),
    ]


def _compared(comparison: wire.Parity, project: UUID) -> str:
    if not comparison.compared:
        return f"{comparison.family}: not compared, {comparison.reason} (see `statlib why {project}`)"
    exact = "exact" if comparison.exact else f"{counted(comparison.differing, 'counter')} off the source"
    scopes = counted(comparison.scopes, "scope")
    return f"{comparison.family}: {exact}, {scopes} at source revision {comparison.clocks.source}"
