"""``statlib fences``: operations in force in a project, and settling those whose process died."""

from __future__ import annotations

from uuid import UUID

import click

from statlib.cli.operate import ask
from statlib.cli.output import answer, counted, json_option
from statlib.statistics.documents import FenceKind

_REQUEST_ID = "Repeat with the same one: an accepted request returns its first outcome and does nothing."


@click.group()
def fences() -> None:
    """Show and settle the operations that keep a project's statistics back."""


@fences.command("list")
@click.argument("project", type=click.UUID)
@json_option
def list_fences(project: UUID) -> None:
    """List the operations in force in PROJECT, and which of them nobody carries on any more."""
    found = ask(lambda client: client.fences(project))
    lines = [
        f"{one.kind}: {'interrupted' if one.interrupted else 'under way'}, since "
        f"{one.started_at_utc:%Y-%m-%d %H:%M} UTC; {', '.join(one.families) or 'source hidden'}"
        for one in found
    ]
    answer({"fences": [one.model_dump(mode="json") for one in found]}, lines or "nothing is under way")


@fences.command()
@click.argument("project", type=click.UUID)
@click.argument("kind", type=click.Choice([kind.value for kind in FenceKind]))
@click.option("--request-id", help=_REQUEST_ID)
@json_option
def release(project: UUID, kind: str, request_id: str | None) -> None:
    """Settle PROJECT's interrupted operation of KIND.

    One that hides the source is completed. Of any other, what it had done stays: repeat it, or undo it, and backfill.
    """
    done = ask(lambda client: client.release_fence(project, FenceKind(kind), request_id=request_id))
    completed = f"completed, {counted(done.visited, 'study', 'studies')} visited, {done.changed:,} changed"
    answer(done.model_dump(mode="json"), f"{kind}: {completed if done.completed else 'given up; backfill when ready'}")
