"""``statlib why``: gate by gate, why a project's pages are not served from storage."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import click

from statlib.cli.operate import ask, kept_families
from statlib.cli.output import answer, counted, json_option

if TYPE_CHECKING:
    from statlib.admin.wire_records import Gate, Why

# A reason says what is wrong, which reads upside down beside "open": while it is, a gate goes by what it asks for.
NAMES = {
    "SourceVisibilityFenced": "source at rest",
    "FleetDisabled": "fleet mode",
    "ProjectDisabled": "narrow gate",
    "NotAllowlisted": "allowlist",
    "AllowlistInconsistent": "hosts agree",
    "VersionIncompatible": "release",
    "FamilyDisabled": "families of this host",
    "GuardNotFresh": "family fresh",
    "FenceActive": "no staged operation",
    "RowMissing": "rows published",
    "RowNotFresh": "rows fresh",
    "TrackingModeChanged": "tracking mode of rows",
    "RowEpochOutdated": "epochs of rows",
    "RowVersionIncompatible": "release of rows",
    "ConfigurationChanged": "configuration of rows",
    "PendingOverlayUnavailable": "pending saves",
}


@click.command()
@click.argument("project", type=click.UUID)
@click.option("--family", "families", multiple=True, help="Only this family; may be given more than once.")
@json_option
def why(project: UUID, families: tuple[str, ...]) -> None:
    """Show every gate between PROJECT's pages and its stored statistics, in order.

    A page is served from storage if all are open; else from the source. Exits with 0 either way.
    """
    found = ask(lambda client: client.why(project, families or kept_families()))
    answer(found.model_dump(mode="json"), lines_of(found))


def lines_of(found: Why) -> list[str]:
    """The verdict, then a line for each gate, and below a closed one its remedy."""
    verdict = "served from storage" if found.served else f"served from the source: {found.reason}"
    width = max(len(_name(gate)) for gate in found.gates)
    lines = [f"{verdict} ({', '.join(found.families)}; {counted(found.scopes, 'scope')})", ""]
    for gate in found.gates:
        lines.append(f"{_name(gate):<{width}}  {'open' if gate.passed else _closed(gate, found.scopes)}")
        if not gate.passed:
            lines.append(f"{'':<{width}}  {gate.remedy}")
    return lines


def _name(gate: Gate) -> str:
    name = NAMES.get(gate.gate, gate.gate)
    return f"{gate.family}  {name}" if gate.family else name


def _closed(gate: Gate, scopes: int) -> str:
    if not gate.scopes:
        return f"CLOSED: {gate.gate} ({gate.detail})" if gate.detail else f"CLOSED: {gate.gate}"
    more = f" and {gate.closed - len(gate.scopes)} more" if gate.closed > len(gate.scopes) else ""
    return f"CLOSED: {gate.gate} for {gate.closed} of {counted(scopes, 'scope')}: {', '.join(gate.scopes)}{more}"
