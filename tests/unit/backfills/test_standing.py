"""What gauges show is added up from PostgreSQL's groups, and every value is there, also at nought."""

from __future__ import annotations

from typing import Any

from statlib.backfills.failures import FailureKind
from statlib.backfills.lifecycle import Lifecycle
from statlib.backfills.standing import ClaimStanding, Gate, Proof, Rows, added_up
from statlib.backfills.telemetry import Phase


def group(lifecycle: Lifecycle, **given: Any) -> dict[str, Any]:
    nought = dict.fromkeys(
        ("batches", "rows_selected", "rows_changed", "execution_ms", "validation_ms", "claims_held", "claims_run_out"),
        0,
    )
    told = {"lifecycle": lifecycle.value, "failure_kind": "none", "validation": "unknown", "backfills": 1, "retried": 0}
    return nought | told | {"since_progress_s": None} | given


def test_nothing_registered_is_nought_of_everything() -> None:
    found = added_up([], Gate.OFF)
    assert set(found.lifecycles) == set(Lifecycle)
    assert set(found.failures) == set(FailureKind) - {FailureKind.NONE}
    assert not any(found.lifecycles.values())
    assert (found.stalled_s, found.gate) == (0.0, Gate.OFF)


def test_groups_are_added_up() -> None:
    found = added_up(
        [
            group(Lifecycle.RUNNING, claims_held=1, rows_selected=7, rows_changed=5, since_progress_s=3.0, backfills=2),
            group(Lifecycle.VALIDATING, claims_run_out=1, validation_ms=1_500, since_progress_s=9.0, retried=1),
            group(Lifecycle.FAILED, failure_kind="validation", validation="failure", since_progress_s=5_000.0),
            group(Lifecycle.COMPLETED, validation="success", rows_selected=3, execution_ms=250),
        ],
        Gate.GATED,
    )
    assert (found.lifecycles[Lifecycle.RUNNING], found.lifecycles[Lifecycle.PENDING]) == (2, 0)
    assert found.rows == {Rows.SELECTED: 10, Rows.CHANGED: 5}
    assert found.claims == {ClaimStanding.HELD: 1, ClaimStanding.RUN_OUT: 1}
    assert found.stalled_s == 9.0, "what rests is not stalled"
    assert found.retried == 1
    assert found.failures[FailureKind.VALIDATION] == 1
    assert found.proofs == {Proof.SUCCESS: 1, Proof.FAILURE: 1, Proof.UNKNOWN: 3}
    assert found.spent_s == {Phase.EXECUTION: 0.25, Phase.VALIDATION: 1.5}
