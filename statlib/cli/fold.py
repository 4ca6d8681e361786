"""``statlib fold``: fold mode of one project, and the index that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import click

from statlib.cli.operate import ask
from statlib.cli.output import answer, json_option

if TYPE_CHECKING:
    from statlib.admin.client import AdminClient
    from statlib.admin.fold_wire import FoldControl, IndexStanding

_request_id = click.option(
    "--request-id", help="Repeat with the same one: an accepted request returns its first outcome and does nothing."
)


@click.group()
def fold() -> None:
    """Let the saves of one project fold, or no longer; build the index for it."""


@fold.command()
@click.argument("project", type=click.UUID)
@_request_id
@json_option
def enable(project: UUID, request_id: str | None) -> None:
    """Enable PROJECT's fold mode. What is stored is outdated by it: backfill once the grace has passed."""
    _turn(project, lambda client: client.enable_fold(project, request_id=request_id))


@fold.command()
@click.argument("project", type=click.UUID)
@_request_id
@json_option
def disable(project: UUID, request_id: str | None) -> None:
    """Begin to end PROJECT's fold mode. The fold worker ends it, five minutes later at the soonest."""
    _turn(project, lambda client: client.disable_fold(project, request_id=request_id))


@fold.command()
@click.argument("project", type=click.UUID)
@_request_id
@json_option
def reset(project: UUID, request_id: str | None) -> None:
    """Outdate all that is stored of PROJECT and renew its tripwire: after a rollback, say."""
    _turn(project, lambda client: client.reset_fold(project, request_id=request_id))


@fold.group()
def index() -> None:
    """Show or build the index of pending entries."""


@index.command("show")
@json_option
def show_index() -> None:
    """Show whether the index of pending entries is there."""
    _indexed(ask(lambda client: client.pending_index()))


@index.command("build")
@_request_id
@json_option
def build_index(request_id: str | None) -> None:
    """Build the index of pending entries. It scans all studies of the deployment: do it in a quiet hour."""
    _indexed(ask(lambda client: client.build_pending_index(request_id=request_id)))


def _turn(project: UUID, call: Callable[[AdminClient], FoldControl]) -> None:
    turned = ask(call)
    answer(turned.model_dump(mode="json"), f"project {project}: fold mode {turned.fold_mode}, {_stamp(turned)}")


def _stamp(turned: FoldControl) -> str:
    if turned.fold_mode == "Disabled":
        return f"storage version {turned.storage_version}"
    return f"protocol {turned.protocol}, storage version {turned.storage_version}"


def _indexed(standing: IndexStanding) -> None:
    built = f", built in {standing.seconds:,.1f} s" if standing.built else ""
    answer(standing.model_dump(mode="json"), f"index of pending entries: {standing.state}{built}")
