"""The contract holds for whatever its own description allows, and for what it forbids: no 5xx but a typed 503."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as example_settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from statlib.admin.app import RULES
from statlib.admin.principals import Capability
from statlib.admin.rules import Rule, canonical_openapi
from statlib.backfills.registry import Registry
from statlib.backfills.service import opened as opened_backfills
from statlib.kernel.identifiers import new_token
from statlib.local.replica_set import ReplicaSet
from statlib.passes.audit import AUDIT
from statlib.statistics.documents import MEMBER
from tests.backfilling import FOLD_NOTES, fill_notes
from tests.boundaries import Boundary, boundary_of
from tests.conftest import settings_on
from tests.postgres import Databases

EXAMPLES = 20  # of each route, positive and negative; derandomised, so the same in every run
EVERY_RULE = [rule for rules in RULES for rule, _ in rules.all]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
# The boundary's own threads draw from `random` while requests are made up; Hypothesis cannot tell whose draw it saw.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
every_rule = pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.operation)


@pytest.fixture(scope="module")
def boundary(
    mongo_server: ReplicaSet, postgres_databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Boundary]:
    folder = tmp_path_factory.mktemp("contract")
    database = postgres_databases.new(folder)
    fill_notes(database)
    with (
        opened_backfills(database.settings, Registry((FOLD_NOTES,)), app_name="statlib-tests") as backfills,
        boundary_of(settings_on(mongo_server, folder), backfills=backfills) as opened,
    ):
        yield opened
        opened.library.mongo.client.drop_database(opened.library.mongo.database)
    postgres_databases.drop(database.name)


def cases(boundary: Boundary, rule: Rule) -> Any:
    described: Any = schemathesis.openapi.from_dict(json.loads(canonical_openapi(boundary.app)))
    operation = described[rule.path][rule.method]
    valid = operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)
    return valid | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)


def derandomised(test: Any) -> Any:
    chosen = example_settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return chosen(test)


@every_rule
def test_an_authorised_request_of_any_form_gets_an_answer_that_is_described(boundary: Boundary, rule: Rule) -> None:
    token = boundary.token(*Capability, name=f"everything-{new_token()[:8]}")
    rejected = list[int]()

    @derandomised
    @given(case=cases(boundary, rule))
    def check(case: Any) -> None:
        before = boundary.on_record()
        response = case.call(base_url=boundary.url, headers={"Authorization": f"Bearer {token}"})
        case.validate_response(response, checks=CHECKS)
        after = boundary.on_record()
        if rule.mutating:
            assert after > before, f"{response.status_code} left no record"
        if response.status_code >= 400:
            rejected.append(response.status_code)
            assert response.json()["remedy"]

    check()
    assert set(rejected) <= {reason.http_status for reason in rule.all_refusals}


@every_rule
def test_a_request_of_any_form_without_credentials_changes_nothing(boundary: Boundary, rule: Rule) -> None:
    before = stored(boundary)

    @derandomised
    @given(case=cases(boundary, rule))
    def check(case: Any) -> None:
        case.headers.pop("Authorization", None)
        response = case.call(base_url=boundary.url)
        assert response.status_code in {401, 404, 405}  # the last two where no route was met at all
        assert response.status_code == 401 or response.json()["reason"] in {"RouteUnknown", "MethodNotAllowed"}

    check()
    assert stored(boundary) == before


def stored(boundary: Boundary) -> dict[str, Any]:
    """Everything but hosts, which renew themselves, and the count of attempts without credentials."""
    database = boundary.library.mongo.database
    found = {
        name: sorted(database[name].find(), key=lambda document: str(document["_id"]))
        for name in sorted(database.list_collection_names())
        if name != MEMBER
    }
    found[AUDIT] = [record for record in found[AUDIT] if record["Action"] != "unauthenticated"]
    return found


def test_the_contract_s_bytes_depend_on_the_routes_alone(boundary: Boundary) -> None:
    with boundary.http(boundary.token(Capability.SOURCE_OPERATOR)) as http:
        assert http.get("/openapi.json").content == canonical_openapi(boundary.app)
