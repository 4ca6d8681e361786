"""Ending one project's fold mode: disable, wait until the fold worker has ended it, prove.

The steps of ``runbooks/disable_fold.ipynb``, in its order. The first of a rollback, too.
"""

from __future__ import annotations

from pydantic import BaseModel

from statlib.runbook.catalogue import Runbook
from statlib.runbook.expectations import expect
from statlib.runbook.fold import FoldStanding, fold_standing, wait_until_disabled
from statlib.runbook.fragments import KeyValues
from statlib.runbook.project import ProjectParameters, standing
from statlib.runbook.run import Run
from statlib.statistics.documents import FoldMode


class DisableParameters(ProjectParameters):
    """See ``ProjectParameters``."""


DisableRun = Run[DisableParameters]

TO_DO = {FoldMode.ENABLED: "disable it, and wait", FoldMode.DISABLING: "wait", FoldMode.DISABLED: "nothing"}


class Plan(BaseModel):
    """What disabling would change."""

    now: FoldMode
    pending: int
    worker_live: bool

    def shown(self) -> KeyValues:
        return KeyValues(
            (
                ("fold mode is", self.now.value),
                ("studies with anything pending", self.pending),
                ("fold worker", "live" if self.worker_live else "none live: nobody would end the mode"),
                ("to do", TO_DO[self.now]),
            ),
            one_column=True,
        )


def plan(run: DisableRun) -> Plan:
    """What acting would do, from the state of this moment."""
    found = fold_standing(run)
    return Plan(now=FoldMode(found.fold.fold_mode), pending=found.pending, worker_live=found.fold.worker_live)


def disable(run: DisableRun) -> FoldStanding:
    """From now on saves are transactional. Disabling what is disabled, or disabling already, changes nothing."""
    run.client.disable_fold(run.parameters.project, request_id=run.request_id("disable"))
    return fold_standing(run)


def wait(run: DisableRun) -> FoldStanding:
    """See ``wait_until_disabled``."""
    return wait_until_disabled(run)


def verify(run: DisableRun) -> FoldStanding:
    """Look again, and put on record what must hold."""
    found = fold_standing(run)
    families = [family.family for family in standing(run).families if family.served]
    compared = run.client.parity(run.parameters.project, families) if families else []
    disabled = found.fold.fold_mode == FoldMode.DISABLED
    expect(run, "disabled", "Fold mode disabled", expected=1, measured=int(disabled))
    expect(
        run, "tripped", "Storage version without a tripwire", expected=1, measured=int(disabled and found.fold.tripped)
    )
    expect(run, "pending", "Studies with anything pending", expected=0, measured=found.pending)
    wrong = sum(not one.exact for one in compared)
    expect(run, "parity", "Served families that differ from the source", expected=0, measured=wrong)
    return found


RUNBOOK = Runbook(
    name="disable_fold",
    summary="End one project's fold mode: its saves are transactional, and nothing is pending.",
    parameters=DisableParameters,
    rollback="enable_fold",
    confirms="project",
)
