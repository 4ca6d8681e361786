"""``statlib ledger``: compacting the ledger of one project."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import click

from statlib.cli.operate import ask
from statlib.cli.output import answer, counted, json_option

if TYPE_CHECKING:
    from statlib.admin.client import AdminClient
    from statlib.admin.ledger_wire import LedgerPass

NOTHING_OLD_ENOUGH = "NoEligibleCompleteRevision"


@click.group()
def ledger() -> None:
    """Keep the revision ledger of one project short."""


@ledger.command()
@click.argument("project", type=click.UUID)
@click.option(
    "--passes",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="At most so many, each of 32 rows at most; fewer where nothing more is old enough.",
)
@click.option(
    "--request-id",
    help="Of a single pass. Repeat with the same one: an accepted request returns its first outcome and does nothing.",
)
@json_option
def compact(project: UUID, passes: int, request_id: str | None) -> None:
    """Delete what is old enough from PROJECT's ledger, and seal its range. Nothing that is served changes.

    Old enough are whole revisions past the redelivery window. A fold worker does this by itself where
    statistics.ledger_maintenance is on. Interrupted, what was done stays done: call it again.
    """
    if request_id is not None and passes > 1:
        raise click.UsageError("A request id is of one pass: give no --passes with it.")

    def repeated(client: AdminClient) -> list[LedgerPass]:
        done: list[LedgerPass] = []
        while len(done) < passes and not (done and done[-1].outcome == NOTHING_OLD_ENOUGH):
            done.append(client.compact_ledger(project, request_id=request_id))
        return done

    done = ask(repeated)
    deleted, last = sum(one.deleted for one in done), done[-1]
    more = "nothing more is old enough" if last.outcome == NOTHING_OLD_ENOUGH else "there may be more: call it again"
    answer(
        {**last.model_dump(mode="json"), "deleted": deleted, "passes": len(done)},
        f"project {project}: {counted(deleted, 'row')} compacted, ledger from revision "
        f"{last.replay_floor_revision + 1:,} on; {more}",
    )
