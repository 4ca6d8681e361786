"""Decisions for many studies at once, as they come from a spreadsheet or another tool: one staged operation.

Every row is decided on its own: one that cannot be applied is refused with its number and reason, and the others go on.
An interrupted update goes on after the last row that was committed, when it is asked for again with the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from statlib.kernel.digests import digest
from statlib.kernel.refusals import Reason, Refusal
from statlib.passes.audit import server_time
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, STUDIES, Project, Study
from statlib.review.edit_reasons import EditReason
from statlib.review.families import question_answers, search_population
from statlib.review.screening import Decision, decide, inclusion_info
from statlib.statistics import queries
from statlib.statistics.bounds import FENCE_CHUNK_DOCS_MAX
from statlib.statistics.documents import FenceKind
from statlib.statistics.fences import Asked, Held, Progress, admit, chunk, finish, underway
from statlib.statistics.hosts import Host
from statlib.statistics.reasons import OperateReason

ROWS_MAX = 100_000
DISTURBED = frozenset(REVIEW.families) - {search_population.NAME, question_answers.NAME}
"""The families that decisions count in."""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One row: what an investigator decided on a study. ``at``: when; None takes the time of the update."""

    study: UUID
    investigator: UUID
    decision: Decision
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """``row`` counts from 1."""

    row: int
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class BulkUpdated:
    """``applied`` rows changed their study, ``unchanged`` found it so, ``refused`` did nothing.

    ``abandoned``: the intent of an interrupted update with other rows, whose place this one took.
    """

    rows: int
    applied: int
    unchanged: int
    refused: tuple[RefusedRow, ...]
    resumed: bool
    abandoned: Mapping[str, Any] | None

    def as_wire(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "applied": self.applied,
            "unchanged": self.unchanged,
            "refused": [{"row": r.row, "reason": r.reason.name, "detail": r.detail} for r in self.refused],
            "resumed": self.resumed,
            "abandoned": dict(self.abandoned) if self.abandoned is not None else None,
        }


def update_studies(host: Host, project: UUID, rows: Sequence[DecisionRow]) -> BulkUpdated:
    """Apply the rows in their order, a bounded number per transaction.

    Refuses TooManyRows, ProjectNotFound, GateSkew, FenceHeld, LeaseLost. The families that decisions count in are left
    Stale. A crash leaves the rows of whole transactions, and the fence, which the same rows take up again.
    """
    if len(rows) > ROWS_MAX:
        raise Refusal(EditReason.TooManyRows, f"{len(rows):,} rows, at most {ROWS_MAX:,}")
    refused = _repeated(rows)
    skipped = {one.row for one in refused}
    intent = {"rows": len(rows), "digest": digest([[r.study, r.investigator, r.decision, r.at] for r in rows])}
    held = admit(host, REVIEW, project, Asked(FenceKind.BULK_STUDY_UPDATE, DISTURBED, intent))
    progress: Progress = held.fence.progress or {"next": 0, "applied": 0, "unchanged": 0, "unknown": []}
    with underway(held):
        while progress["next"] < len(rows):
            at, end = progress, min(progress["next"] + FENCE_CHUNK_DOCS_MAX, len(rows))
            todo = [(n, rows[n - 1]) for n in range(at["next"] + 1, end + 1) if n not in skipped]
            progress = chunk(held, partial(_step, held, todo, at, end))
        finish(held)
    unknown = (RefusedRow(n, EditReason.StudyUnknown, f"study {rows[n - 1].study}") for n in progress["unknown"])
    return BulkUpdated(
        rows=len(rows),
        applied=progress["applied"],
        unchanged=progress["unchanged"],
        refused=tuple(sorted((*refused, *unknown), key=lambda one: one.row)),
        resumed=held.resumed,
        abandoned=held.abandoned,
    )


def _repeated(rows: Sequence[DecisionRow]) -> list[RefusedRow]:
    first: dict[tuple[UUID, UUID], int] = {}
    refused = []
    for number, row in enumerate(rows, 1):
        earlier = first.setdefault((row.study, row.investigator), number)
        if earlier != number:
            refused.append(RefusedRow(number, EditReason.RowRepeated, f"as row {earlier}"))
    return refused


def _step(
    held: Held, rows: Sequence[tuple[int, DecisionRow]], at: Progress, end: int, session: ClientSession
) -> Progress:
    mongo, project = held.host.mongo, _project(held, session)
    now = server_time(mongo)
    wanted = {"_id": {"$in": list({row.study for _, row in rows})}, "ProjectId": held.project}
    before = {s.id: s for s in map(Study.from_bson, mongo.collection(STUDIES).find(wanted, session=session))}
    after = dict(before)
    unknown, unchanged = list[int](), 0
    for number, row in rows:
        if (study := after.get(row.study)) is None:
            unknown.append(number)
            continue
        decided = decide(study.screenings, row.investigator, row.decision, row.at or now)
        if decided == study.screenings:
            unchanged += 1
        else:
            after[row.study] = study.model_copy(update={"screenings": decided})
    writes = [_write(held, project, study) for id_, study in after.items() if study is not before[id_]]
    if writes:
        mongo.collection(STUDIES).bulk_write(writes, session=session)
    return {
        "next": end,
        "applied": at["applied"] + len(rows) - len(unknown) - unchanged,
        "unchanged": at["unchanged"] + unchanged,
        "unknown": [*at["unknown"], *unknown],
    }


def _write(held: Held, project: Project, study: Study) -> UpdateOne:
    """The snapshot of the transaction holds the study still: a save since then makes one of the two start over."""
    counted = inclusion_info(study.screenings, project.agreement_threshold)
    fields = {
        "Screenings": [screening.to_bson() for screening in study.screenings],
        "InclusionInfo": study.inclusion_info.model_copy(update=dict(counted)).to_bson(),
    }
    return UpdateOne({"_id": study.id}, queries.source_update(fields, held.host.mongo.clock.mongo_now()))


def _project(held: Held, session: ClientSession) -> Project:
    found = held.host.mongo.collection(PROJECTS).find_one({"_id": held.project}, session=session)
    if found is None:
        raise Refusal(OperateReason.ProjectNotFound, f"project {held.project}")
    return Project.from_bson(found)
