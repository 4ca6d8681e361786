"""What becomes of a slot: one table of states, edges and reasons."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from statlib.kernel.refusals import Fault


class SlotState(StrEnum):
    DUE = "Due"
    CLAIMED = "Claimed"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    INTERRUPTED = "Interrupted"
    SKIPPED = "Skipped"
    MISSED = "Missed"


class SlotReason(StrEnum):
    """Why a slot ended without succeeding."""

    PREDECESSOR_RUNNING = "PredecessorRunning"  # it fell due while a run of the same schedule was under way
    NO_SCHEDULER = "NoScheduler"  # nobody evaluated it before its successor fell due, or in time under misfire skip
    SUPERSEDED = "Superseded"  # it was still waiting for a host when its successor fell due
    DEFINITION_CHANGED = "DefinitionChanged"  # it fell due under a definition that was replaced before it could run
    HOST_LOST = "HostLost"  # its lease ran out: the host died, froze or lost the database
    RUN_DIED = "RunDied"  # its process ended without an outcome
    STOPPED = "Stopped"  # a signal ended it
    TOO_LONG = "TooLong"  # it reached its maximum duration
    GATE_FAILED = "GateFailed"  # a gate of the runbook failed
    REFUSED = "Refused"  # the runbook or job refused
    FAULT = "Fault"  # it broke


OPEN = frozenset({SlotState.DUE, SlotState.CLAIMED, SlotState.RUNNING})
HELD = frozenset({SlotState.CLAIMED, SlotState.RUNNING})

TRANSITIONS: Mapping[SlotState, frozenset[SlotState]] = {
    SlotState.DUE: frozenset(
        {
            SlotState.CLAIMED,  # a host took the schedule's lease
            SlotState.MISSED,  # its successor fell due, or its definition was replaced, before a host was free
        }
    ),
    SlotState.CLAIMED: frozenset(
        {
            SlotState.RUNNING,  # recorded before the first effect
            SlotState.DUE,  # the host was lost before the run began, so nothing happened: another may take it
            SlotState.FAILED,  # the run could not be begun, CLAIMS_MAX times over
        }
    ),
    SlotState.RUNNING: frozenset(
        {
            SlotState.SUCCEEDED,
            SlotState.FAILED,
            SlotState.INTERRUPTED,  # effects are possible and unknown
        }
    ),
    SlotState.INTERRUPTED: frozenset({SlotState.DUE}),  # only where the schedule says on_interruption = "run_again"
    SlotState.SUCCEEDED: frozenset(),
    SlotState.FAILED: frozenset(),
    SlotState.SKIPPED: frozenset(),
    SlotState.MISSED: frozenset(),
}
BEGINNINGS = frozenset({SlotState.DUE, SlotState.SKIPPED, SlotState.MISSED})


def require_edge(before: SlotState, after: SlotState) -> None:
    """Fault: a slot never moves along an edge that the table lacks."""
    if after not in TRANSITIONS[before]:
        raise Fault(f"a slot does not become {after} from {before}")
