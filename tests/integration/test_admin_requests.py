"""Requests: one outcome each, whatever comes again or at the same time; each attempt on record; typed answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from pymongo.errors import OperationFailure

from statlib.admin import answers, routes, rules
from statlib.admin.client import AdminClient
from statlib.admin.edge import BODY_BYTES_MAX
from statlib.admin.principals import Capability
from statlib.admin.reasons import AdminReason
from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.reasons import MongoReason
from statlib.passes import retention
from statlib.passes.audit import AUDIT, REQUEST, Outcome, RequestReason
from statlib.passes.operations import OPERATION
from statlib.passes.retention import Records
from statlib.statistics.reasons import OperateReason
from tests.boundaries import Boundary, boundary_of, new_request_id
from tests.domain import LOANS, SHELVES
from tests.servers import fail_command


@pytest.fixture
def boundary(settings: Settings) -> Iterator[Boundary]:
    with boundary_of(settings) as opened:
        yield opened
        opened.library.mongo.client.drop_database(opened.library.mongo.database)


@pytest.fixture
def client(boundary: Boundary) -> Iterator[AdminClient]:
    with boundary.client(run="run-1") as opened:
        yield opened


@pytest.fixture
def http(boundary: Boundary) -> Iterator[httpx.Client]:
    with boundary.http(boundary.token(*Capability, name="olga")) as opened:
        yield opened


Call = Callable[[AdminClient, UUID, str], Any]
CALLS: dict[str, Call] = {
    "fleet": lambda client, _, request_id: client.set_fleet_mode(enabled=False, request_id=request_id),
    "gate": lambda client, project, request_id: client.set_narrow_gate(project, enabled=True, request_id=request_id),
    "backfill": lambda client, project, request_id: client.backfill(project, SHELVES, request_id=request_id),
    "backfill of several": lambda client, project, request_id: client.backfill_together(
        project, [SHELVES, LOANS], request_id=request_id
    ),
    "rebuild": lambda client, project, request_id: client.rebuild(project, SHELVES, force=True, request_id=request_id),
    "retention": lambda client, _, request_id: client.prune(Records.AUDIT, request_id=request_id),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@every_call
def test_a_repeated_request_returns_its_first_outcome_and_does_nothing(
    boundary: Boundary, client: AdminClient, call: Call
) -> None:
    first = call(client, boundary.library.project, "the-request")
    before = boundary.library.statistics(without=(AUDIT, "pmProjectStatisticsFleetMember"))
    assert call(client, boundary.library.project, "the-request") == first
    assert boundary.library.statistics(without=(AUDIT, "pmProjectStatisticsFleetMember")) == before
    last = boundary.audits()[-1]
    assert (last["Outcome"], last["RequestId"], last["RunId"]) == ("Replayed", "the-request", "run-1")


@every_call
def test_two_equal_requests_at_once_are_one_and_both_are_told_its_outcome(
    boundary: Boundary, client: AdminClient, call: Call
) -> None:
    start, outcomes = threading.Barrier(4), list[Any]()

    def ask() -> None:
        start.wait(timeout=30)
        outcomes.append(call(client, boundary.library.project, "the-request"))

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(timeout=60)
        assert not asker.is_alive()
    assert outcomes == [outcomes[0]] * 4
    assert len(boundary.audits(Outcome="Accepted", RequestId="the-request")) == 1
    assert len(boundary.audits(Outcome="Replayed", RequestId="the-request")) == 3


def test_the_same_id_for_something_else_is_a_conflict_and_on_record(boundary: Boundary, client: AdminClient) -> None:
    client.set_narrow_gate(boundary.library.project, enabled=False, request_id="the-request")
    before = boundary.library.control()
    with pytest.raises(Refusal) as refused:
        client.set_narrow_gate(boundary.library.project, enabled=True, request_id="the-request")
    assert refused.value.reason is RequestReason.RequestConflict
    assert boundary.library.control() == before
    assert boundary.audits()[-1]["Reason"] == "RequestConflict"


def test_a_request_id_is_its_principal_s_and_its_target_s_own(boundary: Boundary, client: AdminClient) -> None:
    client.set_narrow_gate(boundary.library.project, enabled=False, request_id="the-request")
    client.set_fleet_mode(enabled=True, request_id="the-request")
    with boundary.client(name="paul") as other:
        other.set_narrow_gate(boundary.library.project, enabled=True, request_id="the-request")
    assert boundary.library.control()["Mode"] == "Enabled"


def test_a_refused_request_may_be_tried_again_under_its_id(boundary: Boundary, client: AdminClient) -> None:
    boundary.library.gate(enabled=False)
    with pytest.raises(Refusal) as refused:
        client.backfill(boundary.library.project, SHELVES, request_id="the-request")
    assert refused.value.reason is OperateReason.GateClosed
    boundary.library.gate(enabled=True)
    boundary.library.pass_grace()
    assert client.backfill(boundary.library.project, SHELVES, request_id="the-request").parity.exact
    outcomes = [record["Outcome"] for record in boundary.audits(RequestId="the-request")]
    assert outcomes == ["Intended", "Rejected", "Intended", "Accepted"]


# --- the record of every attempt -------------------------------------------------------------------------------------


def gate_path(boundary: Boundary) -> str:
    return boundary.path(f"/{boundary.library.project}/narrow-gate")


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "no body": ({}, 422, "RequestInvalid"),
    "no JSON": ({"content": b"{", "headers": {"Content-Type": "application/json"}}, 422, "RequestInvalid"),
    "no text": ({"content": b"\xff\xfe", "headers": {"Content-Type": "application/json"}}, 422, "RequestInvalid"),
    "a surrogate": (
        {"content": b'{"\\ud800": 1}', "headers": {"Content-Type": "application/json"}},
        422,
        "RequestInvalid",
    ),
    "a wrong type": ({"json": {"enabled": "perhaps"}}, 422, "RequestInvalid"),
    "an unknown field": ({"json": {"enabled": True, "force": True}}, 422, "RequestInvalid"),
    "an unknown parameter": ({"json": {"enabled": True}, "params": {"force": "1"}}, 422, "RequestInvalid"),
    "a short id": ({"json": {"enabled": True}, "headers": {"X-Request-Id": "short"}}, 422, "RequestInvalid"),
    "a large body": ({"content": b" " * (BODY_BYTES_MAX + 1)}, 413, "BodyTooLarge"),
}


@pytest.mark.parametrize(("given", "status", "reason"), REFUSED.values(), ids=REFUSED)
def test_an_attempt_that_is_not_understood_is_refused_and_on_record(
    boundary: Boundary, http: httpx.Client, given: dict[str, Any], status: int, reason: str
) -> None:
    before, control = len(boundary.audits()), boundary.library.control()
    headers = new_request_id() | given.get("headers", {})
    response = http.post(gate_path(boundary), **{**given, "headers": headers})
    assert (response.status_code, response.json()["reason"]) == (status, reason)
    (record,) = boundary.audits()[before:]
    assert (record["Principal"], record["Action"], record["Target"]) == (
        "olga",
        "postNarrowGate",
        str(boundary.library.project),
    )
    assert (record["RequestId"], record["Outcome"], record["Reason"]) == (headers["X-Request-Id"], "Rejected", reason)
    assert set(record["Payload"]) == {"bodySha256", "bodyBytes"}
    assert boundary.library.control() == control


def test_a_body_of_exactly_the_limit_is_read(boundary: Boundary, http: httpx.Client) -> None:
    body = json.dumps({"enabled": True}).encode().ljust(BODY_BYTES_MAX)
    headers = {**new_request_id(), "Content-Type": "application/json"}
    assert http.post(gate_path(boundary), content=body, headers=headers).status_code == 200


@pytest.mark.parametrize("project", ["7", "not-an-id", "%2e%2e", "💥", "00000000-0000-0000-0000-00000000000g"])
def test_a_path_that_names_no_project_is_refused(http: httpx.Client, boundary: Boundary, project: str) -> None:
    response = http.get(boundary.path(f"/{project}/status"))
    assert (response.status_code, response.json()["reason"]) == (422, "RequestInvalid")


def test_attempts_without_credentials_are_counted_by_the_minute_and_nothing_of_them_is_kept(boundary: Boundary) -> None:
    with boundary.http("a-guessed-secret") as guessing, boundary.http() as anonymous:
        for _ in range(7):
            guessing.put(boundary.path("/fleet-mode"), json={"enabled": True}, headers=new_request_id())
        anonymous.get(boundary.path("/time"))
        boundary.library.mongo.clock.advance(60)
        anonymous.get(boundary.path("/time"))
    counted = boundary.audits(Action="unauthenticated")
    assert sum(record["After"]["attempts"] for record in counted) == 9
    assert 2 <= len(counted) <= 3  # a minute may have turned by itself
    kept = {name: list(boundary.library.mongo.database[name].find()) for name in (AUDIT, REQUEST)}
    assert "a-guessed-secret" not in str(kept)
    with boundary.client(Capability.AUDITOR) as auditor:
        assert {entry.principal for entry in auditor.audit(outcome=Outcome.REJECTED)} == {"anonymous"}


def test_the_trail_is_read_in_pages_newest_first_and_each_record_once(boundary: Boundary, client: AdminClient) -> None:
    for number in range(7):
        client.set_fleet_mode(enabled=True, request_id=f"request-{number}")
    every = [entry.id for entry in client.audit()]
    assert [entry.id for entry in client.audit(page_size=2)] == every
    assert len(set(every)) == len(every) == len(boundary.audits())
    assert every == [str(record["_id"]) for record in reversed(boundary.audits())]
    assert [entry.request_id for entry in client.audit(run="run-1", page_size=3)] == [
        f"request-{number}" for number in reversed(range(7))
    ]
    assert len(list(client.audit(request_id="request-3"))) == 1
    now = client.server_time()
    assert list(client.audit(since=now, until=now + timedelta(hours=1))) == []
    assert list(client.audit(target="fleet", outcome=Outcome.REJECTED)) == []


@pytest.mark.parametrize("after", ["", "|", "2024-01-01T00:00:00+00:00|x", "0001-01-01T00:00:00+00:00|" + "0" * 24])
def test_what_is_no_cursor_is_refused(boundary: Boundary, http: httpx.Client, after: str) -> None:
    assert http.get(boundary.path("/audit"), params={"after": after}).status_code == 422


# --- retention -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("records", "collection"), [(Records.AUDIT, AUDIT), (Records.REQUESTS, REQUEST)])
@pytest.mark.parametrize("old", [0, 3, 4])
def test_a_pass_removes_at_most_its_cap_of_what_is_older_than_its_retention(
    boundary: Boundary,
    client: AdminClient,
    monkeypatch: pytest.MonkeyPatch,
    records: Records,
    collection: str,
    old: int,
) -> None:
    monkeypatch.setattr(retention, "RETENTION_PASS_MAX", 3)
    kept_s = getattr(boundary.library.mongo.settings.admin, f"{records.value.rstrip('s')}_retention_s")
    stored = boundary.library.mongo.collection(collection)
    stored.delete_many({})
    now = client.server_time()
    stored.insert_many([{"_id": f"young-{n}", "ObservedAtUtc": now - timedelta(seconds=kept_s - 60)} for n in range(2)])
    if old:
        ages = [{"_id": f"old-{n}", "ObservedAtUtc": now - timedelta(seconds=kept_s + 60 + n)} for n in range(old)]
        stored.insert_many(ages)
    pruned = client.prune(records)
    assert (pruned.removed, pruned.more) == (min(old, 3), old > 3)
    left = {found["_id"] for found in stored.find({"_id": {"$type": "string"}})}
    assert left == {"young-0", "young-1", *(["old-0"] if old > 3 else [])}
    assert boundary.audits(Action="postRetention")[-1]["After"]["removed"] == pruned.removed


def test_what_dead_processes_left_of_requests_goes_with_the_requests(boundary: Boundary, client: AdminClient) -> None:
    kept_s = boundary.library.mongo.settings.admin.request_retention_s
    claims, now = boundary.library.mongo.collection(OPERATION), client.server_time()
    ages_s = {"dead": kept_s + 60, "young": kept_s - 60, "alive": -60}
    claims.insert_many([{"_id": id_, "ExpiresAtUtc": now - timedelta(seconds=age)} for id_, age in ages_s.items()])
    client.prune(Records.AUDIT)
    assert claims.count_documents({}) == 3
    client.prune(Records.REQUESTS)
    assert {found["_id"] for found in claims.find()} == {"young", "alive"}


def test_nothing_prunes_audit_records_by_itself(boundary: Boundary) -> None:
    indexes = boundary.library.mongo.collection(AUDIT).index_information().values()
    assert [index for index in indexes if "expireAfterSeconds" in index] == []


# --- what went wrong -------------------------------------------------------------------------------------------------


def test_a_database_without_a_primary_is_a_typed_503(
    boundary: Boundary, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "DEADLINE_S", 1.0)
    with fail_command(
        boundary.library.mongo.client,
        ["aggregate", "find", "insert", "update", "commitTransaction"],
        error_code=10107,
        app_name="statlib-tests-api",
    ):
        for response in (
            http.get(boundary.path("/time")),
            http.get(boundary.path(f"/{boundary.library.project}/status")),
        ):
            assert response.status_code == 503
            assert response.json()["reason"] == "DatabaseUnavailable"
            assert "10107" not in response.text


def test_a_transaction_that_runs_out_of_time_is_a_typed_503_and_may_be_repeated(
    boundary: Boundary, client: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "DEADLINE_S", 1.0)
    with (
        fail_command(boundary.library.mongo.client, ["insert"], close_connection=True, app_name="statlib-tests-api"),
        pytest.raises(Refusal) as refused,
    ):
        client.set_fleet_mode(enabled=False, request_id="the-request")
    assert refused.value.reason is AdminReason.DatabaseUnavailable
    monkeypatch.undo()
    assert client.set_fleet_mode(enabled=False, request_id="the-request").mode == "Disabled"


@pytest.mark.parametrize("known", [True, False], ids=["a principal's", "a stranger's"])
def test_an_attempt_that_could_not_be_put_on_record_is_told_in_one_line_with_its_cause(
    known: bool, boundary: Boundary, client: AdminClient, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(rules, "DEADLINE_S", 1.0)
    stranger = AdminClient(boundary.url, "nobody's")
    with (
        stranger,
        fail_command(boundary.library.mongo.client, ["insert", "update"], error_code=10107,
                     app_name="statlib-tests-api"),
        pytest.raises(Refusal) as refused,
    ):  # fmt: skip
        (client if known else stranger).set_fleet_mode(enabled=False, request_id="the-request")
    of = f"the audit record of a refusal ({refused.value.reason.name}) could not be written: "
    (line,) = [record for record in caplog.records if record.getMessage().startswith(of)]
    cause = line.getMessage().removeprefix(of)
    assert cause.startswith("NotPrimaryError: ")
    assert "\n" not in cause
    assert line.exc_info is None


def test_an_unexpected_fault_is_a_500_with_a_correlation_and_no_detail(
    boundary: Boundary, client: AdminClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise OperationFailure("a secret of the database", code=8000)

    monkeypatch.setattr(routes, "set_fleet_mode", broken)
    with pytest.raises(Fault, match="500") as fault:
        client.set_fleet_mode(enabled=True, request_id="the-request")
    assert "secret" not in str(fault.value)
    record = boundary.audits()[-1]
    assert (record["Outcome"], record["RequestId"]) == ("Failed", "the-request")
    correlation = record["After"]["correlation"]
    assert correlation in fault.value.remedy
    assert any(correlation in line.getMessage() and line.exc_info for line in caplog.records)
    assert "secret" not in str(record)


def test_an_unknown_commit_is_looked_up_before_anyone_is_told_that_it_is_unknown(
    boundary: Boundary, client: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "DEADLINE_S", 2.0)
    applied = fail_command(
        boundary.library.mongo.client, ["commitTransaction"], write_concern_error=64, app_name="statlib-tests-api"
    )
    with applied:
        assert client.set_fleet_mode(enabled=False, request_id="the-request").mode == "Disabled"
    lost = fail_command(
        boundary.library.mongo.client, ["commitTransaction"], close_connection=True, app_name="statlib-tests-api"
    )
    with lost, pytest.raises(Refusal) as refused:
        client.set_fleet_mode(enabled=True, request_id="another-request")
    assert refused.value.reason is MongoReason.CommitOutcomeUnknown
    assert boundary.audits()[-1]["Outcome"] == "Unresolved"


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("DELETE", "/fleet-mode", 405)])
def test_what_is_not_there_is_refused_typed(
    boundary: Boundary, http: httpx.Client, method: str, path: str, status: int
) -> None:
    response = http.request(method, boundary.path(path))
    assert response.status_code == status
    assert response.json()["remedy"]


@pytest.mark.parametrize("path", ["/openapi.json", "/nothing"])
def test_every_answer_tells_browsers_to_keep_frame_and_guess_nothing(http: httpx.Client, path: str) -> None:
    headers = http.get(path, headers={"Origin": "https://elsewhere.example"}).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert [name for name in headers if name.startswith("access-control-")] == []
    assert "server" not in headers


def test_a_client_of_nothing_is_told_where_to_look() -> None:
    for url in ("http://127.0.0.1:9", "nonsense"):
        with AdminClient(url, "t") as client, pytest.raises(Refusal) as refused:
            client.server_time()
        assert refused.value.reason is AdminReason.BoundaryUnreachable


def test_refusals_keep_their_state_across_the_boundary(boundary: Boundary, client: AdminClient) -> None:
    boundary.library.gate(enabled=False)
    boundary.library.gate(enabled=True)
    with pytest.raises(Refusal) as refused:
        client.rebuild(boundary.library.project, SHELVES)
    assert refused.value.reason is OperateReason.WriterGracePending
    assert refused.value.state["leftSeconds"] > 0


def test_a_project_that_is_not_there_is_refused_by_every_route_that_names_one(client: AdminClient) -> None:
    nowhere = uuid4()
    for call in (
        lambda: client.status(nowhere),
        lambda: client.why(nowhere),
        lambda: client.parity(nowhere, [SHELVES]),
        lambda: client.backfill(nowhere, SHELVES),
        lambda: client.set_narrow_gate(nowhere, enabled=True),
    ):
        with pytest.raises(Refusal):
            call()
    assert list(client.receipts(nowhere, client.server_time() - timedelta(hours=1), client.server_time())) == []


def test_only_what_says_that_the_database_is_away_is_taken_for_it() -> None:
    assert answers.refusal_of(ValueError("x")) is None
    assert answers.refusal_of(OperationFailure("x", code=8000)) is None
