"""The pages of a review: one coherent bundle each, with names and derived summaries beside the counters.

A page asks for all of its counters at once, so that no two of its numbers are of different moments. Names, thresholds
and targets come from the project's document, read before the bundle and again after it: where somebody edited the
project in between, the page is read anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.mongo.reasons import MongoReason
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, AgreementThreshold, Membership, Project, Provenance, Stage
from statlib.review.families import (
    domain_reconciliation,
    membership_screening,
    membership_stage_annotation,
    project_screening,
    question_answers,
    reviewer_annotation,
    reviewer_screening,
    search_population,
    stage_annotation,
)
from statlib.review.scopes import PROJECT_SCOPE, member_scope, search_scope, stage_member_scope, stage_scope
from statlib.review.summaries import (
    AnnotationSummary,
    AnswerSummary,
    ReviewerScreeningSummary,
    ScreeningSummary,
    StageSummary,
    WorkloadSummary,
    annotation_summary,
    answer_summary,
    reviewer_screening_summary,
    screening_summary,
    stage_summary,
    workload_summary,
)
from statlib.statistics.hosts import Host
from statlib.statistics.reader import Bundle, Request, Source, Watermarks, read_bundle
from statlib.statistics.reasons import OperateReason, ServeReason

PAGE_ROUNDS_MAX = 5  # readings of a page whose project is being edited, each two finds and a bundle

_Page = TypeVar("_Page")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a page's numbers come from; ``reason`` says why they were calculated, None where they were stored."""

    source: Source
    reason: ServeReason | None
    watermarks: Watermarks
    checkpoint_identity: str


@dataclass(frozen=True, slots=True)
class SearchLine:
    search: UUID
    name: str
    studies: int


@dataclass(frozen=True, slots=True)
class ProjectPage:
    project: UUID
    name: str
    provenance: Provenance
    threshold: AgreementThreshold
    members: int
    screening: ScreeningSummary
    stages: tuple[StageSummary, ...]
    searches: tuple[SearchLine, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class MemberLine:
    member: UUID
    name: str
    annotation: AnnotationSummary


@dataclass(frozen=True, slots=True)
class StagePage:
    """``answers`` of the stage's questions where they were asked for; else empty."""

    project: UUID
    project_name: str
    provenance: Provenance
    stage: StageSummary
    members: tuple[MemberLine, ...]
    answers: tuple[AnswerSummary, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class StageLine:
    stage: UUID
    name: str
    annotation: AnnotationSummary
    workload: WorkloadSummary


@dataclass(frozen=True, slots=True)
class ReviewerPage:
    project: UUID
    project_name: str
    provenance: Provenance
    member: UUID
    name: str
    screening: ReviewerScreeningSummary
    stages: tuple[StageLine, ...]
    origin: Origin


def project_page(host: Host, project: UUID) -> ProjectPage:
    """Screening, stages and searches of a project. Refuses as ``read_bundle`` does."""

    def requests(of: Project) -> list[Request]:
        return [
            (project_screening.NAME, PROJECT_SCOPE),
            *((search_population.NAME, search_scope(search.id)) for search in of.searches),
            *((family, stage_scope(stage.id)) for stage in of.stages for family in _OF_A_STAGE),
        ]

    def page(of: Project, bundle: Bundle) -> ProjectPage:
        return ProjectPage(
            project=project,
            name=of.name,
            provenance=of.provenance,
            threshold=of.agreement_threshold,
            members=len({membership.investigator_id for membership in of.memberships}),
            screening=screening_summary(bundle.counters(project_screening.NAME), of.agreement_threshold),
            stages=tuple(_stage(stage, bundle) for stage in of.stages),
            searches=tuple(
                SearchLine(
                    search=search.id,
                    name=search.name,
                    studies=bundle.counters(search_population.NAME, search_scope(search.id)).get("Studies", 0),
                )
                for search in of.searches
            ),
            origin=_origin(bundle),
        )

    return _read(host, project, requests, page)


def stage_page(host: Host, project: UUID, stage: UUID, *, answers: bool = False) -> StagePage:
    """A stage, and what each member did on it; with ``answers``, those to its questions as well.

    Answers are outdated by every completed session until they are rebuilt, and so would be the page with them.
    Refuses ScopeUnknown where the project has no such stage, and as ``read_bundle`` does.
    """

    def requests(of: Project) -> list[Request]:
        _stage_of(of, stage)
        return [
            *((family, stage_scope(stage)) for family in _OF_A_STAGE),
            *((membership_stage_annotation.NAME, stage_member_scope(stage, m.investigator_id)) for m in of.memberships),
            *([(question_answers.NAME, PROJECT_SCOPE)] if answers else []),
        ]

    def page(of: Project, bundle: Bundle) -> StagePage:
        questions = [question for question in of.questions if question.stage_id == stage] if answers else []
        return StagePage(
            project=project,
            project_name=of.name,
            provenance=of.provenance,
            stage=_stage(_stage_of(of, stage), bundle),
            members=tuple(
                MemberLine(
                    member=member.investigator_id,
                    name=member.name,
                    annotation=annotation_summary(
                        bundle.counters(
                            membership_stage_annotation.NAME, stage_member_scope(stage, member.investigator_id)
                        )
                    ),
                )
                for member in of.memberships
            ),
            answers=tuple(answer_summary(question, bundle.counters(question_answers.NAME)) for question in questions),
            origin=_origin(bundle),
        )

    return _read(host, project, requests, page)


def reviewer_page(host: Host, project: UUID, member: UUID) -> ReviewerPage:
    """What one current member did, and what waits for them, in screening and on every stage.

    Refuses ScopeUnknown where the project has no such member, and as ``read_bundle`` does.
    """

    def requests(of: Project) -> list[Request]:
        _member_of(of, member)
        return [
            (membership_screening.NAME, member_scope(member)),
            (reviewer_screening.NAME, member_scope(member)),
            *(
                (family, stage_member_scope(stage.id, member))
                for stage in of.stages
                for family in (membership_stage_annotation.NAME, reviewer_annotation.NAME)
            ),
        ]

    def page(of: Project, bundle: Bundle) -> ReviewerPage:
        return ReviewerPage(
            project=project,
            project_name=of.name,
            provenance=of.provenance,
            member=member,
            name=_member_of(of, member).name,
            screening=reviewer_screening_summary(
                bundle.counters(membership_screening.NAME, member_scope(member)),
                bundle.counters(reviewer_screening.NAME, member_scope(member)),
            ),
            stages=tuple(
                StageLine(
                    stage=stage.id,
                    name=stage.name,
                    annotation=annotation_summary(
                        bundle.counters(membership_stage_annotation.NAME, stage_member_scope(stage.id, member))
                    ),
                    workload=workload_summary(
                        bundle.counters(reviewer_annotation.NAME, stage_member_scope(stage.id, member))
                    ),
                )
                for stage in of.stages
            ),
            origin=_origin(bundle),
        )

    return _read(host, project, requests, page)


_OF_A_STAGE = (stage_annotation.NAME, domain_reconciliation.NAME)


def _read(
    host: Host,
    project: UUID,
    requests: Callable[[Project], Sequence[Request]],
    page: Callable[[Project, Bundle], _Page],
) -> _Page:
    """The page of a bundle that was read between two readings of one and the same project document."""
    host.require_open()
    before = _project(host, project)
    for _ in range(PAGE_ROUNDS_MAX):
        try:
            bundle = read_bundle(host, REVIEW, project, requests(before))
        except Refusal as refusal:
            after = _project(host, project)
            if refusal.reason is not OperateReason.ScopeUnknown or after == before:
                raise
        else:
            after = _project(host, project)
            if after == before:
                return page(after, bundle)
        before = after
    raise Refusal(MongoReason.Contended, f"project {project} was edited {PAGE_ROUNDS_MAX} times while it was read")


def _project(host: Host, project: UUID) -> Project:
    found = host.mongo.collection(PROJECTS).find_one({"_id": project})
    if found is None:
        raise Refusal(OperateReason.ProjectNotFound, f"project {project}")
    return Project.from_bson(found)


def _stage_of(project: Project, stage: UUID) -> Stage:
    for found in project.stages:
        if found.id == stage:
            return found
    raise Refusal(OperateReason.ScopeUnknown, f"project {project.id} has no stage {stage}")


def _member_of(project: Project, member: UUID) -> Membership:
    for found in project.memberships:
        if found.investigator_id == member:
            return found
    raise Refusal(OperateReason.ScopeUnknown, f"project {project.id} has no member {member}")


def _stage(stage: Stage, bundle: Bundle) -> StageSummary:
    return stage_summary(stage, *(bundle.counters(family, stage_scope(stage.id)) for family in _OF_A_STAGE))


def _origin(bundle: Bundle) -> Origin:
    return Origin(bundle.source, bundle.reason, bundle.watermarks, bundle.watermarks.checkpoint_identity)
