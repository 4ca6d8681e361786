"""Taking one data backfill to validated completion: started, resumed or tried again, whichever its state asks for.

The steps of ``runbooks/data_backfill.ipynb``, in its order. Workers do the work; this asks, waits in sight, and proves.
"""

from __future__ import annotations

import time

from pydantic import BaseModel, Field

from statlib.admin import backfill_wire as wire
from statlib.admin.backfill_wire import Position
from statlib.backfills.lifecycle import Lifecycle, Operator
from statlib.backfills.reasons import BackfillReason
from statlib.kernel.refusals import Refusal
from statlib.runbook.catalogue import Runbook
from statlib.runbook.expectations import expect
from statlib.runbook.fragments import KeyValues, Progress
from statlib.runbook.live import Live
from statlib.runbook.parameters import ActingParameters
from statlib.runbook.run import Run

POLL_S = 1.0
MOVES = {
    Lifecycle.PENDING: Operator.START,
    Lifecycle.PAUSED: Operator.RESUME,
    Lifecycle.BLOCKED: Operator.RETRY,
    Lifecycle.FAILED: Operator.RETRY,
}
STUCK = frozenset({Lifecycle.PAUSED, Lifecycle.BLOCKED, Lifecycle.FAILED})
UNKNOWN = "unknown"


class DataBackfillParameters(ActingParameters):
    """``confirm`` repeats the stable id."""

    stable_id: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[a-z][a-z0-9-]*$",
        description="as `statlib data-backfill list` names it",
    )
    write_path_rolled_out: bool = Field(
        default=False, description="your word that every writer keeps the postcondition and old ones are drained"
    )
    wait_s: float = Field(default=3600.0, gt=0, le=7 * 86400, description="how long to wait for workers to finish")


DataBackfillRun = Run[DataBackfillParameters]


class Standing(BaseModel):
    """A data backfill at one moment. What is known not to be there yet is told apart from what nobody knows."""

    backfill: wire.Backfill

    def shown(self) -> KeyValues:
        found = self.backfill
        return KeyValues(
            (
                ("it is", found.lifecycle),
                ("bound", _position(found.bound, absent="captured at the start", empty="none: no row is admitted")),
                ("checkpoint", _position(found.checkpoint, absent="before the first row", empty="at the bound")),
                ("rows selected", found.rows_selected),
                ("rows changed", found.rows_changed),
                ("diagnostic", found.diagnostic or "none"),
                ("pace", _known(found.pace.get("because")) if found.pace else "no batch yet"),
                ("readiness waits for it", "yes" if found.gating else "no"),
            ),
            one_column=True,
        )


class Met(BaseModel):
    """What a start would meet; measured, and rolled back."""

    preview: wire.Preview
    write_path_rolled_out: bool

    def shown(self) -> KeyValues:
        found = self.preview
        return KeyValues(
            (
                ("write path rolled out", "yes, on the operator's word" if self.write_path_rolled_out else "not said"),
                ("prerequisite met", "yes" if found.prerequisite_met else "no"),
                ("rows, by the planner's estimate", _known(found.rows_estimated)),
                ("bytes of the table with its indexes", _known(found.bytes_total)),
                ("index for the key", found.index or "none: each batch would scan the table"),
                ("sessions that wait for locks", found.waiting_locks),
            ),
            one_column=True,
        )


class Plan(BaseModel):
    """What acting would do, and what the first rows would become."""

    move: str
    sample_rows: int
    sample_changed: int
    plan: tuple[str, ...]

    def shown(self) -> KeyValues:
        return KeyValues(
            (
                ("to do", self.move),
                ("rows looked at", self.sample_rows),
                ("of them to change", self.sample_changed),
                ("how PostgreSQL finds them", " · ".join(line.strip() for line in self.plan) or UNKNOWN),
            ),
            one_column=True,
        )


def standing(run: DataBackfillRun) -> Standing:
    """Where it stands. Refuses BackfillUnknown."""
    return Standing(backfill=run.client.data_backfill(run.parameters.stable_id))


def preflight(run: DataBackfillRun) -> Met:
    """Measure what a start would meet, and roll it back."""
    asked = run.parameters
    return Met(preview=run.client.preview_backfill(asked.stable_id), write_path_rolled_out=asked.write_path_rolled_out)


def plan(run: DataBackfillRun) -> Plan:
    """What acting would do, from the state of this moment."""
    met = run.client.preview_backfill(run.parameters.stable_id)
    operator = MOVES.get(Lifecycle(standing(run).backfill.lifecycle))
    return Plan(
        move=operator.value if operator else "nothing but to wait for it and prove it",
        sample_rows=met.sample_rows,
        sample_changed=met.sample_changed,
        plan=met.plan,
    )


def move(run: DataBackfillRun) -> Standing:
    """Start, resume or retry it. Refuses PrerequisiteUnmet without the operator's word on the write path."""
    asked = run.parameters
    if not asked.write_path_rolled_out:
        raise Refusal(BackfillReason.PrerequisiteUnmet, "write_path_rolled_out is false: rows would go wrong behind it")
    _let_go_on(run, frozenset(MOVES))
    return standing(run)


def wait(run: DataBackfillRun) -> Standing:
    """Watch workers until it rests: completed, or where an operator is wanted. Interrupting leaves them at work.

    One that was paused since this run moved it goes on: who runs an interrupted run again wants that.
    """
    _let_go_on(run, frozenset({Lifecycle.PAUSED}))
    ends = time.monotonic() + run.parameters.wait_s
    before, since = standing(run).backfill.rows_selected, time.monotonic()
    with Live() as live:
        while True:
            found = standing(run)
            rows, passed = found.backfill.rows_selected, time.monotonic() - since
            rate = (rows - before) / passed if passed > 0 else 0.0
            resting = Lifecycle(found.backfill.lifecycle) in STUCK | {Lifecycle.COMPLETED}
            if resting or time.monotonic() > ends:
                return found
            waiting = f"workers; it is {found.backfill.lifecycle}"
            live.show(Progress("Repairing", rows, None, "rows", rate_per_s=rate, waiting_for=waiting))
            time.sleep(POLL_S)


def _let_go_on(run: DataBackfillRun, states: frozenset[Lifecycle]) -> None:
    """Ask for what its state needs, if it is one of ``states``: once for each generation, however often it is run."""
    found = standing(run).backfill
    operator = MOVES.get(Lifecycle(found.lifecycle))
    if operator is None or Lifecycle(found.lifecycle) not in states:
        return
    request_id = run.request_id(f"{operator.value}-{found.generation}")
    run.client.move_backfill(operator, run.parameters.stable_id, generation=found.generation, request_id=request_id)


def verify(run: DataBackfillRun) -> Standing:
    """Ask for the definition's own proof, and put on record what must hold."""
    asked = run.parameters.stable_id
    proof = run.client.validate_backfill(asked, request_id=run.request_id("validate"))
    found = standing(run)
    completed = found.backfill.lifecycle == Lifecycle.COMPLETED
    through = found.backfill.checkpoint == found.backfill.bound or not found.backfill.bound
    expect(run, "completed", "Completed", expected=1, measured=int(completed))
    expect(run, "proved", "Validation asked for now succeeds", expected=1, measured=int(proof.outcome == "success"))
    expect(run, "through", "Checkpoint at the bound", expected=1, measured=int(through))
    return found


def _position(position: Position | None, *, absent: str, empty: str) -> str:
    """The key's values, in its order."""
    if position is None:
        return absent
    return " · ".join(map(str, position)) or empty


def _known(value: object) -> str | int | float:
    if value is None:
        return UNKNOWN
    return value if isinstance(value, int | float) else str(value)


RUNBOOK = Runbook(
    name="data_backfill",
    summary="Take one repair of PostgreSQL rows to validated completion.",
    parameters=DataBackfillParameters,
    rollback="data_backfill_pause",
    confirms="stable_id",
)
