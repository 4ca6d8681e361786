"""What pages say beyond counters: shares, completion and work that is left, derived from one bundle. Pure.

Nothing here needs a row of its own. A share is between 0 and 1, and None where there is nothing to have a share of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from statlib.review.documents import AgreementThreshold, InclusionClass, Question, Stage, StageKind
from statlib.review.screening import ScreeningClass
from statlib.statistics.counters import Counters


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class ScreeningSummary:
    """The project's screening.

    ``classes`` are studies per screening class. ``progress``: the share of studies whose class is sufficient.
    ``agreement``: of the studies that two or more people screened, the share on which all of them agree.
    ``decisions_missing``: what it takes until every study has the least number of screenings; conflicts come on top.
    """

    studies: int
    classes: Mapping[ScreeningClass, int]
    decisions: int
    inclusions: int
    exclusions: int
    progress: float | None
    agreement: float | None
    decisions_missing: int


def screening_summary(counters: Counters, threshold: AgreementThreshold) -> ScreeningSummary:
    """From the counters of ProjectScreening."""
    profiles = [(n, i, studies) for (n, i), studies in _pairs(counters, "Profile/")]
    classes = {class_: counters.get(f"Class/{class_}", 0) for class_ in ScreeningClass}
    several = [(n, i, studies) for n, i, studies in profiles if n >= 2]
    studies = counters.get("Studies", 0)
    return ScreeningSummary(
        studies=studies,
        classes=classes,
        decisions=counters.get("Decisions", 0),
        inclusions=counters.get("Inclusions", 0),
        exclusions=counters.get("Exclusions", 0),
        progress=share(classes[ScreeningClass.INCLUDED] + classes[ScreeningClass.EXCLUDED], studies),
        agreement=share(
            sum(studies for n, i, studies in several if i in {0, n}), sum(studies for _, _, studies in several)
        ),
        decisions_missing=sum(max(0, threshold.min_screenings - n) * studies for n, _, studies in profiles),
    )


@dataclass(frozen=True, slots=True)
class ReconciliationSummary:
    """The eligible studies of a stage, each in one of these; ``untouched`` are those without a tally."""

    reconciled: int
    in_progress: int
    awaiting: int
    not_ready: int
    untouched: int


@dataclass(frozen=True, slots=True)
class StageSummary:
    """One stage. Its *eligible* studies are the included ones; of a screening stage, all.

    ``started`` and ``completed``: eligible studies with a candidate session, with a completed one.
    ``completion``: the share of eligible studies with as many completed sessions as the target asks for.
    ``sessions_missing``: what it takes until all of them have, sessions under way included.
    """

    stage: UUID
    name: str
    kind: StageKind
    target: int
    population: Mapping[InclusionClass, int]
    eligible: int
    started: int
    completed: int
    reservations: int
    reconciliation: ReconciliationSummary
    completion: float | None
    reconciled: float | None
    sessions_missing: int


def stage_summary(stage: Stage, annotation: Counters, reconciliation: Counters) -> StageSummary:
    """From one stage's counters of StageAnnotation and DomainReconciliation."""
    classes = tuple(InclusionClass) if stage.kind is StageKind.SCREENING else (InclusionClass.INCLUDED,)
    target = stage.session_count_target

    def eligible(counters: Counters, key: str) -> int:
        return sum(counters.get(key.format(c=class_), 0) for class_ in classes)

    population = {class_: annotation.get(f"Population/{class_}", 0) for class_ in InclusionClass}
    whole = sum(population[class_] for class_ in classes)
    tallies = [entry for class_ in classes for entry in _pairs(annotation, f"Tally/{class_}/")]
    untouched = whole - sum(studies for _, studies in tallies)
    stands = ReconciliationSummary(
        reconciled=eligible(reconciliation, "{c}/Reconciled"),
        in_progress=eligible(reconciliation, "{c}/InProgress"),
        awaiting=eligible(reconciliation, "{c}/Awaiting"),
        not_ready=eligible(reconciliation, "{c}/NotReady"),
        untouched=untouched,
    )
    return StageSummary(
        stage=stage.id,
        name=stage.name,
        kind=stage.kind,
        target=target,
        population=population,
        eligible=whole,
        started=eligible(annotation, "Sessioned/{c}/Started"),
        completed=eligible(annotation, "Sessioned/{c}/Completed"),
        reservations=eligible(annotation, "Reservations/{c}"),
        reconciliation=stands,
        completion=share(sum(studies for (_, nccs), studies in tallies if nccs >= target), whole),
        reconciled=share(stands.reconciled, whole),
        sessions_missing=untouched * target + sum(max(0, target - nccs) * studies for (_, nccs), studies in tallies),
    )


@dataclass(frozen=True, slots=True)
class AnnotationSummary:
    """Studies that one person annotated or reserved on one stage, whatever their inclusion class."""

    started: int
    completed: int
    reconciliations_started: int
    reconciliations_completed: int
    reserved: int


def annotation_summary(counters: Counters) -> AnnotationSummary:
    """From one scope of MembershipStageAnnotation."""

    def of(what: str) -> int:
        return sum(counters.get(f"{class_}/{what}", 0) for class_ in InclusionClass)

    return AnnotationSummary(
        started=of("Started"),
        completed=of("Completed"),
        reconciliations_started=of("ReconciliationStarted"),
        reconciliations_completed=of("ReconciliationCompleted"),
        reserved=of("Reserved"),
    )


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """The included studies of one stage, each in one of these for one person; ``unavailable``: others have it covered.

    ``progress``: the share completed of what was, is or can be theirs.
    """

    completed: int
    in_progress: int
    available: int
    unavailable: int
    progress: float | None


def workload_summary(counters: Counters) -> WorkloadSummary:
    """From one scope of ReviewerAnnotation."""
    completed, under_way, available, unavailable = (
        counters.get(key, 0) for key in ("Completed", "InProgress", "Available", "Unavailable")
    )
    progress = share(completed, completed + under_way + available)
    return WorkloadSummary(completed, under_way, available, unavailable, progress)


@dataclass(frozen=True, slots=True)
class ReviewerScreeningSummary:
    """One person's screening.

    ``available``: studies that wait for their decision; ``unavailable`` are settled without it. ``progress``: the share
    screened of what was or is theirs. ``agreement``: of their decisions on settled studies, the share that prevailed.
    """

    screened: int
    included: int
    excluded: int
    available: int
    unavailable: int
    agreed: int
    overruled: int
    open: int
    progress: float | None
    agreement: float | None


def reviewer_screening_summary(membership: Counters, reviewer: Counters) -> ReviewerScreeningSummary:
    """From one member's counters of MembershipScreening and ReviewerScreening."""
    screened, available = membership.get("Screened", 0), membership.get("Available", 0)
    agreed, overruled = reviewer.get("Agreed", 0), reviewer.get("Overruled", 0)
    return ReviewerScreeningSummary(
        screened=screened,
        included=membership.get("Included", 0),
        excluded=membership.get("Excluded", 0),
        available=available,
        unavailable=membership.get("Unavailable", 0),
        agreed=agreed,
        overruled=overruled,
        open=reviewer.get("Open", 0),
        progress=share(screened, screened + available),
        agreement=share(agreed, agreed + overruled),
    )


@dataclass(frozen=True, slots=True)
class AnswerSummary:
    """One question's answers in completed sessions. ``values`` are per answer key, most frequent first."""

    question: UUID
    text: str
    answered: int
    free_text: int
    values: Mapping[str, int]


def answer_summary(question: Question, counters: Counters) -> AnswerSummary:
    """From the counters of QuestionAnswers."""
    prefix = f"{question.id}/Value/"
    values = {key.removeprefix(prefix): count for key, count in counters.items() if key.startswith(prefix) and count}
    return AnswerSummary(
        question=question.id,
        text=question.text,
        answered=counters.get(f"{question.id}/Answered", 0),
        free_text=counters.get(f"{question.id}/Text", 0),
        values=dict(sorted(values.items(), key=lambda entry: (-entry[1], entry[0]))),
    )


def _pairs(counters: Counters, prefix: str) -> Iterator[tuple[tuple[int, int], int]]:
    """((a, b), studies) of counters ``{prefix}{a}:{b}``."""
    for key, studies in counters.items():
        if key.startswith(prefix):
            first, _, second = key.removeprefix(prefix).partition(":")
            yield (int(first), int(second)), studies
