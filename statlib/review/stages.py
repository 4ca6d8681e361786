"""What every writer on a stage shares: finding the stage, and the places that people hold there. Pure."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.review.annotation import tallies_after
from statlib.review.documents import Project, Session, SlotReservation, Stage, StageKind, Study
from statlib.review.reasons import ReviewReason
from statlib.statistics.envelopes import Envelope
from statlib.statistics.sources import Loaded

_OTHER_KIND = {
    StageKind.SCREENING: ReviewReason.NotScreeningStage,
    StageKind.ANNOTATION: ReviewReason.NotAnnotationStage,
}


def stage_of(project: Project, stage: UUID | None, kind: StageKind | None = None) -> Stage:
    """The project's stage of that id. Refuses StageUnknown, and a stage that is not of ``kind`` where one is asked."""
    found = next((known for known in project.stages if known.id == stage), None)
    if found is None:
        raise Refusal(ReviewReason.StageUnknown, f"stage {stage} of project {project.id}")
    if kind not in {None, found.kind}:
        raise Refusal(_OTHER_KIND[kind or found.kind], f"{found.name!r} is a stage of kind {found.kind}")
    return found


def project_as_opened(envelope: Envelope) -> Project:
    """What opening read of the project. Only for envelopes that were minted just now."""
    return Project.from_bson(_loaded(envelope).context)


def study_as_opened(envelope: Envelope) -> Study:
    """What opening read of the study. Only for envelopes that were minted just now."""
    return Study.from_bson(_loaded(envelope).source)


def _loaded(envelope: Envelope) -> Loaded:
    if envelope.loaded is None:
        raise ValueError("an envelope that came over the wire has not read anything")
    return envelope.loaded


def without_reservation(study: Study, stage: UUID, investigator: UUID) -> tuple[SlotReservation, ...]:
    """The study's reservations once that investigator has let go of the stage."""
    return tuple(r for r in study.slot_reservations if (r.stage_id, r.investigator_id) != (stage, investigator))


def annotation_fields(
    study: Study, sessions: tuple[Session, ...], reservations: tuple[SlotReservation, ...]
) -> dict[str, Any]:
    """What a write sets to leave these sessions and reservations, tallies recounted; nothing if none of it is new."""
    fields: dict[str, Any] = {}
    if sessions != study.sessions:
        fields["Sessions"] = [session.to_bson() for session in sessions]
    if reservations != study.slot_reservations:
        fields["SlotReservations"] = [reservation.to_bson() for reservation in reservations]
    if fields:
        fields["Tallies"] = [tally.to_bson() for tally in tallies_after(study, sessions, reservations)]
    return fields
