"""Which arm an attempt takes, and when the rows may move."""

from __future__ import annotations

from itertools import product
from uuid import UUID

import pytest

from statlib.kernel.refusals import Refusal
from statlib.statistics.arms import Arm, choose, gate_open
from statlib.statistics.documents import FoldMode, GlobalControl, Mode, ProjectControl
from statlib.statistics.pending import FOLD_PROTOCOL
from statlib.statistics.reasons import SaveReason

PROJECT = UUID(int=1)


def control(mode: Mode) -> ProjectControl:
    return ProjectControl(id=PROJECT, mode=mode)


@pytest.mark.parametrize(
    ("included", "mode", "arm"),
    [
        (True, Mode.ENABLED, Arm.TRANSACTIONAL),
        (True, Mode.DISABLED, Arm.TRANSACTIONAL),
        (True, None, Arm.SOURCE_ONLY),
        (False, None, Arm.SOURCE_ONLY),
        (False, Mode.DISABLED, Arm.SOURCE_ONLY),
    ],
)
def test_the_arm_follows_the_settings_and_the_control(included: bool, mode: Mode | None, arm: Arm) -> None:
    assert choose(included=included, control=control(mode) if mode else None) is arm


@pytest.mark.req("SAVE-13", "SAVE-15", "SAVE-16")
@pytest.mark.parametrize(
    ("flag", "fold_mode", "protocol", "gate"),
    list(product((True, False), FoldMode, (FOLD_PROTOCOL, FOLD_PROTOCOL + 1), Mode)),
)
def test_a_save_folds_where_flag_mode_and_protocol_agree_whatever_the_gate(
    flag: bool, fold_mode: FoldMode, protocol: int, gate: Mode
) -> None:
    stored = ProjectControl(id=PROJECT, mode=gate, fold_mode=fold_mode, fold_protocol_version=protocol)
    folds = flag and fold_mode is FoldMode.ENABLED and protocol == FOLD_PROTOCOL
    assert choose(included=True, control=stored, fold=flag) is (Arm.FOLD if folds else Arm.TRANSACTIONAL)


def test_a_host_that_excludes_a_project_under_statistics_refuses_to_save_there() -> None:
    with pytest.raises(Refusal) as refused:
        choose(included=False, control=control(Mode.ENABLED))
    assert refused.value.reason is SaveReason.GateSkew
    assert str(PROJECT) in refused.value.detail


@pytest.mark.parametrize(("fleet", "project"), list(product(Mode, Mode)))
def test_rows_move_only_behind_two_open_gates(fleet: Mode, project: Mode) -> None:
    expected = fleet is project is Mode.ENABLED
    assert gate_open(GlobalControl(mode=fleet), control(project)) is expected
