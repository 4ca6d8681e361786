"""The read mix: pages of the application, drawn from a seed, each one coherent bundle."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from statlib.review.catalogue import REVIEW
from statlib.review.documents import Project
from statlib.review.families import project_screening
from statlib.review.pages import Origin, project_page, reviewer_page, stage_page
from statlib.runbook.soak.savers import Rows
from statlib.statistics.hosts import Host
from statlib.statistics.reader import ALL, read_bundle

PROJECT, STAGE, REVIEWER, EVERYTHING = "project page", "stage page", "reviewer page", "every family"
RECOUNTED = (REVIEWER, EVERYTHING)
"""Reads of families that saves outdate: what is left for a reviewer, and answers, are counted anew by rebuilds."""

Read = tuple[int, Origin]  # scopes, and where they came from


class ReadMix(BaseModel):
    """Weights of the pages: how often each is read, against the others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: int = Field(default=6, ge=1, le=1_000)
    stage: int = Field(default=3, ge=0, le=1_000)
    reviewer: int = Field(default=1, ge=0, le=1_000)


def page_reads(host: Host, project: Project, mix: ReadMix, seed: int, rows: Rows) -> Callable[[], None]:
    """One page. Of a review without stages, or members, those that have none are not read."""
    chance = random.Random(f"{seed} reads")  # noqa: S311 - reproducible, not secret
    stages = [stage.id for stage in project.stages]
    members = [member.investigator_id for member in project.memberships]
    weights = {PROJECT: mix.project, STAGE: mix.stage * bool(stages), REVIEWER: mix.reviewer * bool(members)}

    def observe() -> None:
        [page] = chance.choices(list(weights), list(weights.values()))
        stage, member = _drawn(chance, stages), _drawn(chance, members)
        started = time.perf_counter()
        scopes, origin = _read(host, project, page, stage, member)
        rows.append(_row(page, scopes, origin.source.value, origin.reason.name if origin.reason else None, started))

    return observe


def everything(host: Host, project: UUID, rows: Rows, progress: Rows) -> Callable[[], None]:
    """One bundle of every scope of every family; its screening classes go to ``progress``."""

    def observe() -> None:
        started = time.perf_counter()
        bundle = read_bundle(host, REVIEW, project, [(family, ALL) for family in REVIEW.families])
        reason = bundle.reason.name if bundle.reason else None
        row = _row(EVERYTHING, sum(map(len, bundle.values.values())), bundle.source.value, reason, started)
        rows.append(row)
        counters = bundle.counters(project_screening.NAME)
        classes = {key.removeprefix("Class/"): n for key, n in counters.items() if key.startswith("Class/")}
        progress.append({"at": row["at"], "studies": classes})

    return observe


def _read(host: Host, project: Project, page: str, stage: UUID | None, member: UUID | None) -> Read:
    """Refuses ScopeUnknown the page of a member who is away just then, and as the pages do."""
    if page == STAGE and stage is not None:
        of_stage = stage_page(host, project.id, stage)
        return 2 + len(of_stage.members), of_stage.origin
    if page == REVIEWER and member is not None:
        of_reviewer = reviewer_page(host, project.id, member)
        return 2 + 2 * len(of_reviewer.stages), of_reviewer.origin
    of_project = project_page(host, project.id)
    return 1 + len(of_project.searches) + 2 * len(of_project.stages), of_project.origin


def _drawn(chance: random.Random, ids: list[UUID]) -> UUID | None:
    return chance.choice(ids) if ids else None


def _row(what: str, scopes: int, source: str, reason: str | None, started: float) -> dict[str, Any]:
    return {
        "family": what,
        "scopes": scopes,
        "source": source,
        "reason": reason,
        "latency_ms": round((time.perf_counter() - started) * 1000, 3),
        "at": datetime.now(UTC).isoformat(),
    }
