"""Edits and operations over many studies, killed or frozen at each of their commands: right, refused, or 503."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.catalogue import REVIEW
from statlib.statistics.bounds import FENCE_LEASE_TTL_S
from statlib.statistics.documents import CONTROL, FENCE, GUARD, MEMBER
from statlib.statistics.fences import release_interrupted, standing
from statlib.statistics.reasons import ServeReason
from statlib.statistics.rewrites import complete
from tests.edited_reviews import COLOUR, assert_counted_right, backfilled, populate, populated
from tests.fault.operators import APP_NAME, OPERATIONS, Job, Operators, Plan, operators
from tests.fault.savers import Condition, Signal
from tests.open_transactions import end_transactions, open_transactions
from tests.reviews import Review

COMMANDS_AT_LEAST = {"join": 8, "threshold": 25, "options": 25, "bulk": 30, "import": 30, "removal": 30}


@pytest.fixture(scope="module")
def kit() -> Iterator[Operators]:
    with operators() as running:
        yield running


@pytest.fixture
def served(settings: Settings) -> Iterator[Review]:
    with populated(settings) as opened:
        populate(opened)
        backfilled(opened)
        yield opened


def plan_of(of: Review, turn: int) -> Plan:
    return Plan(of.project, of.studies[:4], of.members[0], COLOUR.id, turn)


def assert_consistent(of: Review) -> None:
    """Whatever was torn: what is in force is counted once, and a reader is right or is told to wait."""
    force = [one.fence for one in standing(of.mongo, of.project)]
    counted = sum(one.id.kind not in REVIEW.rewrites for one in force)
    counts = {guard["ActiveFenceCount"] for guard in of.mongo.collection(GUARD).find()}
    assert counts <= {0, counted}
    hidden = any(one.id.kind in REVIEW.rewrites for one in force)
    control = of.mongo.collection(CONTROL).find_one({"_id": of.project}) or {}
    tokens = [control.get(name) for name in ("InclusionRecalculationToken", "DefinitionRewriteToken")]
    assert [token for token in tokens if token] == [one.token for one in force if one.id.kind in REVIEW.rewrites]
    if hidden:
        with pytest.raises(Refusal) as refused:
            of.read_all()
        assert refused.value.reason is ServeReason.SourceVisibilityFenced
    else:
        assert_counted_right(of)


def settle(of: Review) -> None:
    """What an operator does about interrupted operations: `statlib fences release`."""
    for one in standing(of.mongo, of.project):
        if one.fence.id.kind in REVIEW.rewrites:
            complete(of.host, REVIEW, of.project, one.fence.id.kind)
        else:
            release_interrupted(of.mongo, of.project, one.fence.id.kind)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_any_command_it_is_completed_by_its_repetition_or_settled(
    served: Review, kit: Operators, operation: str
) -> None:
    """Odd turns are repeated, even ones settled and then repeated: neither may lose or double anything."""
    number = 0
    while True:
        number += 1
        plan = plan_of(served, number)
        if operation == "removal":
            OPERATIONS["import"](served.host, plan)
        killed = kit.run(Job(served.mongo.settings, operation, plan, Signal.KILL, number))
        if killed.condition is Condition.ANSWERED:
            assert killed.answer == "done"
            break
        end_transactions(served.mongo.client, open_transactions(served.mongo.client, APP_NAME))
        served.mongo.collection(MEMBER).delete_many({"_id": {"$ne": served.host.member_id}})
        assert_consistent(served)
        served.mongo.clock.advance(FENCE_LEASE_TTL_S)
        if number % 2 == 0:
            settle(served)
            assert_consistent(served)
        if operation != "join" or not committed(served, plan):
            OPERATIONS[operation](served.host, plan)
        assert standing(served.mongo, served.project) == ()
        assert_consistent(served)
        done(served, operation, plan)
    assert number > COMMANDS_AT_LEAST[operation]
    backfilled(served)


def committed(of: Review, plan: Plan) -> bool:
    """Whether the edit of one transaction had its effect before its process was killed."""
    return len(of.stored_project()["Memberships"]) == 3 + plan.turn


def done(of: Review, operation: str, plan: Plan) -> None:
    """That the operation has had its whole effect, once."""
    project, studies = of.stored_project(), {study["_id"]: study for study in of.stored_studies()}
    if operation == "join":
        assert len(project["Memberships"]) == 3 + plan.turn
    if operation == "threshold":
        assert project["AgreementThreshold"]["MinScreenings"] == (2, 1)[plan.turn % 2]
        assert all(one["InclusionInfo"]["Screened"] == len(one["Screenings"]) for one in studies.values())
    if operation == "options":
        keys = {a["Key"] for one in studies.values() for s in one["Sessions"] for a in s["Answers"]}
        assert keys == {f"colour {plan.turn}", "blue"}
    if operation == "bulk":
        decided = {of.decisions(study)[plan.member] for study in plan.studies}
        assert decided == {plan.turn % 2 == 0}
    if operation in {"import", "removal"}:
        there = operation == "import"
        assert (plan.search.id in {search["Id"] for search in project["Searches"]}) == there
        assert {study.id in studies for study in plan.found} == {there}


@pytest.mark.parametrize("operation", ["threshold", "bulk"])
def test_an_owner_frozen_past_its_lease_and_woken_changes_nothing(
    served: Review, kit: Operators, operation: str
) -> None:
    """Every third command; the one that takes over has ended by then."""
    number = 0
    while True:
        number += 3
        plan = plan_of(served, number)
        frozen = kit.run(Job(served.mongo.settings, operation, plan, Signal.STOP, number))
        if frozen.condition is Condition.ANSWERED:
            break
        end_transactions(served.mongo.client, open_transactions(served.mongo.client, APP_NAME))
        begun = served.mongo.collection(FENCE).count_documents({"Active": True}) == 1
        served.mongo.clock.advance(FENCE_LEASE_TTL_S)
        OPERATIONS[operation](served.host, plan)
        OPERATIONS[operation](served.host, replace(plan, turn=plan.turn + 1))
        before = served.snapshot_of_statistics()
        woken = kit.resume(frozen)
        if begun:
            assert woken.answer == "LeaseLost", number
            assert served.snapshot_of_statistics() == before
        assert standing(served.mongo, served.project) == ()
        served.mongo.collection(MEMBER).delete_many({"_id": {"$ne": served.host.member_id}})
        assert_consistent(served)
    assert number > COMMANDS_AT_LEAST[operation] / 2
    backfilled(served)
