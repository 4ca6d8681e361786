"""The review domain as the statistics engine sees it: every family is registered here, and nowhere else."""

from __future__ import annotations

from statlib.review.documents import PROJECTS, STUDIES
from statlib.review.evidence import ReviewContext, ReviewDomain, StudyEvidence
from statlib.review.families.membership_screening import MembershipScreening
from statlib.review.families.project_screening import ProjectScreening
from statlib.review.families.reviewer_screening import ReviewerScreening
from statlib.review.families.search_population import SearchPopulation
from statlib.statistics.catalogue import Catalogue, Family

CATALOGUE_VERSION = 2

_FAMILIES: tuple[Family[ReviewContext, StudyEvidence], ...] = (
    ProjectScreening(),
    MembershipScreening(),
    ReviewerScreening(),
    SearchPopulation(),
)

REVIEW: Catalogue[ReviewContext, StudyEvidence] = Catalogue(
    source_collection=STUDIES,
    context_collection=PROJECTS,
    version=CATALOGUE_VERSION,
    families={family.name: family for family in _FAMILIES},
    domain=ReviewDomain(),
)
