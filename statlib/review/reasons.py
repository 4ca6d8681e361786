"""Why a writer of the review domain says no."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind

_K = RefusalKind


class ReviewReason(Reason):
    """Refusals of what was submitted itself: none depends on statistics, and nothing was written."""

    StageUnknown = (_K.NOT_FOUND, "Name a stage of this project: its document lists them.")
    NotAnnotationStage = (_K.INVALID, "Name an annotation stage: sessions are kept on no other.")
    NotScreeningStage = (_K.INVALID, "Name a screening stage, or none: decisions are made on no other.")
    SessionUnknown = (_K.NOT_FOUND, "Open the study again: there is no such session on this stage, or none any more.")
    SessionExists = (_K.CONFLICT, "Open the study again and go on with the session that is there.")
    SessionOfAnother = (_K.UNAUTHORISED, "Only the investigator whose session it is may change it.")
    AnswerInvalid = (_K.INVALID, "Answer the stage's own questions, each once and with what it asks for.")
    AnswersTooLong = (_K.CAPACITY, "Shorten them, or keep long texts elsewhere and answer where they are.")
    ReservationUnknown = (_K.NOT_FOUND, "Nothing to release: the investigator holds no place on this stage by now.")
