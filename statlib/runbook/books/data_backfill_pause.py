"""Interrupting one data backfill safely: what is in flight commits before the pause, or not at all.

The steps of ``runbooks/data_backfill_pause.ipynb``, in its order. ``data_backfill`` lets it go on.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from statlib.backfills.lifecycle import SOURCES, Lifecycle, Operator
from statlib.runbook.books.data_backfill import Standing
from statlib.runbook.catalogue import Runbook
from statlib.runbook.expectations import expect
from statlib.runbook.fragments import KeyValues
from statlib.runbook.parameters import ActingParameters
from statlib.runbook.run import Run


class PauseParameters(ActingParameters):
    """``confirm`` repeats the stable id."""

    stable_id: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[a-z][a-z0-9-]*$",
        description="as `statlib data-backfill list` names it",
    )


PauseRun = Run[PauseParameters]


class Plan(BaseModel):
    """What pausing would do."""

    lifecycle: str
    claimed: bool

    def shown(self) -> KeyValues:
        pauses = Lifecycle(self.lifecycle) in SOURCES[Operator.PAUSE]
        return KeyValues(
            (
                ("it is", self.lifecycle),
                ("a worker has it now", "yes: its batch commits first, or not at all" if self.claimed else "no"),
                ("to do", "pause it" if pauses else "nothing: it does not run"),
            ),
            one_column=True,
        )


def standing(run: PauseRun) -> Standing:
    """Where it stands. Refuses BackfillUnknown."""
    return Standing(backfill=run.client.data_backfill(run.parameters.stable_id))


def plan(run: PauseRun) -> Plan:
    """What acting would do, from the state of this moment."""
    found = standing(run).backfill
    return Plan(lifecycle=found.lifecycle, claimed=bool(found.claimed))


def pause(run: PauseRun) -> Standing:
    """Pause it. Refuses BackfillConflict where it was never started or has ended."""
    run.client.move_backfill(Operator.PAUSE, run.parameters.stable_id, request_id=run.request_id("pause"))
    return standing(run)


def verify(run: PauseRun) -> Standing:
    """Look again, and put on record what must hold."""
    found = standing(run)
    expect(run, "paused", "Paused", expected=1, measured=int(found.backfill.lifecycle == Lifecycle.PAUSED))
    expect(run, "claims", "Claims that stand", expected=0, measured=int(bool(found.backfill.claimed)))
    return found


RUNBOOK = Runbook(
    name="data_backfill_pause",
    summary="Interrupt one repair of PostgreSQL rows; what it has done stays, and it can go on.",
    parameters=PauseParameters,
    rollback="data_backfill",
    confirms="stable_id",
)
