"""How a change of a study waits in it until it is folded: five kinds, each with what its families must see.

A kind holds the least of both images from which its families derive their moves: a screening profile, the decisions of
the people concerned, the stages that were touched, or, where the inclusion class changes and every stage moves, all of
them. Answers are not kept: they stale what is counted of them, by an intent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

from statlib.kernel.digests import digest
from statlib.review.evidence import ReviewContext, SessionEvidence, StudyEvidence, TallyEvidence, threshold_parameters
from statlib.review.families import (
    domain_reconciliation,
    membership_screening,
    membership_stage_annotation,
    project_screening,
    question_answers,
    reviewer_annotation,
    reviewer_screening,
    stage_annotation,
)
from statlib.review.families.decisions import POINT_MOVED_MEMBERS_MAX
from statlib.review.families.question_answers import QuestionAnswers
from statlib.statistics.bounds import PENDING_ENTRY_BYTES_MAX
from statlib.statistics.catalogue import Encoded
from statlib.statistics.pending import Intent, Transition, encoded_size

CONTEXT_SCHEMA = "statlib.review.context.v1"


class Kind(StrEnum):
    PROJECT_SCREENING_PROFILE = "ProjectScreeningProfile"
    REVIEWER_SCREENING_POINT = "ReviewerScreeningPoint"
    ANNOTATION_STAGE = "AnnotationStage"
    ANNOTATION_MULTI_STAGE = "AnnotationMultiStage"
    ANNOTATION_RESERVATION_CLAIM = "AnnotationReservationClaim"


class Group(StrEnum):
    """Families whose moves depend on the same part of the project."""

    SCREENING = "Screening"
    MEMBERSHIP = "Membership"
    ANNOTATION = "Annotation"


_REVIEWERS = frozenset({membership_screening.NAME, reviewer_screening.NAME})
_STAGES = frozenset(
    {
        stage_annotation.NAME,
        membership_stage_annotation.NAME,
        domain_reconciliation.NAME,
        reviewer_annotation.NAME,
    }
)

KINDS: Mapping[str, frozenset[str]] = {
    Kind.PROJECT_SCREENING_PROFILE: frozenset({project_screening.NAME}),
    Kind.REVIEWER_SCREENING_POINT: _REVIEWERS,
    Kind.ANNOTATION_STAGE: _STAGES,
    Kind.ANNOTATION_MULTI_STAGE: _STAGES,
    Kind.ANNOTATION_RESERVATION_CLAIM: _STAGES,
}

GROUPS: Mapping[str, str] = {
    project_screening.NAME: Group.SCREENING,
    **dict.fromkeys(_REVIEWERS, Group.MEMBERSHIP),
    **dict.fromkeys([*_STAGES, question_answers.NAME], Group.ANNOTATION),
}


class ReviewTransitions:
    """The review domain's pending entries."""

    @property
    def kinds(self) -> Mapping[str, frozenset[str]]:
        return KINDS

    @property
    def groups(self) -> Mapping[str, str]:
        return GROUPS

    def context_digests(self, context: ReviewContext) -> Mapping[str, str]:
        """Members are in the group of those families alone that count per member: who joins or leaves changes no
        annotation entry, whose people are those of the sessions."""
        threshold = threshold_parameters(context)
        members = sorted(str(member) for member in context.members)
        targets = sorted([str(stage), target] for stage, target in context.targets.items())
        return {
            Group.SCREENING: digest([CONTEXT_SCHEMA, Group.SCREENING, threshold]),
            Group.MEMBERSHIP: digest([CONTEXT_SCHEMA, Group.MEMBERSHIP, threshold, members]),
            Group.ANNOTATION: digest([CONTEXT_SCHEMA, Group.ANNOTATION, threshold, targets]),
        }

    def encode(
        self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext, families: frozenset[str]
    ) -> Encoded:
        transitions: list[Transition] = []
        intents: list[Intent] = []
        if before.screenings != after.screenings:
            if project_screening.NAME in families and (before.n, before.i) != (after.n, after.i):
                transitions.append(_transition(Kind.PROJECT_SCREENING_PROFILE, _profile(before), _profile(after)))
            if len(context.members) > POINT_MOVED_MEMBERS_MAX:
                intents += _stale(_REVIEWERS & families)
            elif _REVIEWERS & families:
                transitions.append(_transition(Kind.REVIEWER_SCREENING_POINT, _decisions(before), _decisions(after)))
        if _STAGES & families and (annotation := self._annotation(before, after, context)) is not None:
            if encoded_size(annotation.to_bson()) > PENDING_ENTRY_BYTES_MAX:
                intents += _stale(_STAGES & families)
            else:
                transitions.append(annotation)
        if question_answers.NAME in families:
            effect = QuestionAnswers().derive(before, after, context)
            intents += [Intent(family=question_answers.NAME, scope=scope) for scope in sorted(effect.stale_scopes)]
        return Encoded(tuple(transitions), tuple(intents))

    def _annotation(self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext) -> Transition | None:
        if context.inclusion_class(before) is not context.inclusion_class(after):
            if not context.targets:
                return None  # in a project without stages a class moves nothing of theirs
            kind, stages = Kind.ANNOTATION_MULTI_STAGE, _stages_of(before) | _stages_of(after)
        else:
            kind, stages = Kind.ANNOTATION_STAGE, _touched(before, after)
            if not stages:
                return None
        order = sorted(stages)
        return _transition(kind, _stages(before, order), _stages(after, order))

    def images(self, transition: Transition) -> tuple[StudyEvidence, StudyEvidence]:
        payload = transition.payload
        match Kind(transition.kind):
            case Kind.PROJECT_SCREENING_PROFILE:
                return _of_profile(payload["Before"]), _of_profile(payload["After"])
            case Kind.REVIEWER_SCREENING_POINT:
                return _of_decisions(payload["Before"]), _of_decisions(payload["After"])
            case Kind.ANNOTATION_STAGE | Kind.ANNOTATION_MULTI_STAGE:
                return _of_stages(payload["Before"]), _of_stages(payload["After"])
            case Kind.ANNOTATION_RESERVATION_CLAIM:
                return _of_claim(payload)


def _transition(kind: Kind, before: Mapping[str, Any], after: Mapping[str, Any]) -> Transition:
    return Transition(kind=kind, payload={"Before": before, "After": after})


def _stale(families: Iterable[str]) -> list[Intent]:
    return [Intent(family=family) for family in sorted(families)]


# Screening: the profile, and the decisions with the people who made them.


def _profile(study: StudyEvidence) -> dict[str, int]:
    return {"N": study.n, "I": study.i}


def _of_profile(profile: Mapping[str, Any]) -> StudyEvidence:
    return StudyEvidence(screenings=_anonymous(profile["N"], profile["I"]))


def _anonymous(n: int, i: int) -> frozenset[tuple[UUID, bool]]:
    """As many decisions of nobody: for families that count a study by its profile alone."""
    if not 0 <= i <= n:
        raise ValueError(f"{i} of {n} screenings cannot include")
    return frozenset((UUID(int=number), number < i) for number in range(n))


def _decisions(study: StudyEvidence) -> dict[str, Any]:
    by = sorted(study.screenings)
    return {"Included": [who for who, included in by if included], "Excluded": [who for who, kept in by if not kept]}


def _of_decisions(decisions: Mapping[str, Any]) -> StudyEvidence:
    return StudyEvidence(
        screenings=frozenset((_id(who), True) for who in decisions["Included"])
        | frozenset((_id(who), False) for who in decisions["Excluded"])
    )


# Annotation: the profile, and of some stages the tally, the sessions without their answers, and the reservations.


def _stages_of(study: StudyEvidence) -> frozenset[UUID]:
    return (
        frozenset(stage for stage, _ in study.tallies)
        | frozenset(session.stage for _, session in study.sessions)
        | frozenset(stage for stage, _ in study.reservations)
    )


def _touched(before: StudyEvidence, after: StudyEvidence) -> frozenset[UUID]:
    changed = StudyEvidence(
        tallies=before.tallies ^ after.tallies,
        sessions=_unanswered(before) ^ _unanswered(after),
        reservations=before.reservations ^ after.reservations,
    )
    return _stages_of(changed)


def _unanswered(study: StudyEvidence) -> frozenset[tuple[UUID, SessionEvidence]]:
    return frozenset(
        (id_, SessionEvidence(s.stage, s.investigator, s.completed, s.reconciliation)) for id_, s in study.sessions
    )


def _stages(study: StudyEvidence, stages: Sequence[UUID]) -> dict[str, Any]:
    tallies = dict(study.tallies)
    return {
        **_profile(study),
        "Stages": [
            {
                "StageId": stage,
                "Tally": _tally(tallies[stage]) if stage in tallies else None,
                "Sessions": [_session(id_, s) for id_, s in sorted(study.sessions, key=_by_id) if s.stage == stage],
                "Reservations": sorted(who for of, who in study.reservations if of == stage),
            }
            for stage in stages
        ],
    }


def _by_id(session: tuple[UUID, SessionEvidence]) -> UUID:
    return session[0]


def _tally(tally: TallyEvidence) -> dict[str, Any]:
    return {
        "NCS": tally.ncs, "NCCS": tally.nccs, "RS": tally.rs, "RC": tally.rc, "Reservations": tally.reservations
    }  # fmt: skip


def _session(id_: UUID, session: SessionEvidence) -> dict[str, Any]:
    return {
        "Id": id_,
        "InvestigatorId": session.investigator,
        "Completed": session.completed,
        "Reconciliation": session.reconciliation,
    }


def _of_stages(image: Mapping[str, Any]) -> StudyEvidence:
    stages = image["Stages"]
    return StudyEvidence(
        screenings=_anonymous(image["N"], image["I"]),
        tallies=frozenset((_id(s["StageId"]), _of_tally(s["Tally"])) for s in stages if s["Tally"] is not None),
        sessions=frozenset(_of_session(_id(s["StageId"]), session) for s in stages for session in s["Sessions"]),
        reservations=frozenset((_id(s["StageId"]), _id(who)) for s in stages for who in s["Reservations"]),
    )


def _of_tally(tally: Mapping[str, Any]) -> TallyEvidence:
    return TallyEvidence(
        ncs=int(tally.get("NCS", 0)),
        nccs=int(tally.get("NCCS", 0)),
        rs=bool(tally.get("RS", False)),
        rc=bool(tally.get("RC", False)),
        reservations=int(tally.get("Reservations", 0)),
    )


def _of_session(stage: UUID, session: Mapping[str, Any]) -> tuple[UUID, SessionEvidence]:
    evidence = SessionEvidence(
        stage, _id(session["InvestigatorId"]), bool(session["Completed"]), bool(session["Reconciliation"])
    )
    return _id(session["Id"]), evidence


def _of_claim(payload: Mapping[str, Any]) -> tuple[StudyEvidence, StudyEvidence]:
    """The image that the claim met, and the one that it made of it: one reservation more, and its stage's tally counted
    anew, whether there was one or not."""
    stage, who = _id(payload["StageId"]), _id(payload["InvestigatorId"])
    before = _of_stages({**payload, "Stages": [payload]})
    reservations = [*payload["Reservations"], who]
    after = StudyEvidence(
        screenings=before.screenings,
        tallies=frozenset({(stage, _counted(before, len(reservations)))}),
        sessions=before.sessions,
        reservations=before.reservations | {(stage, who)},
    )
    return before, after


def _counted(study: StudyEvidence, reservations: int) -> TallyEvidence:
    """``annotation.tally_of``, over the evidence of one stage."""
    candidates = [session for _, session in study.sessions if not session.reconciliation]
    reconciliations = [session for _, session in study.sessions if session.reconciliation]
    return TallyEvidence(
        ncs=len(candidates),
        nccs=sum(session.completed for session in candidates),
        rs=bool(reconciliations),
        rc=any(session.completed for session in reconciliations),
        reservations=reservations,
    )


def _id(value: Any) -> UUID:
    if not isinstance(value, UUID):
        raise TypeError(f"{value!r} is no id")
    return value
