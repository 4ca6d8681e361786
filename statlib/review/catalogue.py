"""The review domain as the statistics engine sees it: every family is registered here, and nowhere else."""

from __future__ import annotations

from statlib.review.documents import PROJECTS, STUDIES
from statlib.review.evidence import ReviewContext, ReviewDomain, StudyEvidence
from statlib.review.families.domain_reconciliation import DomainReconciliation
from statlib.review.families.membership_screening import MembershipScreening
from statlib.review.families.membership_stage_annotation import MembershipStageAnnotation
from statlib.review.families.project_screening import ProjectScreening
from statlib.review.families.question_answers import QuestionAnswers
from statlib.review.families.reviewer_annotation import ReviewerAnnotation
from statlib.review.families.reviewer_screening import ReviewerScreening
from statlib.review.families.search_population import SearchPopulation
from statlib.review.families.stage_annotation import StageAnnotation
from statlib.review.rewrites import REWRITES
from statlib.review.study_pass import StudyPass
from statlib.review.transitions import ReviewTransitions
from statlib.statistics.catalogue import Catalogue, Family

CATALOGUE_VERSION = 2

_FAMILIES: tuple[Family[ReviewContext, StudyEvidence], ...] = (
    ProjectScreening(),
    MembershipScreening(),
    ReviewerScreening(),
    StageAnnotation(),
    MembershipStageAnnotation(),
    DomainReconciliation(),
    ReviewerAnnotation(),
    QuestionAnswers(),
    SearchPopulation(),
)

_BY_NAME = {family.name: family for family in _FAMILIES}

REVIEW: Catalogue[ReviewContext, StudyEvidence] = Catalogue(
    source_collection=STUDIES,
    context_collection=PROJECTS,
    version=CATALOGUE_VERSION,
    families=_BY_NAME,
    domain=ReviewDomain(),
    passes=(StudyPass(_BY_NAME),),
    rewrites=REWRITES,
    transitions=ReviewTransitions(),
)
