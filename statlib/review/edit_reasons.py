"""Why an edit of a project, or an operation over many of its studies, says no."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind

_K = RefusalKind


class EditReason(Reason):
    """Refusals of an edit; nothing was changed. Those of a row of many concern that row alone."""

    AlreadyThere = (_K.CONFLICT, "The project has it already: look at its document.")
    NotAMember = (_K.NOT_FOUND, "Name an investigator of this project: its document lists them.")
    QuestionUnknown = (_K.NOT_FOUND, "Name a question of this project: its document lists them.")
    SearchUnknown = (_K.NOT_FOUND, "Name a search of this project: its document lists them.")
    OptionsInvalid = (
        _K.INVALID,
        "Give a choice distinct options, and nothing else any; rename only options that are there.",
    )
    NameReused = (
        _K.CONFLICT,
        "Rename in two edits: an old name may not stay, or come back, in the edit that gives it up.",
    )
    OptionAnswered = (
        _K.CONFLICT,
        "Answers with this option are stored: rename it into another instead of dropping it.",
    )
    QuestionAnswered = (_K.CONFLICT, "Answers to it are stored: a question that was answered stays.")
    StageInUse = (_K.CONFLICT, "Sessions or reservations are stored on it: a stage that was worked on stays.")
    SearchBusy = (
        _K.CONTENTION,
        "It is being imported or removed: `statlib fences list` shows it; wait until that has ended.",
    )
    RowRepeated = (_K.INVALID, "Give each study and investigator once: of two rows the first counts.")
    StudyUnknown = (_K.NOT_FOUND, "Name a study of this project.")
    StudyElsewhere = (_K.CONFLICT, "This id is taken by another study: give the row an id of its own.")
    TooManyRows = (_K.CAPACITY, "Send the rows in several requests.")
