"""Retention of backfills' audit and remembered requests: bounded, audited, and never of what is young or named."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from statlib.admin.principals import Capability
from statlib.backfills import retention
from statlib.backfills.lifecycle import Operator
from statlib.backfills.retention import Kept
from statlib.kernel.refusals import Refusal
from statlib.local.postgres import RUNTIME_ROLE
from tests.backfilling import FOLD_NOTES
from tests.integration.backfills.conftest import Steered

Steering = Callable[..., Steered]
TABLES = {Kept.AUDIT: "statlib_backfill_audit", Kept.REQUESTS: "statlib_backfill_request"}
AUDIT = """
INSERT INTO statlib_backfill_audit (principal, authority, action, stable_id, request_id, payload, outcome, before,
  after, observed_at) SELECT 'old', 'token', 'start', 'fold-notes', n::text, '{}', 'Accepted', '{}', '{}',
  clock_timestamp() - make_interval(days => %s) FROM generate_series(1, %s) n
"""
REQUEST = """
INSERT INTO statlib_backfill_request (principal, route, stable_id, request_id, digest, outcome, observed_at)
SELECT 'old', 'start', 'fold-notes', %s || '/' || n, repeat('0', 64), '{}',
  clock_timestamp() - make_interval(days => %s) FROM generate_series(1, %s) n
"""


def aged(s: Steered, kept: Kept, days: int, records: int) -> None:
    if kept is Kept.AUDIT:
        s.bench.database.admin(AUDIT, days, records)
    else:
        s.bench.database.admin(REQUEST, str(days), days, records)


def left(s: Steered, kept: Kept) -> int:
    return int(s.bench.database.admin(f"SELECT count(*) FROM {TABLES[kept]} WHERE principal = 'old'")[0][0])


@pytest.mark.parametrize(("kept", "days"), [(Kept.AUDIT, 400), (Kept.REQUESTS, 30)])
@pytest.mark.parametrize("old", [0, 3, 4])
def test_a_pass_removes_at_most_its_cap_of_what_is_older_than_its_retention(
    steered: Steering, monkeypatch: pytest.MonkeyPatch, kept: Kept, days: int, old: int
) -> None:
    monkeypatch.setattr(retention, "RETENTION_PASS_MAX", 3)
    s = steered(FOLD_NOTES)
    aged(s, kept, days - 1, 2)
    aged(s, kept, days + 1, old)
    with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client:
        pruned = client.prune_backfill_records(kept, request_id="prune-once")
        assert (pruned.removed, pruned.more) == (min(old, 3), old > 3)
        assert left(s, kept) == 2 + max(0, old - 3)
        assert client.prune_backfill_records(kept, request_id="prune-once") == pruned, "repeated, it prunes no more"
        assert left(s, kept) == 2 + max(0, old - 3)
        trail = [
            (one.action, one.outcome, one.after.get("removed")) for one in client.backfill_audit(f"records:{kept}")
        ]
    assert trail == [
        ("postBackfillRetention", "Replayed", pruned.removed),
        ("postBackfillRetention", "Accepted", pruned.removed),
    ]


def test_the_record_that_a_row_names_outlives_its_retention(steered: Steering) -> None:
    s = steered(FOLD_NOTES)
    s.bench.ask(Operator.START)
    named = s.bench.row()["auditId"]
    s.bench.database.admin("UPDATE statlib_backfill_audit SET observed_at = observed_at - interval '500 days'")
    aged(s, Kept.AUDIT, 500, 2)
    with s.boundary.client(Capability.DEPLOYMENT_OPERATOR) as client:
        assert client.prune_backfill_records(Kept.AUDIT).removed == 2
        assert named in {one.audit_id for one in client.backfill_audit(s.bench.id)}


def test_nobody_else_may_prune(steered: Steering) -> None:
    s = steered(FOLD_NOTES)
    aged(s, Kept.AUDIT, 500, 2)
    for capability in set(Capability) - {Capability.DEPLOYMENT_OPERATOR}:
        with s.boundary.client(capability) as client, pytest.raises(Refusal) as refused:
            client.prune_backfill_records(Kept.AUDIT)
        assert refused.value.reason.name == "Forbidden"
    assert left(s, Kept.AUDIT) == 2


@pytest.mark.parametrize("kept", Kept)
def test_the_runtime_role_prunes_nothing_of_the_last_day_and_no_more_than_a_pass(steered: Steering, kept: Kept) -> None:
    s = steered(FOLD_NOTES)
    aged(s, kept, 0, 3)
    aged(s, kept, 2, 1_003)
    with psycopg.connect(s.bench.database.server.address(RUNTIME_ROLE, s.bench.database.name)) as runtime:
        asked = "SELECT removed, more FROM statlib_backfill_prune(%s, clock_timestamp() + interval '9 years', 100000)"
        assert runtime.execute(asked, (kept.value,)).fetchone() == (1_000, True)
        assert runtime.execute(asked, (kept.value,)).fetchone() == (3, False)
        runtime.commit()
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            runtime.execute(asked, ("statlib_backfill",))
    assert left(s, kept) == 3
