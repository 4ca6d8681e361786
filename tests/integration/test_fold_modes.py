"""Fold mode: what enabling, disabling and resetting each change, refuse and record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from statlib.kernel.refusals import Reason, Refusal
from statlib.kernel.settings import Settings
from statlib.passes.audit import AUDIT
from statlib.review.catalogue import REVIEW
from statlib.statistics.backfill import backfill_together
from statlib.statistics.bounds import HEARTBEAT_LIVE_S, MEMBER_LIVE_S
from statlib.statistics.documents import (
    CONTROL,
    GLOBAL_CONTROL,
    GUARD,
    MEMBER,
    OUTBOX,
    FoldMode,
    Mode,
    ProjectControl,
)
from statlib.statistics.fold_modes import disable_fold, enable_fold, reset_fold
from statlib.statistics.hosts import Host, Role
from statlib.statistics.modes import set_narrow_gate
from statlib.statistics.pending import FOLD_PROTOCOL
from statlib.statistics.pending_index import PENDING_INDEX, IndexState, build_pending_index, index_state
from statlib.statistics.reasons import OperateReason, ServeReason
from tests.folding import fold_off, heartbeat
from tests.reviews import ALL_FAMILIES, Review, action, host_of, review, settings_for

CLOCKS = ("SourceInvalidationRevision", "CommittedProjectionRevision", "ClientInvalidationRevision", "OpeningCount")
FOLDING = sorted(REVIEW.folding)
TRIPPED = 1 + 1_000 + FOLD_PROTOCOL


def enable(of: Review, host: Host | None = None, project: UUID | None = None) -> ProjectControl:
    return enable_fold(host or of.host, REVIEW, project or of.project, action("enable"))


def disable(of: Review) -> ProjectControl:
    return disable_fold(of.host, REVIEW, of.project, action("disable"))


def reset(of: Review, host: Host | None = None) -> ProjectControl:
    return reset_fold(host or of.host, REVIEW, of.project, action("reset"))


@pytest.fixture
def foldable(emptied: Settings) -> Iterator[Review]:
    """A review with all that fold mode needs: hosts of both roles, the index, a live worker."""
    with ExitStack() as stack:
        opened = stack.enter_context(review(emptied, families=ALL_FAMILIES, members=2, fold=True))
        stack.enter_context(host_of(opened.mongo.settings, Role.PROJECT_MANAGEMENT))
        build_pending_index(opened.mongo, REVIEW)
        heartbeat(opened.mongo)
        yield opened
        if index_state(opened.mongo, REVIEW) is not IndexState.ABSENT:
            opened.mongo.collection(REVIEW.source_collection).drop_index(PENDING_INDEX)


@pytest.fixture
def served(foldable: Review) -> Review:
    """And every family of it is served."""
    backfill_together(foldable.host, REVIEW, foldable.project, ALL_FAMILIES)
    return foldable


def guards(of: Review) -> dict[str, dict[str, Any]]:
    return {guard["_id"]["Family"]: guard for guard in of.mongo.collection(GUARD).find({"_id.ProjectId": of.project})}


def slots(of: Review) -> dict[str, int]:
    found = of.mongo.collection(OUTBOX).find({"_id.ProjectId": of.project})
    return {slot["_id"]["Family"]: slot["ClientInvalidationRevision"] for slot in found}


def audits(of: Review) -> list[dict[str, Any]]:
    return list(of.mongo.collection(AUDIT).find({"Target": "target"}).sort("_id", 1))


def moved(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in CLOCKS}


def pass_grace(of: Review) -> None:
    of.mongo.clock.advance(of.mongo.settings.statistics.opening_grace_s + 1)


def recent(at: datetime, of: Review) -> bool:
    now = datetime.now(UTC).timestamp() + of.mongo.clock.offset_ms / 1000
    return abs(now - at.timestamp()) < 30


# --- enabling --------------------------------------------------------------------------------------------------------


@pytest.mark.req("MODE-03", "MODE-12", "MODE-13", "MODE-14", "TRIP-01", "TRIP-12")
def test_enabling_stamps_opens_and_outdates_every_family_that_folds(served: Review) -> None:
    served.mongo.collection(GUARD).delete_one({"_id.ProjectId": served.project, "_id.Family": "StageAnnotation"})
    served.mongo.collection(OUTBOX).delete_many({})
    before, guarded = served.control(), guards(served)
    enabled = enable(served)
    after = served.control()
    assert (after["FoldMode"], after["FoldProtocolVersion"], after["FoldEverEnabled"]) == (
        "Enabled",
        FOLD_PROTOCOL,
        True,
    )
    assert after["StorageVersion"] == TRIPPED
    assert recent(after["FoldEnabledAtUtc"], served)
    assert after["OpenedAtUtc"] == after["FoldEnabledAtUtc"]
    assert moved(before, after) == dict(zip(CLOCKS, (1, 0, 1, 1), strict=True))
    assert after["Audit"]["Version"] == before["Audit"]["Version"] + 1
    assert {name: after[name] for name in ("SourceVersion", "CatalogueVersion", "Mode")} == {
        name: before[name] for name in ("SourceVersion", "CatalogueVersion", "Mode")
    }
    for family, guard in guards(served).items():
        if family == "SearchPopulation":
            assert guard == guarded[family]
            continue
        assert guard["State"] == "Stale"
        if family != "StageAnnotation":
            assert guard["FamilyWriteEpoch"] == guarded[family]["FamilyWriteEpoch"] + 1
    assert sorted(guards(served)) == sorted(ALL_FAMILIES)
    assert slots(served) == dict.fromkeys(FOLDING, after["ClientInvalidationRevision"])
    record = audits(served)[-1]
    assert (record["Action"], record["Outcome"], record["Generation"]) == ("enable", "Accepted", enabled.opening_count)
    assert (record["Before"]["foldMode"], record["After"]["foldMode"]) == ("Disabled", "Enabled")


@pytest.mark.req("MODE-21")
def test_enabling_what_is_enabled_changes_nothing_and_is_on_record(served: Review) -> None:
    enable(served)
    before, guarded = served.control(), guards(served)
    heartbeats_of(served, age_s=HEARTBEAT_LIVE_S + 1)  # what an enabling needs is not asked of one that does nothing
    enable(served)
    assert (served.control(), guards(served)) == (before, guarded)
    record = audits(served)[-1]
    assert (record["Outcome"], record["Before"]) == ("Accepted", record["After"])


def test_of_several_that_enable_at_once_one_opens(foldable: Review) -> None:
    before = foldable.control()
    with ThreadPoolExecutor(4) as pool:
        turned = [turning.result(timeout=60) for turning in [pool.submit(enable, foldable) for _ in range(4)]]
    assert moved(before, foldable.control())["OpeningCount"] == 1
    assert {one.opening_count for one in turned} == {before["OpeningCount"] + 1}
    assert [record["Outcome"] for record in audits(foldable)[-4:]] == ["Accepted"] * 4


@pytest.mark.req("MODE-20")
def test_a_closed_narrow_gate_does_not_keep_fold_mode_from_being_enabled(foldable: Review) -> None:
    foldable.gate(enabled=False)
    assert enable(foldable).mode is Mode.DISABLED
    assert foldable.control()["FoldMode"] == "Enabled"


@pytest.mark.req("MODE-15", "MODE-16")
def test_after_the_grace_an_ordinary_backfill_serves_every_family_again(served: Review) -> None:
    enable(served)
    assert served.read_all().reason is ServeReason.GuardNotFresh
    with pytest.raises(Refusal, match="WriterGracePending"):
        served.backfill()
    pass_grace(served)
    backfill_together(served.host, REVIEW, served.project, ALL_FAMILIES)
    bundle = served.read_all()
    assert bundle.reason is None
    assert {family: dict(bundle.values[family]) for family in ALL_FAMILIES} == served.whole_truth()


# --- what enabling, and a reset of a project that folds, refuse -------------------------------------------------------


def heartbeats_of(of: Review, age_s: float) -> None:
    at = {"$add": [of.mongo.clock.mongo_now(), round(-age_s * 1000)]}
    of.mongo.collection(GLOBAL_CONTROL).update_one(
        {}, [{"$set": {f"FoldWorkerHeartbeats.{FOLD_PROTOCOL}.RenewedAtUtc": at}}]
    )


def a_member(of: Review, **fields: Any) -> None:
    """A live host of the API, as another release may have written it."""
    stage = {
        "Deployment": "api", "Host": "elsewhere", "Pid": 1, "BinaryVersion": "0", "Allowlist": [], "Writes": True,
        "Families": [], "Fold": True, "FoldProtocols": [FOLD_PROTOCOL], **fields,
    }  # fmt: skip
    literal = {name: {"$literal": value} for name, value in stage.items() if value is not None}
    of.mongo.collection(MEMBER).update_one(
        {"_id": "another"}, [{"$set": {**literal, "RenewedAtUtc": of.mongo.clock.mongo_now()}}], upsert=True
    )


def no_index(of: Review) -> None:
    of.mongo.collection(REVIEW.source_collection).drop_index(PENDING_INDEX)


def an_older_release(of: Review) -> None:
    a_member(of, Fold=None, FoldProtocols=None)


def a_lower_protocol(of: Review) -> None:
    a_member(of, FoldProtocols=[FOLD_PROTOCOL - 1])


def a_higher_protocol_only(of: Review) -> None:
    a_member(of, FoldProtocols=[FOLD_PROTOCOL + 1])


def a_host_that_does_not_fold(of: Review) -> None:
    a_member(of, Fold=False, Allowlist=[of.project])


def no_heartbeat(of: Review) -> None:
    of.mongo.collection(GLOBAL_CONTROL).update_one({}, {"$unset": {"FoldWorkerHeartbeats": 1}})


def an_old_heartbeat(of: Review) -> None:
    heartbeats_of(of, HEARTBEAT_LIVE_S + 1)


def a_heartbeat_of_another_protocol(of: Review) -> None:
    no_heartbeat(of)
    heartbeat(of.mongo, FOLD_PROTOCOL + 1)


def nobody_serves(of: Review) -> None:
    """Only hosts of the other role are live."""
    of.mongo.collection(MEMBER).update_many({}, {"$set": {"Deployment": "project-management"}})


IN_THE_WAY: list[tuple[Callable[[Review], None], OperateReason, str]] = [
    (no_index, OperateReason.PendingIndexMissing, "absent"),
    (an_older_release, OperateReason.FoldFleetUnsupported, "another"),
    (a_lower_protocol, OperateReason.FoldFleetUnsupported, "lowest protocol among live hosts is 0"),
    (a_higher_protocol_only, OperateReason.FoldFleetUnsupported, "not declared by: another"),
    (a_host_that_does_not_fold, OperateReason.FoldFleetUnsupported, "statistics.fold is off on: another"),
    (no_heartbeat, OperateReason.FoldFleetUnsupported, "no live fold worker"),
    (an_old_heartbeat, OperateReason.FoldFleetUnsupported, "no live fold worker"),
    (a_heartbeat_of_another_protocol, OperateReason.FoldFleetUnsupported, "no live fold worker"),
    (nobody_serves, OperateReason.FoldFleetUnsupported, "no live host of api"),
]


def refused(of: Review, turn: Callable[[Review], object]) -> Refusal:
    """What it refuses; nothing has been changed by it."""
    before = of.control(), guards(of), slots(of), audits(of)
    with pytest.raises(Refusal) as caught:
        turn(of)
    assert (of.control(), guards(of), slots(of), audits(of)) == before
    return caught.value


@pytest.mark.req("MODE-06", "MODE-07", "MODE-22", "MODE-23", "MEMBER-10", "ENTRY-65", "TRIP-10")
@pytest.mark.parametrize(("put", "reason", "told"), IN_THE_WAY, ids=[put.__name__ for put, _, _ in IN_THE_WAY])
def test_enabling_refuses_what_is_in_the_way(
    foldable: Review, put: Callable[[Review], None], reason: Reason, told: str
) -> None:
    put(foldable)
    refusal = refused(foldable, enable)
    assert refusal.reason is reason
    assert told in refusal.detail


@pytest.mark.req("MODE-32")
@pytest.mark.parametrize(("put", "reason", "told"), IN_THE_WAY[:2], ids=["no_index", "an_older_release"])
@pytest.mark.parametrize("turn", [enable, lambda of: (enable(of), disable(of))], ids=["Enabled", "Disabling"])
def test_a_reset_of_what_folds_refuses_what_enabling_does(
    foldable: Review, turn: Callable[[Review], object], put: Callable[[Review], None], reason: Reason, told: str
) -> None:
    turn(foldable)
    put(foldable)
    refusal = refused(foldable, reset)
    assert refusal.reason is reason
    assert told in refusal.detail


@pytest.mark.req("MEMBER-08")
def test_a_host_that_ended_or_is_no_longer_live_keeps_nobody_from_enabling(foldable: Review) -> None:
    an_older_release(foldable)
    late = {"$subtract": [foldable.mongo.clock.mongo_now(), round((MEMBER_LIVE_S + 1) * 1000)]}
    foldable.mongo.collection(MEMBER).update_one({"_id": "another"}, [{"$set": {"RenewedAtUtc": late}}])
    assert enable(foldable).fold_mode is FoldMode.ENABLED


@pytest.mark.req("MEMBER-01")
def test_a_record_of_another_deployment_is_ignored(foldable: Review) -> None:
    a_member(foldable, Deployment="scheduler", FoldProtocols=None)
    assert enable(foldable).fold_mode is FoldMode.ENABLED


def test_a_host_that_folds_without_the_project_under_statistics_need_not_have_the_flag(foldable: Review) -> None:
    a_member(foldable, Fold=False, Allowlist=[])
    assert enable(foldable).fold_mode is FoldMode.ENABLED


@pytest.mark.req("MODE-19", "MODE-33")
def test_a_host_that_excludes_the_project_may_reset_it_but_not_enable_it(foldable: Review, emptied: Settings) -> None:
    with host_of(settings_for(emptied, fold=True)) as excluding:
        refusal = refused(foldable, lambda of: enable(of, excluding))
        assert refusal.reason is OperateReason.SettingsExclude
        enable(foldable)
        before = foldable.control()
        reset(foldable, excluding)
    assert moved(before, foldable.control())["SourceInvalidationRevision"] == 1


def test_what_does_not_exist_is_refused(foldable: Review) -> None:
    for turn in (enable_fold, disable_fold, reset_fold):
        with pytest.raises(Refusal, match="ProjectNotFound"):
            turn(foldable.host, REVIEW, uuid4(), action())
        foldable.mongo.collection(CONTROL).delete_one({"_id": foldable.project})
        with pytest.raises(Refusal, match="ControlMissing"):
            turn(foldable.host, REVIEW, foldable.project, action())


@pytest.mark.req("TRIP-16")
@pytest.mark.parametrize("fields", [{"StorageVersion": 2}, {"CatalogueVersion": 0}, {"StorageVersion": 1_001}])
def test_versions_of_another_release_are_not_stamped_over(foldable: Review, fields: dict[str, int]) -> None:
    foldable.mongo.collection(CONTROL).update_one({"_id": foldable.project}, {"$set": fields})
    assert refused(foldable, enable).reason is ServeReason.VersionIncompatible


@pytest.mark.req("MODE-08", "MODE-11")
def test_a_domain_whose_saves_do_not_fold_is_refused_whatever_its_settings_say(foldable: Review) -> None:
    unable = replace(REVIEW, transitions=None)
    refusal = refused(foldable, lambda of: enable_fold(of.host, unable, of.project, action()))
    assert refusal.reason is OperateReason.FoldCoverageIncomplete


# --- disabling -------------------------------------------------------------------------------------------------------


@pytest.mark.req("MODE-21", "MODE-24")
def test_disabling_begins_with_the_time_and_touches_nothing_else(served: Review) -> None:
    enable(served)
    before, guarded, told = served.control(), guards(served), slots(served)
    served.mongo.clock.advance(5)
    disable(served)
    after = served.control()
    assert after["FoldMode"] == "Disabling"
    assert recent(after["FoldDisablingSinceUtc"], served)
    assert after["FoldDisablingSinceUtc"] > after["FoldEnabledAtUtc"]
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"FoldMode", "FoldDisablingSinceUtc", "Audit"}
    assert (guards(served), slots(served)) == (guarded, told)
    assert (audits(served)[-1]["Before"]["foldMode"], audits(served)[-1]["After"]["foldMode"]) == (
        "Enabled", "Disabling",
    )  # fmt: skip
    disable(served)
    assert served.control() == after, "it began once"
    assert audits(served)[-1]["Before"] == audits(served)[-1]["After"]
    assert refused(served, enable).reason is OperateReason.FoldDisabling


def test_disabling_what_never_folded_changes_nothing(foldable: Review) -> None:
    before = foldable.control()
    disable(foldable)
    assert foldable.control() == before
    assert audits(foldable)[-1]["Outcome"] == "Accepted"


@pytest.mark.req("MODE-24")
def test_disabling_needs_no_worker_and_no_index(foldable: Review) -> None:
    enable(foldable)
    no_heartbeat(foldable)
    no_index(foldable)
    assert disable(foldable).fold_mode is FoldMode.DISABLING


@pytest.mark.req("MODE-03")
def test_enabled_again_after_it_was_disabled_it_has_a_new_time_and_another_opening(foldable: Review) -> None:
    first = enable(foldable)
    disable(foldable)
    fold_off(foldable.mongo, foldable.project)
    foldable.mongo.clock.advance(5)
    again = enable(foldable)
    assert again.opening_count == first.opening_count + 1
    assert first.fold_enabled_at_utc is not None
    assert again.fold_enabled_at_utc is not None
    assert again.fold_enabled_at_utc > first.fold_enabled_at_utc
    assert again.fold_disabling_since_utc is None


# --- resetting -------------------------------------------------------------------------------------------------------

STATES: dict[str, Callable[[Review], object]] = {
    "Enabled": enable,
    "Disabling": lambda of: (enable(of), disable(of)),
    "Disabled": lambda of: None,
}


@pytest.mark.req("MODE-34", "MODE-35", "MODE-36", "MODE-39")
@pytest.mark.parametrize("spoilt", [{}, {"StorageVersion": 1}, {"StorageVersion": 1_000, "FoldProtocolVersion": 0}])
@pytest.mark.parametrize("state", STATES)
def test_a_reset_keeps_the_mode_renews_the_tripwire_and_outdates_every_family(
    served: Review, state: str, spoilt: dict[str, int]
) -> None:
    STATES[state](served)
    served.mongo.collection(CONTROL).update_one({"_id": served.project}, {"$set": spoilt or {"Mode": "Enabled"}})
    served.mongo.collection(OUTBOX).delete_many({})
    before, guarded = served.control(), guards(served)
    reset(served)
    after = served.control()
    assert after["FoldMode"] == before["FoldMode"] == state
    if state == "Disabled":
        assert after["StorageVersion"] == 1
        assert after["FoldEverEnabled"] is False
    else:
        assert (after["StorageVersion"], after["FoldProtocolVersion"]) == (TRIPPED, FOLD_PROTOCOL)
    assert moved(before, after) == dict(zip(CLOCKS, (1, 0, 1, 1), strict=True))
    assert recent(after["OpenedAtUtc"], served)
    for name in ("FoldEnabledAtUtc", "FoldDisablingSinceUtc", "FoldEverEnabled", "Mode", "CatalogueVersion"):
        assert after[name] == before[name]
    assert sorted(guarded) == sorted(ALL_FAMILIES)
    for family, guard in guards(served).items():
        assert guard["State"] == "Stale"
        assert guard["FamilyWriteEpoch"] == guarded[family]["FamilyWriteEpoch"] + 1
    assert slots(served) == dict.fromkeys(ALL_FAMILIES, after["ClientInvalidationRevision"])
    record = audits(served)[-1]
    assert (record["Action"], record["Outcome"]) == ("reset", "Accepted")


def test_a_reset_of_what_is_disabled_asks_for_nothing(foldable: Review) -> None:
    for put, _, _ in IN_THE_WAY:
        put(foldable)
    assert reset(foldable).fold_mode is FoldMode.DISABLED


# --- the narrow gate of a project that folds --------------------------------------------------------------------------


@pytest.mark.req("TRIP-19")
def test_closing_and_opening_the_narrow_gate_keeps_the_tripwire(foldable: Review) -> None:
    enable(foldable)
    foldable.gate(enabled=False)
    assert foldable.control()["StorageVersion"] == TRIPPED
    foldable.gate(enabled=True)
    assert (foldable.control()["StorageVersion"], foldable.control()["FoldMode"]) == (TRIPPED, "Enabled")


@pytest.mark.req("TRIP-20")
def test_the_narrow_gate_does_not_open_past_a_tripwire_that_is_not_as_it_should_be(foldable: Review) -> None:
    enable(foldable)
    foldable.gate(enabled=False)
    foldable.mongo.collection(CONTROL).update_one({"_id": foldable.project}, {"$set": {"StorageVersion": 1}})
    refusal = refused(foldable, lambda of: of.gate(enabled=True))
    assert refusal.reason is ServeReason.VersionIncompatible
    assert "fold reset" in refusal.remedy
    reset(foldable)
    foldable.gate(enabled=True)
    assert (foldable.control()["Mode"], foldable.control()["StorageVersion"]) == ("Enabled", TRIPPED)


@pytest.mark.req("TRIP-20")
def test_the_narrow_gate_of_what_ever_folded_is_not_opened_by_a_host_that_excludes_it(
    foldable: Review, emptied: Settings
) -> None:
    foldable.gate(enabled=False)
    with host_of(settings_for(emptied)) as excluding:
        set_narrow_gate(excluding.mongo, REVIEW, foldable.project, enabled=True, action=action())
        enable(foldable)
        fold_off(foldable.mongo, foldable.project)
        foldable.gate(enabled=False)
        with pytest.raises(Refusal, match="SettingsExclude"):
            set_narrow_gate(excluding.mongo, REVIEW, foldable.project, enabled=True, action=action())
    foldable.gate(enabled=True)
