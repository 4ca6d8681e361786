"""Annotated studies for tests: stored documents, and the steps by which people screen and annotate them.

Nothing of the product takes part, so that whatever it decides is held against documents that it did not make.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from tests.oracles.families_annotation import tally_of

AT = datetime(2024, 1, 1, tzinfo=UTC)
MEMBERS = [UUID(int=number) for number in (1, 2, 3)]
LEFT, STRANGER = UUID(int=4), UUID(int=5)
PEOPLE = [*MEMBERS, LEFT, STRANGER]
STAGES = [UUID(int=number) for number in (30, 31)]
GONE = UUID(int=32)  # a stage that the project no longer has
TARGETS = (2, 1)
QUESTIONS = [UUID(int=number) for number in (40, 41)]
KEYS: list[str | None] = ["true", "3.5", "yes/no?", "", "Text", "Ä $b", None]


class Act(StrEnum):
    INCLUDE = "include"
    EXCLUDE = "exclude"
    RETRACT = "retract"
    START = "start"
    COMPLETE = "complete"
    ANSWER = "answer"
    DELETE = "delete"
    RESERVE = "reserve"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Step:
    """What ``who`` does to one study; completing starts a session where there is none.

    ``second`` is another session of the same sort, which writers do not make but which the counters define;
    ``answers`` are (question, key).
    """

    act: Act
    who: UUID
    stage: UUID = STAGES[0]
    reconciliation: bool = False
    second: bool = False
    answers: tuple[tuple[UUID, str | None], ...] = ()


def any_step(chance: random.Random, people: list[UUID], stages: list[UUID]) -> Step:
    return Step(
        act=chance.choice(list(Act)),
        who=chance.choice(people),
        stage=chance.choice(stages),
        reconciliation=chance.random() < 0.3,
        second=chance.random() < 0.3,
        answers=tuple((chance.choice(QUESTIONS), chance.choice(KEYS)) for _ in range(chance.randrange(4))),
    )


def a_project(id_: UUID, **changed: Any) -> dict[str, Any]:
    """A stored project with the members and stages above."""
    stages = [
        {"Id": stage, "Name": "a stage", "Kind": "Annotation", "SessionCountTarget": target}
        for stage, target in zip(STAGES, TARGETS, strict=True)
    ]
    return {
        "_id": id_,
        "Name": "a review",
        "AgreementThreshold": {"MinScreenings": 2, "AgreementRatio": 0.66},
        "Memberships": [{"InvestigatorId": member, "JoinedAtUtc": AT} for member in MEMBERS],
        "Stages": stages,
        "Questions": [],
        "Searches": [],
        "Audit": {"Version": 0},
    } | changed


def a_study(id_: UUID, project: UUID) -> dict[str, Any]:
    arrays: dict[str, Any] = {name: [] for name in ("Screenings", "Sessions", "Tallies", "SlotReservations")}
    return {"_id": id_, "ProjectId": project, "Audit": {"Version": 0}, **arrays}


def after(study: dict[str, Any], *steps: Step) -> dict[str, Any]:
    """The study once these steps were taken, in order; one that makes no sense changes nothing."""
    for step in steps:
        study = _after_one(study, step)
    return study


def _after_one(study: dict[str, Any], step: Step) -> dict[str, Any]:
    match step.act:
        case Act.INCLUDE | Act.EXCLUDE | Act.RETRACT:
            others = [s for s in study["Screenings"] if s["InvestigatorId"] != step.who]
            own = {"InvestigatorId": step.who, "Included": step.act is Act.INCLUDE, "AtUtc": AT}
            return {**study, "Screenings": others if step.act is Act.RETRACT else [*others, own]}
        case Act.RESERVE | Act.RELEASE:
            reserved = {"StageId": step.stage, "InvestigatorId": step.who, "AtUtc": AT}
            others = [r for r in study["SlotReservations"] if r != reserved]
            return _tallied(study, step, SlotReservations=others if step.act is Act.RELEASE else [*others, reserved])
    sort = f"{step.who}{step.stage}{step.reconciliation}{step.second}"
    session = next((s for s in study["Sessions"] if s["Id"] == uuid5(study["_id"], sort)), None)
    others = [s for s in study["Sessions"] if s is not session]
    if session is None:
        if step.act not in {Act.START, Act.COMPLETE}:
            return study
        session = _started(uuid5(study["_id"], sort), step)
    elif step.act is Act.DELETE:
        return _tallied(study, step, Sessions=others)
    if step.act is Act.COMPLETE:
        session = {**session, "Status": "Completed"}
    if step.act is Act.ANSWER:
        session = {**session, "Answers": [{"QuestionId": q, "Value": k or "text", "Key": k} for q, k in step.answers]}
    return _tallied(study, step, Sessions=[*others, session])


def _started(id_: UUID, step: Step) -> dict[str, Any]:
    return {
        "Id": id_,
        "StageId": step.stage,
        "InvestigatorId": step.who,
        "Status": "Started",
        "Reconciliation": step.reconciliation,
        "Answers": [],
        "AtUtc": AT,
    }


def _tallied(study: dict[str, Any], step: Step, **fields: Any) -> dict[str, Any]:
    changed = {**study, **fields}
    if changed == study:
        return study
    others = [tally for tally in study["Tallies"] if tally["StageId"] != step.stage]
    return {**changed, "Tallies": [*others, tally_of(step.stage, changed)]}
