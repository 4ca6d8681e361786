"""Fold mode: what enabling, disabling and resetting each change, refuse and record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from statlib.kernel.settings import Settings
from statlib.passes.audit import AUDIT
from statlib.review.catalogue import REVIEW
from statlib.statistics.documents import GUARD, OUTBOX, ProjectControl
from statlib.statistics.fold_modes import disable_fold, enable_fold, reset_fold
from statlib.statistics.hosts import Host, Role
from statlib.statistics.pending import FOLD_PROTOCOL
from statlib.statistics.pending_index import PENDING_INDEX, IndexState, build_pending_index, index_state
from tests.folding import heartbeat
from tests.reviews import ALL_FAMILIES, Review, action, host_of, review

CLOCKS = ("SourceInvalidationRevision", "CommittedProjectionRevision", "ClientInvalidationRevision", "OpeningCount")
FOLDING = sorted(REVIEW.folding)


def enable(of: Review, host: Host | None = None, project: UUID | None = None) -> ProjectControl:
    return enable_fold(host or of.host, REVIEW, project or of.project, action("enable"))


def disable(of: Review) -> ProjectControl:
    return disable_fold(of.host, REVIEW, of.project, action("disable"))


def reset(of: Review, host: Host | None = None) -> ProjectControl:
    return reset_fold(host or of.host, REVIEW, of.project, action("reset"))


@pytest.fixture
def foldable(emptied: Settings) -> Iterator[Review]:
    """A served review with all that fold mode needs: hosts of both roles, the index, a live worker."""
    with ExitStack() as stack:
        opened = stack.enter_context(review(emptied, families=ALL_FAMILIES, members=2, fold=True))
        stack.enter_context(host_of(opened.mongo.settings, Role.PROJECT_MANAGEMENT))
        build_pending_index(opened.mongo, REVIEW)
        heartbeat(opened.mongo)
        opened.backfill_all()
        assert opened.read_all().reason is None
        yield opened
        if index_state(opened.mongo, REVIEW) is not IndexState.ABSENT:
            opened.mongo.collection(REVIEW.source_collection).drop_index(PENDING_INDEX)


def guards(of: Review) -> dict[str, dict[str, Any]]:
    return {guard["_id"]["Family"]: guard for guard in of.mongo.collection(GUARD).find({"_id.ProjectId": of.project})}


def slots(of: Review) -> dict[str, int]:
    found = of.mongo.collection(OUTBOX).find({"_id.ProjectId": of.project})
    return {slot["_id"]["Family"]: slot["ClientInvalidationRevision"] for slot in found}


def audits(of: Review) -> list[dict[str, Any]]:
    return list(of.mongo.collection(AUDIT).find({"Target": "target"}).sort("_id", 1))


def moved(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in CLOCKS}


def recent(at: datetime, of: Review) -> bool:
    now = datetime.now(UTC).timestamp() + of.mongo.clock.offset_ms / 1000
    return abs(now - at.timestamp()) < 30


# --- enabling --------------------------------------------------------------------------------------------------------


@pytest.mark.req("MODE-03", "MODE-12", "MODE-13", "MODE-14", "TRIP-01", "TRIP-12")
def test_enabling_stamps_opens_and_outdates_every_family_that_folds(foldable: Review) -> None:
    foldable.mongo.collection(GUARD).delete_one({"_id.ProjectId": foldable.project, "_id.Family": "StageAnnotation"})
    foldable.mongo.collection(OUTBOX).delete_many({})
    before, guarded = foldable.control(), guards(foldable)
    enabled = enable(foldable)
    after = foldable.control()
    assert (after["FoldMode"], after["FoldProtocolVersion"], after["FoldEverEnabled"]) == (
        "Enabled",
        FOLD_PROTOCOL,
        True,
    )
    assert after["StorageVersion"] == 1 + 1_000 + FOLD_PROTOCOL
    assert recent(after["FoldEnabledAtUtc"], foldable)
    assert after["OpenedAtUtc"] == after["FoldEnabledAtUtc"]
    assert moved(before, after) == dict(zip(CLOCKS, (1, 0, 1, 1), strict=True))
    assert after["Audit"]["Version"] == before["Audit"]["Version"] + 1
    assert {name: after[name] for name in ("SourceVersion", "CatalogueVersion", "Mode")} == {
        name: before[name] for name in ("SourceVersion", "CatalogueVersion", "Mode")
    }
    for family, guard in guards(foldable).items():
        if family == "SearchPopulation":
            assert guard == guarded[family]
            continue
        assert guard["State"] == "Stale"
        if family != "StageAnnotation":
            assert guard["FamilyWriteEpoch"] == guarded[family]["FamilyWriteEpoch"] + 1
    assert sorted(guards(foldable)) == sorted(ALL_FAMILIES)
    assert slots(foldable) == dict.fromkeys(FOLDING, after["ClientInvalidationRevision"])
    record = audits(foldable)[-1]
    assert (record["Action"], record["Outcome"], record["Generation"]) == ("enable", "Accepted", enabled.opening_count)
    assert (record["Before"]["foldMode"], record["After"]["foldMode"]) == ("Disabled", "Enabled")
