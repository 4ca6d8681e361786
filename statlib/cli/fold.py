"""``statlib fold``: fold mode of one project, and the index that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import click

from statlib.cli.operate import ask
from statlib.cli.output import answer, counted, json_option

if TYPE_CHECKING:
    from statlib.admin.client import AdminClient
    from statlib.admin.fold_wire import FoldControl, FoldStanding, IndexStanding

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


@fold.command()
@click.argument("project", type=click.UUID)
@json_option
def status(project: UUID) -> None:
    """Show how PROJECT's fold stands: its mode, what is pending, who folds, and what has piled up."""
    standing = ask(lambda client: client.fold(project))
    answer(standing.model_dump(mode="json"), list(_standing_lines(standing)))


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


def _standing_lines(standing: FoldStanding) -> Iterator[str]:
    since = standing.disabling_since_utc if standing.fold_mode == "Disabling" else standing.enabled_at_utc
    dated = f" since {since:%Y-%m-%d %H:%M} UTC" if since and standing.fold_mode != "Disabled" else ""
    stamped = f", protocol {standing.protocol}" if standing.fold_mode != "Disabled" else ""
    yield f"fold mode: {standing.fold_mode}{dated}{stamped}"
    if not standing.tripped:
        yield "tripwire: not as the mode asks for; `statlib fold reset` mends it"
    yield f"index of pending entries: {standing.index}"
    if (pending := standing.pending) is not None:
        oldest = f", the oldest {pending.oldest_age_s:,.0f} s old" if pending.oldest_age_s is not None else ""
        over = f", {pending.overflowed:,} of them overflowed" if pending.overflowed else ""
        entries = counted(pending.entries, "entry", "entries")
        yield f"pending: {entries} in {counted(pending.studies, 'study', 'studies')}{over}{oldest}"
    beats = "; ".join(f"protocol {beat.protocol} {beat.age_s:,.0f} s ago" for beat in standing.heartbeats)
    yield f"fold worker: {'live' if standing.worker_live else 'none live'} ({beats or 'never seen'})"
    unable = [host.id for host in standing.hosts if host.included and not (host.fold and host.protocols)]
    yield f"live hosts: {len(standing.hosts):,}" + (f"; that do not fold: {', '.join(unable)}" if unable else "")
    missed = standing.quarantine_incomplete_since_utc
    lost = f", incomplete since {missed:%Y-%m-%d %H:%M} UTC" if missed else ""
    yield f"quarantine: {counted(standing.quarantined, 'record')}{lost}"
    yield f"ledger: {counted(standing.ledger.rows, 'row')}, room for {standing.ledger.headroom:,} more"


def _indexed(standing: IndexStanding) -> None:
    built = f", built in {standing.seconds:,.1f} s" if standing.built else ""
    answer(standing.model_dump(mode="json"), f"index of pending entries: {standing.state}{built}")
