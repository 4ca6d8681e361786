"""``statlib why``: gate by gate, why a project's pages are not served from storage."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import click

from statlib.cli.operate import ask
from statlib.cli.output import answer, json_option

if TYPE_CHECKING:
    from statlib.admin.wire_records import Gate, Why


@click.command()
@click.argument("project", type=click.UUID)
@click.option("--family", "families", multiple=True, help="Only this family; may be given more than once.")
@json_option
def why(project: UUID, families: tuple[str, ...]) -> None:
    """Show every gate between PROJECT's pages and its stored statistics, in order.

    A page is served from storage if all are open; else from the source. Exits with 0 either way.
    """
    found = ask(lambda client: client.why(project, families))
    answer(found.model_dump(mode="json"), _lines(found))


def _lines(found: Why) -> list[str]:
    verdict = "served from storage" if found.served else f"served from the source: {found.reason}"
    width = max(len(_name(gate)) for gate in found.gates)
    lines = [f"{verdict} ({', '.join(found.families)}; {found.scopes} scopes)", ""]
    for gate in found.gates:
        lines.append(f"{_name(gate):<{width}}  {'open' if gate.passed else _closed(gate, found.scopes)}")
        if not gate.passed:
            lines.append(f"{'':<{width}}  {gate.remedy}")
    return lines


def _name(gate: Gate) -> str:
    return f"{gate.family}  {gate.gate}" if gate.family else gate.gate


def _closed(gate: Gate, scopes: int) -> str:
    if not gate.scopes:
        return "CLOSED"
    more = f" and {gate.closed - len(gate.scopes)} more" if gate.closed > len(gate.scopes) else ""
    return f"CLOSED for {gate.closed} of {scopes} scopes: {', '.join(gate.scopes)}{more}"
