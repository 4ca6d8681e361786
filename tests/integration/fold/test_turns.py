"""A turn of the fold: stored rows catch up with what saves left in their documents, exactly and once."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from statlib.cli.main import main
from statlib.kernel.settings import Settings
from statlib.review.catalogue import REVIEW
from statlib.statistics.fold.turn import Stopped, fold_project
from tests.children import _as_environment
from tests.folded import decide, declared, fresh
from tests.folding import fold_on, pending
from tests.reviews import ALL_FAMILIES, review


def test_a_turn_applies_what_was_pending_and_leaves_a_receipt_of_each(settings: Settings) -> None:
    with review(settings, studies=3, members=2, families=ALL_FAMILIES) as r:
        r.backfill_all()
        fold_on(r.mongo, r.project)
        before = r.control()
        entries = [decide(r, study, who) for study in r.studies for who in r.members]
        folded = fold_project(r.host, REVIEW, r.project)
        assert (folded.stopped, folded.batches, folded.entries) == (Stopped.DRAINED, 1, 6)
        assert pending(r.mongo, r.project) == {}
        assert fresh(r) == declared(r)
        assert {one["OperationId"] for one in r.receipts()} == {entry.operation_id for entry in entries}
        after = r.control()
        for clock in ("SourceInvalidationRevision", "CommittedProjectionRevision", "ClientInvalidationRevision"):
            assert after[clock] == before[clock] + 1


def test_the_command_drains_once_and_says_what_it_did(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with review(settings, studies=3, members=2, families=ALL_FAMILIES) as r:
        r.backfill_all()
        fold_on(r.mongo, r.project)
        for study in r.studies:
            decide(r, study, r.members[0], created_at_utc=datetime.now(UTC))
        for name, value in _as_environment(r.mongo.settings).items():
            monkeypatch.setenv(name, value)
        answered = CliRunner().invoke(main, ["worker", "fold", "--once", "--json"])
        assert answered.exit_code == 0, answered.output
        assert json.loads(answered.output) == {
            "batches": 1, "documents": 3, "entries": 3, "quarantined": 0, "disabled": 0, "left": {}
        }  # fmt: skip
        assert fresh(r) == declared(r)
