"""Making one family of one project current: publish what is not, and prove all of it exact.

The steps of ``runbooks/backfill_family.ipynb``, in its order.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from statlib.kernel.refusals import Refusal
from statlib.runbook.catalogue import Runbook
from statlib.runbook.expectations import expect
from statlib.runbook.fragments import KeyValues
from statlib.runbook.patience import backfill_when_allowed
from statlib.runbook.project import ProjectParameters, Standing, standing
from statlib.runbook.run import Run
from statlib.statistics.reasons import OperateReason


class BackfillParameters(ProjectParameters):
    """See ``ProjectParameters``."""

    family: str = Field(min_length=1, max_length=80, description="the family, as `statlib why` names it")
    force: bool = Field(default=False, description="publish scopes anew that are current and right, too")


BackfillRun = Run[BackfillParameters]


class Plan(BaseModel):
    """What a backfill would do."""

    state: str
    scopes: int
    current: int
    force: bool

    def shown(self) -> KeyValues:
        todo = self.scopes if self.force else self.scopes - self.current
        return KeyValues(
            (
                ("the family is", self.state),
                ("scopes declared", self.scopes),
                ("current", self.current),
                ("to publish, at the least", todo),
            ),
            one_column=True,
        )


class Backfilled(BaseModel):
    published: int
    right_as_they_were: int
    drifted: int
    races_lost: int


def plan(run: BackfillRun) -> Plan:
    """What acting would do. Refuses FamilyUnknown, before anything is done."""
    found = {family.family: family for family in standing(run).families}
    if (family := found.get(run.parameters.family)) is None:
        known = ", ".join(sorted(found))
        raise Refusal(OperateReason.FamilyUnknown, f"no family {run.parameters.family!r}; there are: {known}")
    return Plan(state=family.state, scopes=family.scopes, current=family.current, force=run.parameters.force)


def backfill(run: BackfillRun) -> Backfilled:
    """Publish and prove; a repeat of this step is the same request, and does it once."""
    asked = run.parameters
    done = backfill_when_allowed(
        run.client, asked.project, asked.family, request_id=run.request_id("backfill"), force=asked.force
    )
    return Backfilled(
        published=len(done.rebuild.published),
        right_as_they_were=len(done.rebuild.current),
        drifted=len(done.rebuild.drifted),
        races_lost=done.races_lost,
    )


def verify(run: BackfillRun) -> Standing:
    """Look again, and put on record what must hold."""
    found = standing(run)
    family = next(one for one in found.families if one.family == run.parameters.family)
    (compared,) = run.client.parity(run.parameters.project, [family.family])
    expect(run, "served", "Family served from statistics", expected=1, measured=int(family.served))
    expect(run, "current", "Scopes not current", expected=0, measured=family.scopes - family.current)
    expect(run, "parity", "Counters that differ from the source", expected=0, measured=compared.differing)
    expect(run, "compared", "Families compared", expected=1, measured=int(compared.compared))
    return found


RUNBOOK = Runbook(
    name="backfill_family",
    summary="Publish what is not current of one family, and prove all of it exact.",
    parameters=BackfillParameters,
    confirms="project",
)
