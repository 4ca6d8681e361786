"""Taking one project's statistics out of service: its readers are answered from the source from then on.

The steps of ``runbooks/narrow_gate_close.ipynb``, in its order.
"""

from __future__ import annotations

from pydantic import BaseModel

from statlib.runbook.catalogue import Runbook
from statlib.runbook.expectations import expect
from statlib.runbook.fragments import KeyValues
from statlib.runbook.project import ProjectParameters, Standing, standing
from statlib.runbook.run import Run
from statlib.statistics.documents import Mode


class CloseParameters(ProjectParameters):
    """See ``ProjectParameters``."""


CloseRun = Run[CloseParameters]


class Plan(BaseModel):
    """What closing would change."""

    now: str
    families_served: int
    already_closed: bool

    def shown(self) -> KeyValues:
        return KeyValues(
            (
                ("the gate is", self.now),
                ("families that readers would get from the source instead", self.families_served),
                ("to do", "nothing" if self.already_closed else "close it"),
            ),
            one_column=True,
        )


def plan(run: CloseRun) -> Plan:
    """What acting would do, from the state of this moment."""
    found = standing(run)
    closed = found.status.project_mode == Mode.DISABLED
    return Plan(now=found.status.project_mode or "not there", families_served=found.served, already_closed=closed)


def close(run: CloseRun) -> Standing:
    """Close it. Closing a closed gate changes nothing."""
    run.client.set_narrow_gate(run.parameters.project, enabled=False, request_id=run.request_id("close"))
    return standing(run)


def verify(run: CloseRun) -> Standing:
    """Look again, and put on record what must hold."""
    found = standing(run)
    closed = found.status.project_mode == Mode.DISABLED
    expect(run, "closed", "Narrow gate closed", expected=1, measured=int(closed))
    expect(run, "served", "Families still served from statistics", expected=0, measured=found.served)
    return found


RUNBOOK = Runbook(
    name="narrow_gate_close",
    summary="Take one project's statistics out of service; readers are answered from the source.",
    parameters=CloseParameters,
    rollback="narrow_gate_open",
    confirms="project",
)
