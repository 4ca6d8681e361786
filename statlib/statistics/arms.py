"""Arms: in which of the ways an attempt saves. Pure; chosen once per attempt from what that attempt read.

source only     the project is not under statistics here: one guarded write, no evidence kept
transactional   the source and everything that statistics keep of it commit together
"""

from __future__ import annotations

from enum import StrEnum

from statlib.kernel.refusals import Refusal
from statlib.statistics.documents import GlobalControl, Mode, ProjectControl
from statlib.statistics.reasons import SaveReason


class Arm(StrEnum):
    SOURCE_ONLY = "source-only"
    TRANSACTIONAL = "transactional"


def choose(*, included: bool, control: ProjectControl | None) -> Arm:
    """The arm of an attempt. ``included``: this host's settings put the project under statistics.

    Refuses GateSkew where this host would write past statistics that the stored mode says are kept.
    A closed gate keeps the transactional arm: it moves no row, and still leaves receipts and advances clocks.
    """
    if included:
        return Arm.TRANSACTIONAL if control is not None else Arm.SOURCE_ONLY
    if control is not None and control.mode is Mode.ENABLED:
        raise Refusal(SaveReason.GateSkew, f"project {control.id}", state={"mode": control.mode.value})
    return Arm.SOURCE_ONLY


def gate_open(fleet: GlobalControl, control: ProjectControl) -> bool:
    """Whether rows may move: the fleet and the project's narrow gate are both open."""
    return fleet.mode is Mode.ENABLED and control.mode is Mode.ENABLED
