"""What a project and a study contribute to statistics, as hashable values."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from statlib.kernel.digests import digest
from statlib.review.documents import AgreementThreshold, Project, Study
from statlib.statistics.catalogue import Document


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """The parameters of every calculation in one project. ``members`` are its current investigators."""

    project: UUID
    threshold: AgreementThreshold
    members: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class StudyEvidence:
    """The counted part of one study: who screened it, and how."""

    screenings: frozenset[tuple[UUID, bool]]

    @property
    def n(self) -> int:
        return len(self.screenings)

    @property
    def i(self) -> int:
        return sum(included for _, included in self.screenings)


class ReviewDomain:
    """The engine's view of systematic-review documents."""

    def context(self, project: Document) -> ReviewContext:
        parsed = Project.from_bson(project)
        members = tuple(sorted(m.investigator_id for m in parsed.memberships))
        return ReviewContext(parsed.id, parsed.agreement_threshold, members)

    def configuration_digest(self, context: ReviewContext) -> str:
        """Of the threshold: who is a member decides which scopes exist, not what any of them counts."""
        threshold = context.threshold
        return digest(["statlib.review.configuration.v1", threshold.min_screenings, threshold.agreement_ratio])

    def evidence(self, source: Document) -> StudyEvidence:
        study = Study.from_bson(source)
        return StudyEvidence(frozenset((s.investigator_id, s.included) for s in study.screenings))
