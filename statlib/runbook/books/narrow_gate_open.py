"""Putting one project's statistics into service: open the gate, wait out its grace, backfill, prove.

The steps of ``runbooks/narrow_gate_open.ipynb``, in its order.
"""

from __future__ import annotations

from pydantic import BaseModel

from statlib.runbook.backfilled import Backfilled
from statlib.runbook.catalogue import Runbook
from statlib.runbook.expectations import expect
from statlib.runbook.fragments import KeyValues
from statlib.runbook.patience import backfill_together_when_allowed
from statlib.runbook.project import ProjectParameters, Standing, standing
from statlib.runbook.run import Run
from statlib.statistics.documents import Mode


class OpenParameters(ProjectParameters):
    """See ``ProjectParameters``."""


OpenRun = Run[OpenParameters]


class Plan(BaseModel):
    """What opening would change."""

    fleet: str
    now: str
    families_to_backfill: int
    already_open: bool

    def shown(self) -> KeyValues:
        return KeyValues(
            (
                ("the fleet is", self.fleet),
                ("the gate is", self.now),
                ("families to backfill afterwards", self.families_to_backfill),
                ("to do", "backfill what is not served" if self.already_open else "open it, wait, backfill"),
            ),
            one_column=True,
        )


def plan(run: OpenRun) -> Plan:
    """What acting would do, from the state of this moment."""
    found = standing(run)
    return Plan(
        fleet=found.status.fleet_mode,
        now=found.status.project_mode or "not there",
        families_to_backfill=len(found.families) - found.served,
        already_open=found.status.project_mode == Mode.ENABLED,
    )


def open_gate(run: OpenRun) -> Standing:
    """Open it. An opening outdates every row, so that nothing wrong is served; opening an open gate changes nothing."""
    run.client.set_narrow_gate(run.parameters.project, enabled=True, request_id=run.request_id("open"))
    return standing(run)


def backfill(run: OpenRun) -> Backfilled:
    """Publish every family and prove it served, waiting first for saves that may have read the gate before."""
    families = [family.family for family in standing(run).families]
    done = backfill_together_when_allowed(
        run.client, run.parameters.project, families, request_id=run.request_id("backfill")
    )
    return Backfilled.of(done)


def verify(run: OpenRun) -> Standing:
    """Look again, and put on record what must hold."""
    found = standing(run)
    compared = run.client.parity(run.parameters.project, [family.family for family in found.families])
    is_open = found.status.project_mode == Mode.ENABLED
    expect(run, "open", "Narrow gate open", expected=1, measured=int(is_open))
    expect(run, "served", "Families served from statistics", expected=len(found.families), measured=found.served)
    wrong = sum(not one.exact for one in compared)
    expect(run, "parity", "Families that differ from the source", expected=0, measured=wrong)
    return found


RUNBOOK = Runbook(
    name="narrow_gate_open",
    summary="Put one project's statistics into service, and prove them exact.",
    parameters=OpenParameters,
    rollback="narrow_gate_close",
    confirms="project",
)
