"""Letting one project's saves fold: confirm the rollout, enable, wait out the grace, backfill, prove.

The steps of ``runbooks/enable_fold.ipynb``, in its order.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from statlib.kernel.refusals import Refusal
from statlib.runbook.backfilled import Backfilled
from statlib.runbook.catalogue import Runbook
from statlib.runbook.expectations import expect
from statlib.runbook.fold import FoldStanding, fold_standing
from statlib.runbook.fragments import KeyValues
from statlib.runbook.patience import backfill_together_when_allowed
from statlib.runbook.project import ProjectParameters, Standing, standing
from statlib.runbook.reasons import RunbookReason
from statlib.runbook.run import Run
from statlib.statistics.documents import FoldMode


class EnableParameters(ProjectParameters):
    """``rollout_complete``: what no host can see, since a process of an earlier release may register none."""

    rollout_complete: bool = Field(
        default=False, description="every rollout has ended, and no process of an earlier release is alive"
    )


EnableRun = Run[EnableParameters]


class Plan(BaseModel):
    """What enabling would change."""

    now: str
    index: str
    worker_live: bool
    hosts_that_do_not_fold: list[str]
    families_to_backfill: int
    already_enabled: bool

    def shown(self) -> KeyValues:
        return KeyValues(
            (
                ("fold mode is", self.now),
                ("index of pending entries", self.index),
                ("fold worker", "live" if self.worker_live else "none live: start `statlib worker fold`"),
                ("hosts in the way", ", ".join(self.hosts_that_do_not_fold) or "none"),
                ("families to backfill afterwards", self.families_to_backfill),
                ("to do", "backfill what is not served" if self.already_enabled else "enable it, wait, backfill"),
            ),
            one_column=True,
        )


def plan(run: EnableRun) -> Plan:
    """What acting would do, from the state of this moment."""
    fold, found = fold_standing(run), standing(run)
    enabled = fold.fold.fold_mode == FoldMode.ENABLED
    outdated = {family.family for family in found.families if not family.served}
    if not enabled:
        outdated.update(fold.fold.families)
    return Plan(
        now=fold.fold.fold_mode,
        index=fold.fold.index,
        worker_live=fold.fold.worker_live,
        hosts_that_do_not_fold=fold.unable,
        families_to_backfill=len(outdated),
        already_enabled=enabled,
    )


def enable(run: EnableRun) -> FoldStanding:
    """Enable it; enabling what is enabled changes nothing. Refuses RolloutUnconfirmed, and what the server refuses."""
    if not run.parameters.rollout_complete:
        raise Refusal(RunbookReason.RolloutUnconfirmed, "rollout_complete is false")
    run.client.enable_fold(run.parameters.project, request_id=run.request_id("enable"))
    return fold_standing(run)


def backfill(run: EnableRun) -> Backfilled:
    """Publish every family and prove it served, waiting first for saves that may have met the mode before."""
    families = [family.family for family in standing(run).families]
    done = backfill_together_when_allowed(
        run.client, run.parameters.project, families, request_id=run.request_id("backfill")
    )
    return Backfilled.of(done)


def verify(run: EnableRun) -> Standing:
    """Look again, and put on record what must hold."""
    fold, found = fold_standing(run), standing(run)
    compared = run.client.parity(run.parameters.project, [family.family for family in found.families])
    enabled = fold.fold.fold_mode == FoldMode.ENABLED
    expect(run, "enabled", "Fold mode enabled", expected=1, measured=int(enabled))
    expect(run, "tripped", "Tripwire as the mode asks for", expected=1, measured=int(fold.fold.tripped))
    expect(run, "worker", "A fold worker is live", expected=1, measured=int(fold.fold.worker_live))
    expect(run, "served", "Families served from statistics", expected=len(found.families), measured=found.served)
    wrong = sum(not one.exact for one in compared)
    expect(run, "parity", "Families that differ from the source", expected=0, measured=wrong)
    return found


RUNBOOK = Runbook(
    name="enable_fold",
    summary="Let one project's saves fold, and prove its statistics exact.",
    parameters=EnableParameters,
    rollback="disable_fold",
    confirms="project",
)
