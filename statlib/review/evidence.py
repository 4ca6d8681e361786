"""What a project and a study contribute to statistics, as hashable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from statlib.review.documents import AgreementThreshold, InclusionClass, Project, Session, SessionStatus, Study
from statlib.review.screening import ScreeningClass, inclusion_class, screening_class
from statlib.statistics.catalogue import Document
from statlib.statistics.documents import TrackingMode


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """The parameters of every calculation in one project.

    ``members`` are its current investigators, ``targets`` the ``SessionCountTarget`` of each current stage in its
    order, ``searches`` its current searches.
    """

    project: UUID
    threshold: AgreementThreshold
    members: tuple[UUID, ...] = ()
    targets: Mapping[UUID, int] = field(default_factory=dict)
    searches: tuple[UUID, ...] = ()
    tracking: TrackingMode = TrackingMode.TRACKED

    @property
    def stages(self) -> tuple[UUID, ...]:
        return tuple(self.targets)

    def screening_class(self, study: StudyEvidence) -> ScreeningClass:
        return screening_class(study.n, study.i, self.threshold)

    def inclusion_class(self, study: StudyEvidence) -> InclusionClass:
        return inclusion_class(self.screening_class(study))


@dataclass(frozen=True, slots=True)
class SessionEvidence:
    """``answers`` are (question, key) of a completed session, sorted; a started one's are not counted."""

    stage: UUID
    investigator: UUID
    completed: bool
    reconciliation: bool
    answers: tuple[tuple[UUID, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class TallyEvidence:
    ncs: int
    nccs: int
    rs: bool
    rc: bool
    reservations: int

    def allocation(self, tracking: TrackingMode) -> int:
        """Places taken: reservations count where reviewers are tracked."""
        return self.ncs + (self.reservations if tracking is TrackingMode.TRACKED else 0)


@dataclass(frozen=True, slots=True)
class StudyEvidence:
    """The counted part of one study: who screened it, and how; who annotated it, where, and how far.

    ``tallies`` are the stored ones, by stage; ``sessions`` by their id; ``reservations`` are (stage, investigator).
    """

    screenings: frozenset[tuple[UUID, bool]] = frozenset()
    search: UUID | None = None
    tallies: frozenset[tuple[UUID, TallyEvidence]] = frozenset()
    sessions: frozenset[tuple[UUID, SessionEvidence]] = frozenset()
    reservations: frozenset[tuple[UUID, UUID]] = frozenset()

    @property
    def n(self) -> int:
        return len(self.screenings)

    @property
    def i(self) -> int:
        return sum(included for _, included in self.screenings)


class ReviewDomain:
    """The engine's view of systematic-review documents."""

    def context(self, project: Document, tracking: TrackingMode) -> ReviewContext:
        parsed = Project.from_bson(project)
        return ReviewContext(
            project=parsed.id,
            threshold=parsed.agreement_threshold,
            members=tuple(sorted({m.investigator_id for m in parsed.memberships})),
            targets={stage.id: stage.session_count_target for stage in parsed.stages},
            searches=tuple(search.id for search in parsed.searches),
            tracking=tracking,
        )

    def evidence(self, source: Document) -> StudyEvidence:
        study = Study.from_bson(source)
        return StudyEvidence(
            screenings=frozenset((s.investigator_id, s.included) for s in study.screenings),
            search=study.search_id,
            tallies=frozenset(
                (t.stage_id, TallyEvidence(t.ncs, t.nccs, t.rs, t.rc, t.reservations)) for t in study.tallies
            ),
            sessions=frozenset(
                (
                    s.id,
                    SessionEvidence(
                        stage=s.stage_id,
                        investigator=s.investigator_id,
                        completed=(completed := s.status is SessionStatus.COMPLETED),
                        reconciliation=s.reconciliation,
                        answers=_counted_answers(s) if completed else (),
                    ),
                )
                for s in study.sessions
            ),
            reservations=frozenset((r.stage_id, r.investigator_id) for r in study.slot_reservations),
        )


def _counted_answers(session: Session) -> tuple[tuple[UUID, str | None], ...]:
    return tuple(sorted(((a.question_id, a.key) for a in session.answers), key=lambda a: (a[0], a[1] or "")))


def threshold_parameters(context: ReviewContext) -> tuple[int, float]:
    """What every counter with a class in it was calculated under."""
    return context.threshold.min_screenings, context.threshold.agreement_ratio
