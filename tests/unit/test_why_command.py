"""``statlib why`` names a gate by what it asks for, and a reason only where one is closed."""

from __future__ import annotations

from uuid import UUID

from statlib.admin.wire_records import Gate, Why
from statlib.cli.why import NAMES, lines_of
from statlib.statistics.overlay import OverlayRefusal
from statlib.statistics.reasons import ServeReason
from statlib.statistics.why import GUARD_GATES, OVERLAY_GATES, PROJECT_GATES, ROW_GATES
from statlib.statistics.why import Gate as StatisticsGate


def test_every_gate_has_a_name_of_its_own() -> None:
    assert NAMES.keys() == {reason.name for reason in (*PROJECT_GATES, *GUARD_GATES, *ROW_GATES, *OVERLAY_GATES)}
    assert len(set(NAMES.values())) == len(NAMES)


def test_a_reason_is_shown_beside_a_closed_gate_alone() -> None:
    gates = (
        StatisticsGate(ServeReason.FleetDisabled, None, 1),
        StatisticsGate(ServeReason.ProjectDisabled, None, 0),
        StatisticsGate(ServeReason.RowMissing, "Reading", 1, ("project",)),
        StatisticsGate(ServeReason.PendingOverlayUnavailable, "Reading", 1, detail=OverlayRefusal.OVERFLOW),
    )
    found = Why(
        project=UUID(int=9), served=False, reason="FleetDisabled", remedy=None,
        families=("Reading",), scopes=1, gates=tuple(map(Gate.of, gates)),
    )  # fmt: skip
    assert [" ".join(line.split()) for line in lines_of(found)] == [
        "served from the source: FleetDisabled (Reading; 1 scope)",
        "",
        "fleet mode CLOSED: FleetDisabled",
        ServeReason.FleetDisabled.remedy,
        "narrow gate open",
        "Reading rows published CLOSED: RowMissing for 1 of 1 scope: project",
        ServeReason.RowMissing.remedy,
        "Reading pending saves CLOSED: PendingOverlayUnavailable (Overflow)",
        ServeReason.PendingOverlayUnavailable.remedy,
    ]
