"""Who may do what: every route that the app has, for every kind of caller. A new route is covered by being one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import Route

from statlib.admin.app import RULES, guarded_routes, require_guarded
from statlib.admin.principals import Capability
from statlib.admin.requests import GuardedRoute
from statlib.admin.rules import Rule, Rules
from statlib.local.replica_set import ReplicaSet
from statlib.passes.audit import AUDIT, REQUEST
from statlib.passes.operations import OPERATION
from statlib.statistics.documents import MEMBER
from tests.boundaries import Boundary, boundary_of, new_request_id
from tests.conftest import settings_on

EVERY_RULE = [rule for rules in RULES for rule, _ in rules.all]
STRANGERS = ("nothing", "another scheme", "a bad token", "a revoked token", "an expired JWT", "a JWT for others")


@pytest.fixture(scope="module")
def boundary(mongo_server: ReplicaSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boundary]:
    folder: Path = tmp_path_factory.mktemp("authorisation")
    with boundary_of(settings_on(mongo_server, folder)) as opened:
        yield opened
        opened.library.mongo.client.drop_database(opened.library.mongo.database)


@pytest.fixture(scope="module")
def strangers(boundary: Boundary) -> dict[str, str | None]:
    """Authorization headers that resolve to nobody."""
    revoked = boundary.token(*Capability, name="gone")
    boundary.tokens.revoke("gone")
    return {
        "nothing": None,
        "another scheme": f"Basic {boundary.token(*Capability, name='basic')}",
        "a bad token": f"Bearer {'x' * 43}",
        "a revoked token": f"Bearer {revoked}",
        "an expired JWT": f"Bearer {boundary.issuer.sign(*Capability, lives_s=-60)}",
        "a JWT for others": f"Bearer {boundary.issuer.sign(*Capability, aud='others')}",
    }


@pytest.fixture(scope="module")
def known(boundary: Boundary) -> dict[str, dict[Capability | None, str]]:
    """A token for each capability, by each authority; None: a principal that has none."""
    return {
        "token": {one: boundary.token(one, name=one.value) for one in Capability},
        "jwt": {one: boundary.issuer.sign(one) for one in Capability} | {None: boundary.issuer.sign()},
    }


def send(boundary: Boundary, rule: Rule, authorization: str | None, **more: Any) -> httpx.Response:
    path = rule.path.format(
        project=boundary.library.project,
        request_id="nothing-runs-here",
        run_id="0" * 12,
        search=boundary.library.project,
        kind="SearchImport",
        stable_id="nothing-is-called-this",
    )
    headers = new_request_id() | ({"Authorization": authorization} if authorization is not None else {})
    with boundary.http() as http:
        return http.request(rule.method, path, headers=headers, **more)


def state(boundary: Boundary) -> dict[str, Any]:
    """Everything stored but hosts, which renew themselves, and what is there to be written by a refusal."""
    database = boundary.library.mongo.database
    kept = {name for name in database.list_collection_names() if name not in {MEMBER, AUDIT}}
    return {name: sorted(database[name].find(), key=lambda found: str(found["_id"])) for name in sorted(kept)}


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.operation)
def test_whoever_cannot_say_who_they_are_gets_401_and_changes_nothing(
    boundary: Boundary, strangers: dict[str, str | None], rule: Rule
) -> None:
    before = state(boundary)
    for stranger in STRANGERS:
        for body in ({}, {"content": b"{"}):
            response = send(boundary, rule, strangers[stranger], **body)
            assert response.status_code == 401, stranger
            assert response.json()["reason"] == "Unauthenticated"
            assert response.headers["WWW-Authenticate"] == "Bearer"
    assert state(boundary) == before


KINDS = [(authority, one) for authority in ("token", "jwt") for one in Capability] + [("jwt", None)]


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.operation)
def test_a_route_answers_those_with_its_capability_and_nobody_else(
    boundary: Boundary, known: dict[str, dict[Capability | None, str]], rule: Rule
) -> None:
    before = state(boundary)
    for authority, capability in KINDS:
        if capability in rule.capabilities:
            continue
        refused = send(boundary, rule, f"Bearer {known[authority][capability]}")
        assert (refused.status_code, refused.json()["reason"]) == (403, "Forbidden"), (authority, capability)
        record = boundary.audits()[-1]
        assert (record["Action"], record["Outcome"], record["Reason"]) == (rule.action, "Rejected", "Forbidden")
        assert record["Principal"] == (capability.value if capability and authority == "token" else "jwt:jo")
    assert state(boundary) == before
    for authority, capability in KINDS:
        if capability in rule.capabilities:
            answered = send(boundary, rule, f"Bearer {known[authority][capability]}")
            assert answered.status_code not in {401, 403}, (authority, capability)


def test_acting_is_for_administrators_and_nothing_is_for_everyone() -> None:
    for rule in EVERY_RULE:
        assert rule.capabilities
        if rule.mutating and rule.operation != "postCancel":
            backfills = "/api/admin/backfill" in rule.template
            acts = Capability.DEPLOYMENT_OPERATOR if backfills else Capability.APPLICATION_ADMINISTRATOR
            assert rule.capabilities == {acts}, rule.template


def test_the_app_has_the_routes_of_its_rules_and_no_others(boundary: Boundary) -> None:
    served = [(route.path, route.rule) for route in guarded_routes(boundary.app)]
    assert served == [(rule.path, rule) for rule in EVERY_RULE]
    assert len({rule.operation for rule in EVERY_RULE}) == len(EVERY_RULE)


def open_route() -> str:
    return "anyone may read this"


def test_a_route_without_a_capability_cannot_be_registered() -> None:
    app = FastAPI(openapi_url=None)
    app.router.route_class = GuardedRoute
    with pytest.raises(LookupError, match="names no capability"):
        app.add_api_route("/open", open_route)
    with pytest.raises(ValueError, match="names no capability"):
        Rules().route("GET", "/open", needs=(), answers=str)
    app.router.routes.append(Route("/open", open_route))
    with pytest.raises(LookupError, match="/open is not guarded"):
        require_guarded(app)


def test_the_contract_documents_every_route_s_capability_and_refusals(boundary: Boundary) -> None:
    described = boundary.app.openapi()["paths"]
    for rule in EVERY_RULE:
        operation = described[rule.path][rule.method.lower()]
        assert operation["operationId"] == rule.operation
        assert operation["x-capability"] == sorted(rule.capabilities)
        assert operation["description"]
        documented = {
            (name, int(status))
            for status, answer in operation["responses"].items()
            if status not in {"200", "500"}
            for name in answer["content"]["application/json"]["schema"]["properties"]["reason"]["enum"]
        }
        assert documented == {(reason.name, reason.http_status) for reason in rule.all_refusals}


def test_the_database_is_as_it_was_created(boundary: Boundary) -> None:
    assert {AUDIT, REQUEST, OPERATION} <= set(boundary.library.mongo.database.list_collection_names())
