"""A project's standing, as the runbooks that act on one project show it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field

from statlib.admin import wire
from statlib.runbook.fragments import Column, Table
from statlib.runbook.look.quantities import plural
from statlib.runbook.parameters import ActingParameters
from statlib.runbook.run import Run


class ProjectParameters(ActingParameters):
    """Of a runbook that acts on one project: ``confirm`` repeats its id."""

    project: UUID = Field(description="the project's id, as `statlib load` printed it")


class Standing(BaseModel):
    """Modes and families of a project at one moment."""

    status: wire.Status

    @property
    def families(self) -> tuple[wire.Family, ...]:
        return self.status.families

    @property
    def served(self) -> int:
        return sum(family.served for family in self.families)

    def shown(self) -> Table:
        modes = f"Fleet {self.status.fleet_mode}, project {self.status.project_mode or 'without a control'}"
        columns = (
            Column("Family"),
            Column("State"),
            Column("Scopes", numeric=True),
            Column("Current", numeric=True),
            Column("Served from"),
        )
        rows = tuple(
            (
                family.family,
                family.state,
                family.scopes,
                family.current,
                "statistics" if family.served else f"the source: {family.reason}",
            )
            for family in self.families
        )
        return Table(f"{modes}; opened {plural(self.status.opening_count or 0, 'time')}", columns, rows)


def standing(run: Run[Any]) -> Standing:
    """Where the run's project stands now. Refuses ProjectNotFound."""
    parameters: ProjectParameters = run.parameters
    return Standing(status=run.client.status(parameters.project))
