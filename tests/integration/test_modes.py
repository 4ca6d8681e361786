"""Openings and closings: one transaction each, counted, dated by the server, audited, and outdating what is stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from pymongo.errors import DuplicateKeyError, OperationFailure

from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo
from statlib.passes.audit import AUDIT, REQUEST, recall
from statlib.statistics import modes, storage
from statlib.statistics.backfill import backfill
from statlib.statistics.documents import CONTROL, GLOBAL_CONTROL, GUARD, OUTBOX, Mode
from statlib.statistics.reader import ALL, read_bundle
from statlib.statistics.reasons import OperateReason, SaveReason, ServeReason
from tests.domain import (
    BOOKS,
    FAMILIES,
    LIBRARY,
    SHELVES,
    Library,
    library,
    library_catalogue,
    library_settings,
    served_library,
)
from tests.reviews import action, host_of
from tests.servers import fail_command


@pytest.fixture
def served(emptied: Settings) -> Iterator[Library]:
    with served_library(emptied) as opened:
        yield opened


def audits(of: Library) -> list[dict[str, Any]]:
    return list(of.mongo.collection(AUDIT).find().sort("_id", 1))


def near_server_time(of: Library, at: datetime) -> bool:
    """Within seconds of this machine's clock, which the server shares, moved by the test's offset."""
    now = datetime.now(UTC) + timedelta(milliseconds=of.mongo.clock.offset_ms)
    return abs((now - at).total_seconds()) < 20


# --- the narrow gate -------------------------------------------------------------------------------------------------


def test_opening_a_project_counts_stales_and_dates_it(served: Library) -> None:
    served.gate(enabled=False)
    before, guards = served.control(), {family: served.guard(family) for family in FAMILIES}
    served.mongo.clock.advance(1000)
    served.gate(enabled=True)
    after = served.control()
    moved = {
        name: after[name] - before[name]
        for name in (
            "OpeningCount",
            "SourceInvalidationRevision",
            "CommittedProjectionRevision",
            "ClientInvalidationRevision",
        )
    }
    assert moved == {
        "OpeningCount": 1,
        "SourceInvalidationRevision": 1,
        "CommittedProjectionRevision": 0,
        "ClientInvalidationRevision": 1,
    }
    assert after["Mode"] == "Enabled"
    assert after["Audit"]["Version"] == before["Audit"]["Version"] + 1
    assert near_server_time(served, after["OpenedAtUtc"])
    for family, guard in guards.items():
        assert served.guard(family)["State"] == "Stale"
        assert served.guard(family)["FamilyWriteEpoch"] == guard["FamilyWriteEpoch"] + 1
        assert served.guard(family)["Version"] == guard["Version"] + 1
        slot = served.mongo.collection(OUTBOX).find_one({"_id.Family": family})
        assert slot is not None
        assert slot["ClientInvalidationRevision"] == after["ClientInvalidationRevision"]


def test_closing_a_project_tells_clients_and_outdates_nothing(served: Library) -> None:
    before, guards = served.control(), {family: served.guard(family) for family in FAMILIES}
    served.gate(enabled=False)
    after = served.control()
    assert (after["Mode"], after["OpeningCount"]) == ("Disabled", before["OpeningCount"])
    assert after["SourceInvalidationRevision"] == before["SourceInvalidationRevision"]
    assert after["ClientInvalidationRevision"] == before["ClientInvalidationRevision"] + 1
    assert after.get("OpenedAtUtc") == before.get("OpenedAtUtc")
    assert {family: served.guard(family) for family in FAMILIES} == guards
    slot = served.mongo.collection(OUTBOX).find_one({"_id.Family": SHELVES})
    assert slot is not None
    assert slot["ClientInvalidationRevision"] == after["ClientInvalidationRevision"]


def test_a_first_opening_gives_the_project_a_control_and_every_family_a_stale_guard(emptied: Settings) -> None:
    with library(emptied, under_statistics=False) as new:
        new.lend(new.books[0])
        new.gate(enabled=True)
        control = new.control()
        assert (control["OpeningCount"], control["SourceInvalidationRevision"]) == (1, 1)
        assert (control["CatalogueVersion"], control["StorageVersion"], control["SourceVersion"]) == (1, 1, 1)
        assert {family: new.guard(family)["State"] for family in FAMILIES} == dict.fromkeys(FAMILIES, "Stale")
        new.pass_grace()
        new.backfill_all()
        assert new.read().values[SHELVES] == new.truth(SHELVES)


@pytest.mark.parametrize("enabled", [True, False])
def test_setting_the_mode_that_holds_changes_nothing_and_is_audited(served: Library, *, enabled: bool) -> None:
    served.gate(enabled=enabled)
    before = served.statistics(without=(AUDIT, REQUEST))
    accepted = len(audits(served))
    served.gate(enabled=enabled)
    assert served.statistics(without=(AUDIT, REQUEST)) == before
    assert len(audits(served)) == accepted + 1


def test_what_cannot_be_turned_is_refused(emptied: Settings) -> None:
    with library(emptied, under_statistics=False) as new:
        before = new.statistics()
        with pytest.raises(Refusal) as refused:
            new.gate(enabled=False)
        assert refused.value.reason is OperateReason.ControlMissing
        with pytest.raises(Refusal) as refused:
            modes.set_narrow_gate(new.mongo, LIBRARY, uuid4(), enabled=True, action=action())
        assert refused.value.reason is OperateReason.ProjectNotFound
        assert new.statistics() == before


# --- the fleet -------------------------------------------------------------------------------------------------------


def test_opening_the_fleet_counts_and_dates_it_and_closing_does_not(served: Library) -> None:
    before = served.global_control()
    served.fleet(Mode.DISABLED)
    closed = served.global_control()
    assert (closed["Mode"], closed["ModeEpoch"], closed["OpenedAtUtc"]) == (
        "Disabled",
        before["ModeEpoch"],
        before["OpenedAtUtc"],
    )
    served.mongo.clock.advance(1000)
    served.fleet(Mode.ENABLED)
    opened = served.global_control()
    assert (opened["Mode"], opened["ModeEpoch"]) == ("Enabled", before["ModeEpoch"] + 1)
    assert near_server_time(served, opened["OpenedAtUtc"])
    assert opened["Audit"]["Version"] == before["Audit"]["Version"] + 2


@pytest.mark.parametrize("mode", list(Mode))
def test_setting_the_fleet_mode_that_holds_changes_nothing_and_is_audited(served: Library, mode: Mode) -> None:
    served.fleet(mode)
    before = served.statistics(without=(AUDIT, REQUEST))
    accepted = len(audits(served))
    served.fleet(mode)
    assert served.statistics(without=(AUDIT, REQUEST)) == before
    assert len(audits(served)) == accepted + 1


@pytest.mark.parametrize("mode", list(Mode))
def test_a_fleet_that_was_never_set_up_is_a_fault_with_its_remedy(mongo: Mongo, mode: Mode) -> None:
    with pytest.raises(Fault, match="no fleet control") as broken:
        modes.set_fleet_mode(mongo, LIBRARY, mode, action())
    assert "statlib up" in broken.value.remedy
    storage.initialise(mongo, LIBRARY)
    assert modes.set_fleet_mode(mongo, LIBRARY, mode, action()).catalogue_version == LIBRARY.version


@pytest.mark.parametrize("opening", ["fleet", "project"])
def test_rows_of_before_an_opening_are_never_served(served: Library, opening: str) -> None:
    """Also where every guard says Fresh: a fleet opening touches no guard."""
    if opening == "fleet":
        served.fleet(Mode.DISABLED)
        served.fleet(Mode.ENABLED)
    else:
        served.gate(enabled=False)
        served.gate(enabled=True)
        for family in FAMILIES:
            served.set_guard(family, State="Fresh")
    served.pass_grace()
    assert served.read().reason is ServeReason.RowEpochOutdated
    assert served.lend(served.books[0]).leaves_receipt
    assert served.read().reason in {ServeReason.RowEpochOutdated, ServeReason.GuardNotFresh}
    served.backfill_all()
    bundle = served.read()
    assert bundle.reason is None
    assert bundle.values[SHELVES] == served.truth(SHELVES)


@pytest.mark.parametrize("closed", ["fleet", "project"])
def test_saves_behind_a_closed_gate_are_never_missing_after_it_is_opened(served: Library, closed: str) -> None:
    if closed == "fleet":
        served.fleet(Mode.DISABLED)
    else:
        served.gate(enabled=False)
    served.lend(served.books[0])
    if closed == "fleet":
        served.fleet(Mode.ENABLED)
    else:
        served.gate(enabled=True)
    assert served.read((SHELVES, ALL)).reason is not None
    served.pass_grace()
    served.backfill_all()
    bundle = served.read()
    assert (bundle.reason, bundle.values[SHELVES]) == (None, served.truth(SHELVES))
    assert bundle.values[SHELVES]["shelf/0"]["Lent"] == 1


# --- audit -----------------------------------------------------------------------------------------------------------


def turn_fleet(of: Library, what: Any) -> None:
    modes.set_fleet_mode(of.mongo, LIBRARY, Mode.DISABLED, what)


def turn_project(of: Library, what: Any) -> None:
    modes.set_narrow_gate(of.mongo, LIBRARY, of.project, enabled=False, action=what)


TURNS = pytest.mark.parametrize("turn", [turn_fleet, turn_project])


@TURNS
def test_the_change_and_its_audit_record_commit_together(served: Library, turn: Callable[[Library, Any], None]) -> None:
    asked = action("turn", enabled=False)
    turn(served, asked)
    record = audits(served)[-1]
    assert (record["Principal"], record["Action"], record["RequestId"], record["Outcome"]) == (
        "tester",
        "turn",
        asked.request_id,
        "Accepted",
    )
    assert (record["Before"]["mode"], record["After"]["mode"]) == ("Enabled", "Disabled")
    assert near_server_time(served, record["ObservedAtUtc"])
    assert recall(served.mongo, asked) == record["After"]


@TURNS
@pytest.mark.parametrize("collection", [AUDIT, REQUEST])
def test_without_its_audit_record_there_is_no_change(
    served: Library, turn: Callable[[Library, Any], None], collection: str
) -> None:
    before = served.statistics()
    namespace = f"{served.mongo.database.name}.{collection}"
    with (
        fail_command(served.mongo.client, ["insert"], error_code=2, namespace=namespace),
        pytest.raises(OperationFailure),
    ):
        turn(served, action())
    assert served.statistics() == before


@TURNS
def test_without_its_change_there_is_no_audit_record(served: Library, turn: Callable[[Library, Any], None]) -> None:
    before = served.statistics()
    with (
        fail_command(served.mongo.client, ["update"], error_code=2),
        pytest.raises(OperationFailure),
    ):
        turn(served, action())
    assert served.statistics() == before


@TURNS
def test_one_request_id_is_accepted_once(served: Library, turn: Callable[[Library, Any], None]) -> None:
    asked = action("turn", enabled=False)
    turn(served, asked)
    before = served.statistics()
    with pytest.raises(DuplicateKeyError):
        turn(served, asked)
    assert served.statistics() == before


# --- at once ---------------------------------------------------------------------------------------------------------


def all_at_once(*doings: Callable[[], object]) -> None:
    failures: list[BaseException] = []
    ready = threading.Barrier(len(doings))

    def run(doing: Callable[[], object]) -> None:
        try:
            ready.wait(timeout=20)
            doing()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(doing,)) for doing in doings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []


def test_openings_at_once_count_once(emptied: Settings) -> None:
    with library(emptied, under_statistics=False) as new:
        new.fleet(Mode.DISABLED)
        epoch = new.global_control()["ModeEpoch"]
        all_at_once(*[lambda: new.gate(enabled=True)] * 3, *[lambda: new.fleet(Mode.ENABLED)] * 3)
        assert new.control()["OpeningCount"] == 1
        assert new.control()["SourceInvalidationRevision"] == 1
        assert new.global_control()["ModeEpoch"] == epoch + 1
        assert new.mongo.collection(GUARD).count_documents({}) == len(FAMILIES)


def test_openings_and_closings_at_once_are_each_whole(served: Library) -> None:
    """However they fall, the count is that of the closed-to-open turns in the audit, and every guard knows of each."""
    before, guard = served.control(), served.guard()
    all_at_once(*[lambda: served.gate(enabled=False), lambda: served.gate(enabled=True)] * 3)
    turns = [record for record in audits(served) if "openingCount" in record["After"]]
    openings = sum(record["After"]["openingCount"] - record["Before"]["openingCount"] for record in turns)
    after = served.control()
    assert len(turns) == 6
    assert after["OpeningCount"] - before["OpeningCount"] == openings
    assert after["SourceInvalidationRevision"] - before["SourceInvalidationRevision"] == openings
    assert served.guard()["FamilyWriteEpoch"] - guard["FamilyWriteEpoch"] == openings


def test_saves_while_the_gate_turns_are_all_counted_in_the_end(served: Library) -> None:
    def save_all() -> None:
        for book in served.books:
            served.lend_surely(book)

    def turn() -> None:
        for _ in range(4):
            served.gate(enabled=False)
            served.gate(enabled=True)

    all_at_once(save_all, turn)
    assert served.truth("Loans")["project"] == {"Lent": len(served.books)}
    assert served.read().values["Loans"] == served.truth("Loans")
    served.pass_grace()
    served.backfill_all()
    bundle = served.read()
    assert (bundle.reason, bundle.values["Loans"]) == (None, served.truth("Loans"))


# --- settings and stored modes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("excluded_by", ["default settings", "writes off", "another project"])
def test_a_process_whose_settings_exclude_a_project_cannot_save_past_one_that_serves_it(
    served: Library, emptied: Settings, excluded_by: str
) -> None:
    settings = {
        "default settings": emptied,
        "writes off": library_settings(emptied, served.project, writes=False),
        "another project": library_settings(emptied, uuid4()),
    }[excluded_by]
    with host_of(settings) as host:
        outsider = Library(host.mongo, host, served.project, served.books)
        before = served.statistics()
        with pytest.raises(Refusal) as refused:
            outsider.lend(served.books[0])
        assert refused.value.reason is SaveReason.GateSkew
        served.fleet(Mode.DISABLED)
        with pytest.raises(Refusal, match="GateSkew"):
            outsider.lend(served.books[0])
        served.fleet(Mode.ENABLED)
        assert served.statistics()[BOOKS] == before[BOOKS]
        served.gate(enabled=False)
        assert not outsider.lend(served.books[0]).leaves_receipt


def test_a_project_is_born_under_statistics_only_before_its_first_source_document(emptied: Settings) -> None:
    with library(emptied, under_statistics=False) as late:
        modes.create_under_statistics(late.mongo, LIBRARY, late.project)
        assert late.mongo.collection(CONTROL).find_one({"_id": late.project}) is None


def test_a_project_that_has_a_control_keeps_it(served: Library) -> None:
    served.gate(enabled=False)
    served.mongo.collection(BOOKS).delete_many({})
    before = served.statistics()
    modes.create_under_statistics(served.mongo, LIBRARY, served.project)
    assert served.statistics() == before


def test_a_project_born_under_statistics_waits_for_no_grace(emptied: Settings) -> None:
    with library(emptied) as born:
        control = born.control()
        assert (control["Mode"], control["OpeningCount"], control["OpenedAtUtc"]) == ("Enabled", 0, None)
        born.backfill_all()
        assert born.read().reason is None
        assert born.mongo.collection(GLOBAL_CONTROL).count_documents({}) == 1


# --- another release -------------------------------------------------------------------------------------------------


def test_openings_move_stored_versions_on_to_the_release_that_opens(served: Library) -> None:
    later = library_catalogue(version=LIBRARY.version + 1)
    before = read_bundle(served.host, later, served.project, [(name, ALL) for name in FAMILIES])
    assert before.reason is ServeReason.VersionIncompatible

    for mode in (Mode.DISABLED, Mode.ENABLED):
        modes.set_fleet_mode(served.mongo, later, mode, action())
        modes.set_narrow_gate(served.mongo, later, served.project, enabled=mode is Mode.ENABLED, action=action())
    served.pass_grace()
    for name in FAMILIES:
        backfill(served.host, later, served.project, name)

    assert read_bundle(served.host, later, served.project, [(name, ALL) for name in FAMILIES]).reason is None
    old = read_bundle(served.host, LIBRARY, served.project, [(name, ALL) for name in FAMILIES])
    assert old.reason is ServeReason.VersionIncompatible
