"""Arms: in which of the ways an attempt saves. Pure; chosen once per attempt from what that attempt read.

source only     the project is not under statistics here: one guarded write, no evidence kept
transactional   the source and everything that statistics keep of it commit together
fold            one guarded write, which leaves in the source itself what statistics have yet to make of it
"""

from __future__ import annotations

from enum import StrEnum

from statlib.kernel.refusals import Refusal
from statlib.statistics.documents import FoldMode, GlobalControl, Mode, ProjectControl
from statlib.statistics.pending import accepts
from statlib.statistics.reasons import SaveReason


class Arm(StrEnum):
    SOURCE_ONLY = "source-only"
    TRANSACTIONAL = "transactional"
    FOLD = "fold"


def choose(*, included: bool, control: ProjectControl | None, fold: bool = False) -> Arm:
    """The arm of an attempt. ``included``: this host's settings put the project under statistics; ``fold``: they let
    it leave pending entries, and its domain has such.

    Refuses GateSkew where this host would write past statistics that the stored mode says are kept.
    A closed gate changes no arm: rows do not move behind it, and every save leaves its evidence all the same.
    """
    if included:
        if control is None:
            return Arm.SOURCE_ONLY
        folds = fold and control.fold_mode is FoldMode.ENABLED and accepts(control.fold_protocol_version)
        return Arm.FOLD if folds else Arm.TRANSACTIONAL
    if control is not None and control.mode is Mode.ENABLED:
        raise Refusal(SaveReason.GateSkew, f"project {control.id}", state={"mode": control.mode.value})
    return Arm.SOURCE_ONLY


def gate_open(fleet: GlobalControl, control: ProjectControl) -> bool:
    """Whether rows may move: the fleet and the project's narrow gate are both open."""
    return fleet.mode is Mode.ENABLED and control.mode is Mode.ENABLED
