"""What operators see of a row through the boundary, and what they can ask it in each of its states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from statlib.admin.principals import Capability
from statlib.backfills.claims import acquire, release
from statlib.backfills.definitions import RetryPolicy
from statlib.backfills.lifecycle import Lifecycle, Operator
from tests.backfilling import FOLD_NOTES, Bench, shaped
from tests.boundaries import new_request_id
from tests.integration.backfills.conftest import Steered

Steering = Callable[..., Steered]
FORGETFUL = shaped(
    mutate=FOLD_NOTES.mutate + " AND place <> 2", required=True, retry=RetryPolicy(attempts_max=3, backoff_s=0.001)
)


@pytest.mark.req("BF-AUTH-16", "BF-ADMIN-05", "BF-ADMIN-06", "BF-ADMIN-07", "BF-ADMIN-08")
def test_the_boundary_shows_lifecycle_progress_ownership_diagnostics_validation_and_gate(steered: Steering) -> None:
    s = steered(FORGETFUL)
    b = s.bench
    with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client:
        b.start()
        claimed = acquire(b.postgres, b.registry, "owner")
        assert claimed is not None
        held = client.data_backfill(b.id)
        assert (held.lifecycle, held.bound, held.checkpoint) == ("running", (3, 5), None)
        assert (held.claimed, held.claim_owner, held.generation) == (True, "owner", claimed.claim.generation)
        assert held.claim_expires_at_utc is not None
        assert held.claim_expires_at_utc > held.observed_at_utc
        assert held.started_at_utc is not None
        assert (held.eligible, held.required, held.gating) == (False, True, False)
        release(b.postgres, claimed.claim)
        assert client.data_backfill(b.id).eligible
        assert b.drive() == "failed"
        verdict = client.validate_backfill(b.id, request_id="asked-for")
        shown = client.data_backfill(b.id)
    assert (shown.checkpoint, shown.rows_selected, shown.rows_changed, shown.batches) == ((3, 5), 15, 12, 4)
    assert (shown.failure_kind, shown.attempts, shown.diagnosed_at_utc is None) == ("validation", 1, False)
    assert (shown.validation_outcome, shown.validation_diagnostic) == ("failure", shown.diagnostic)
    assert (shown.explicit_outcome, shown.explicit_disposition) == (verdict.outcome, verdict.disposition)
    assert (shown.explicit_request_id, shown.explicit_lifecycle) == ("asked-for", "failed")
    assert shown.explicit_at_utc is not None
    assert shown.audit_id is not None
    assert {one.audit_id for one in client_audit(s)} >= {shown.audit_id}


def client_audit(s: Steered) -> list[Any]:
    with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client:
        return list(client.backfill_audit(s.bench.id))


def put_into(b: Bench, state: Lifecycle) -> None:
    b.start()
    if state is Lifecycle.PAUSED:
        b.ask(Operator.PAUSE)
    elif state in {Lifecycle.VALIDATING, Lifecycle.COMPLETED}:
        b.mutate_all()
    elif state in {Lifecycle.BLOCKED, Lifecycle.FAILED}:
        b.database.admin(f"UPDATE statlib_backfill SET lifecycle = '{state}'")
    if state is Lifecycle.COMPLETED:
        assert b.drive() == "completed"
    assert b.lifecycle() == state


@pytest.mark.req("BF-ADMIN-30", "BF-ADMIN-31", "BF-ADMIN-32", "BF-ADMIN-24")
@pytest.mark.parametrize("state", [one for one in Lifecycle if one is not Lifecycle.PENDING])
def test_a_validation_may_be_asked_for_in_every_state_and_moves_a_validating_row_alone(
    steered: Steering, state: Lifecycle
) -> None:
    s = steered(FOLD_NOTES)
    put_into(s.bench, state)
    kept = s.bench.database.admin("SELECT to_jsonb(b) FROM statlib_backfill b")
    done = state in {Lifecycle.VALIDATING, Lifecycle.COMPLETED}
    with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client:
        found = client.validate_backfill(s.bench.id)
    assert (found.outcome, found.disposition) == ("success" if done else "failure", "completed")
    if state is Lifecycle.VALIDATING:
        assert s.bench.lifecycle() == "completed"
    else:
        assert s.bench.database.admin("SELECT to_jsonb(b) FROM statlib_backfill b") == kept


@pytest.mark.req("BF-AUTH-03")
@pytest.mark.parametrize("part", ["mutate", "validate", "select", "source", "bound", "definition"])
def test_no_request_brings_a_definition_or_a_part_of_one(steered: Steering, part: str) -> None:
    s = steered(FOLD_NOTES)
    with s.boundary.http(s.boundary.token(Capability.DEPLOYMENT_OPERATOR)) as http:
        path = f"/api/admin/backfills/{s.bench.id}"
        for operator in Operator:
            body = {part: "UPDATE note SET text = ''"}
            assert http.post(f"{path}/{operator}", json=body, headers=new_request_id()).status_code == 422
        for method in ("POST", "PUT", "PATCH"):
            assert http.request(method, path, json={}, headers=new_request_id()).status_code == 405
    assert s.bench.lifecycle() == "pending"
