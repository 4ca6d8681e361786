"""``statlib data-backfill``: the boundary's client for data backfills. What is not known is shown as unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from statlib.backfills.lifecycle import Operator
from statlib.cli.operate import ask
from statlib.cli.output import answer, json_option

if TYPE_CHECKING:
    from statlib.admin import backfill_wire as wire

UNKNOWN = "unknown"
EXIT_NOT_VALID = 3
_request_id = click.option("--request-id", help="Repeat an accepted request under its id to get its first outcome.")


@click.group("data-backfill")
def data_backfill() -> None:
    """Show and steer repairs of PostgreSQL rows: list, start, pause, resume, retry, validate."""


@data_backfill.command("list")
@json_option
def list_() -> None:
    """List every data backfill as PostgreSQL has it now."""
    found = ask(lambda client: client.backfills())
    lines = [f"{one.stable_id:<32} {one.lifecycle:<11} {_progress(one)}" for one in found]
    answer([one.model_dump(mode="json") for one in found], lines or ["none is registered"])


@data_backfill.command()
@click.argument("stable_id")
@json_option
def show(stable_id: str) -> None:
    """Show STABLE_ID with its diagnostics."""
    found = ask(lambda client: client.data_backfill(stable_id))
    answer(found.model_dump(mode="json"), list(_details(found)))


@data_backfill.command()
@click.argument("stable_id")
@json_option
def preview(stable_id: str) -> None:
    """Measure what a start of STABLE_ID would meet, and roll it back."""
    found = ask(lambda client: client.preview_backfill(stable_id))
    shown = found.model_dump(mode="json")
    lines = [f"{name.replace('_', ' '):<18} {known(value)}" for name, value in shown.items() if name != "plan"]
    answer(shown, [*lines, *(f"  {line}" for line in found.plan)])


def _moving(operator: Operator, summary: str) -> None:
    @data_backfill.command(operator.value, help=summary)
    @click.argument("stable_id")
    @click.option("--generation", type=click.IntRange(min=0), help="Only if that is still the current generation.")
    @_request_id
    @json_option
    def move(stable_id: str, generation: int | None, request_id: str | None) -> None:
        moved = ask(lambda c: c.move_backfill(operator, stable_id, generation=generation, request_id=request_id))
        answer(moved.model_dump(mode="json"), f"{stable_id}: {moved.lifecycle}, generation {moved.generation}")


_moving(Operator.START, "Capture STABLE_ID's bound, once and for all, and let workers in.")
_moving(Operator.PAUSE, "Interrupt STABLE_ID safely: what is in flight commits before this, or not at all.")
_moving(Operator.RESUME, "Let a paused STABLE_ID go on where it stopped.")
_moving(Operator.RETRY, "Let a blocked or failed STABLE_ID try again, at the same bound and checkpoint.")


@data_backfill.command()
@click.argument("stable_id")
@_request_id
@json_option
@click.pass_context
def validate(context: click.Context, stable_id: str, request_id: str | None) -> None:
    """Run STABLE_ID's proof now. Exit codes: 0 it holds, 3 it does not, or has no result yet."""
    found = ask(lambda client: client.validate_backfill(stable_id, request_id=request_id))
    told = f"{stable_id}: {found.outcome} ({found.lifecycle}), {found.diagnostic or found.reason}"
    answer(found.model_dump(mode="json"), told)
    if found.outcome != "success":
        context.exit(EXIT_NOT_VALID)


@data_backfill.command()
@click.argument("records", type=click.Choice(["audit", "requests"]))
@_request_id
@json_option
def prune(records: str, request_id: str | None) -> None:
    """Remove a bounded number of RECORDS older than their retention (admin.audit_retention_s, request_retention_s)."""
    from statlib.backfills.retention import Kept  # noqa: PLC0415 - keeps --help fast

    pruned = ask(lambda client: client.prune_backfill_records(Kept(records), request_id=request_id))
    rest = "; there are more, so repeat it" if pruned.more else ""
    answer(pruned.model_dump(mode="json"), f"{pruned.removed:,} removed, from before {pruned.before:%Y-%m-%d}{rest}")


def known(value: Any, shown: Callable[[Any], str] = str) -> str:
    """The value for people: never a nought in the place of what nobody knows."""
    return UNKNOWN if value is None else shown(value)


def _progress(one: wire.Backfill) -> str:
    return f"{one.rows_selected:,} rows of {known(one.rows_total)}, {one.batches:,} batches"


def _details(one: wire.Backfill) -> Iterator[str]:
    yield f"{one.stable_id}: {one.lifecycle}, generation {one.generation}"
    yield f"bound       {known(one.bound)}"
    yield f"checkpoint  {known(one.checkpoint)}"
    yield f"progress    {_progress(one)}"
    yield f"claim       {known(one.claim_owner) if one.claimed else 'nobody has one'}"
    yield f"tries       {known(one.attempts)} since the last progress, next at {known(one.next_eligible_at_utc)}"
    yield f"diagnostic  {known(one.diagnostic)}"
    yield f"validation  {known(one.validation_outcome)} {one.validation_diagnostic or ''}".rstrip()
    yield f"asked for   {known(one.explicit_outcome)} {one.explicit_diagnostic or ''}".rstrip()
    if one.pace is not None:
        yield f"pace        {one.pace.get('decision')}: {one.pace.get('because')}"
    yield f"readiness   {'waits for it' if one.gating and one.lifecycle != 'completed' else 'does not wait for it'}"
