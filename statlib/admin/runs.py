"""The routes by which a run's journal is anchored in the audit, and by which a verifier asks for its anchors.

Invariant: anchors are only ever added. The same one again is the same outcome; another head for a run that is already
closed is refused, and should two closings race, both stay on record and contradict each other for every verifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Path
from pymongo import ASCENDING

from statlib.admin.actions import in_one_transaction
from statlib.admin.asking import RequestId, TheRequest
from statlib.admin.routes import ADMINISTRATORS, PREFIX, READERS
from statlib.admin.rules import Rules
from statlib.admin.run_wire import AnchorRequest, RunAnchor
from statlib.evidence.anchors import ANCHOR_ACTION, AnchorPhase
from statlib.kernel.refusals import Reason, Refusal, RefusalKind
from statlib.mongo.connection import Mongo
from statlib.mongo.transactions import transact
from statlib.passes.audit import AUDIT, Action, AuditRecord, Outcome, accept, server_time

ANCHORS_MAX = 100  # of one run: two, and two more for each time that it was taken up again

rules = Rules()
RunId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$", description="twelve hexadecimal digits")]


class AnchorReason(Reason):
    """Why a journal's head was not recorded."""

    RunAnchoredOtherwise = (
        RefusalKind.CONFLICT,
        "This run was closed with another journal: keep both folders, and ask who made the second.",
    )
    TooManyAnchors = (RefusalKind.CAPACITY, "Start a new run; this one has been taken up too often.")


@rules.route(
    "POST",
    f"{PREFIX}/runs/{{run_id}}/anchor",
    needs=ADMINISTRATORS,
    answers=RunAnchor,
    refuses=tuple(AnchorReason),
    action=ANCHOR_ACTION,
)
def post_anchor(run_id: RunId, asked: AnchorRequest, at: TheRequest, request_id: RequestId) -> Mapping[str, Any]:
    """Put the head of a run's journal on record."""
    action = at.action(run_id, request_id, asked)
    return in_one_transaction(at.mongo, action, lambda: _record(at.mongo, action, asked))


@rules.route("GET", f"{PREFIX}/runs/{{run_id}}/anchors", needs=READERS, answers=list[RunAnchor])
def get_anchors(run_id: RunId, at: TheRequest) -> list[RunAnchor]:
    """Every anchor of the run, oldest first."""
    return anchors_of(at.mongo, run_id)


def anchors_of(mongo: Mongo, run_id: str) -> list[RunAnchor]:
    """As the audit holds them, by the database's time."""
    wanted = {"Target": run_id, "Action": ANCHOR_ACTION, "Outcome": Outcome.ACCEPTED.value}
    found = mongo.collection(AUDIT).find(wanted).sort("ObservedAtUtc", ASCENDING).limit(ANCHORS_MAX)
    return [RunAnchor.model_validate(AuditRecord.from_bson(record).after) for record in found]


def _record(mongo: Mongo, action: Action, asked: AnchorRequest) -> Mapping[str, Any]:
    before = anchors_of(mongo, action.target)
    closed = next((anchor for anchor in before if anchor.phase is AnchorPhase.CLOSED), None)
    if closed is not None and (closed.head, closed.phase) != (asked.head, asked.phase):
        raise Refusal(
            AnchorReason.RunAnchoredOtherwise,
            f"run {action.target} was closed with {closed.head[:12]}…",
            state=closed.model_dump(mode="json", by_alias=True),
        )
    if len(before) == ANCHORS_MAX:
        raise Refusal(AnchorReason.TooManyAnchors, f"{ANCHORS_MAX} of run {action.target}")
    now = server_time(mongo)
    anchor = RunAnchor(
        run_id=action.target,
        runbook=asked.runbook,
        phase=asked.phase,
        head=asked.head,
        entries=asked.entries,
        at=now,
        principal=action.principal,
    )
    outcome = anchor.model_dump(mode="json", by_alias=True)
    transact(mongo, lambda session: accept(mongo, session, action, before={}, after=outcome, now=now))
    return outcome
