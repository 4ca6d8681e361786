"""The decision table, whole: every situation there is, held against properties stated on their own."""

from __future__ import annotations

from itertools import product

import pytest

from statlib.statistics.arms import Arm
from statlib.statistics.idempotency import Answer, Evidence, Position, Situation, decide

ALL = [Situation(*facts) for facts in product(Arm, Position, (True, False), Evidence, (True, False), (True, False))]
LEAVING_EVIDENCE = {Arm.TRANSACTIONAL, Arm.FOLD}
DEFINITE_NOES = {Answer.VERSION_STALE, Answer.DIGEST_MISMATCH}


def test_every_situation_is_answered() -> None:
    assert len(ALL) == 3 * 3 * 2 * 6 * 2 * 2
    assert {decide(at) for at in ALL} == set(Answer)


def test_what_the_trail_proves_does_not_depend_on_what_this_delivery_has_been_through() -> None:
    for at in ALL:
        if at.evidence in {Evidence.SAME, Evidence.OTHER}:
            assert decide(at) is decide(Situation(at.arm, at.position, at.evidenced, at.evidence)), at


def test_saved_is_never_answered_without_proof() -> None:
    for at in ALL:
        if decide(at) is Answer.SAVED:
            assert at.evidence is Evidence.SAME or (at.unknown and at.image_matches), at


def test_a_document_at_the_expected_revision_is_always_written() -> None:
    for at in ALL:
        if at.position is Position.EXPECTED:
            assert decide(at) is Answer.WRITE, at


def test_a_newer_document_is_written_only_where_a_repeat_would_have_left_evidence() -> None:
    for at in ALL:
        if at.position is not Position.EXPECTED and decide(at) is Answer.WRITE:
            assert at.position is Position.NEWER, at
            assert at.arm in LEAVING_EVIDENCE, at
            assert at.evidenced, at
            assert at.evidence is Evidence.NONE, at


def test_a_source_only_save_never_rebases() -> None:
    for at in ALL:
        if at.arm is Arm.SOURCE_ONLY and at.position is not Position.EXPECTED:
            assert decide(at) is not Answer.WRITE, at


def test_after_an_unknown_result_no_definite_no_is_given_that_nobody_can_know() -> None:
    """A no needs evidence: another digest or a later operation on record, read where every commit leaves evidence."""
    for at in ALL:
        if at.unknown and decide(at) in DEFINITE_NOES:
            by_another = at.evidence is Evidence.OTHER
            superseded = at.evidence is Evidence.SUPERSEDED and at.evidenced and at.arm in LEAVING_EVIDENCE
            assert by_another or superseded, at


def test_what_is_hidden_or_reclaimed_and_restored_documents_are_never_read_as_a_no_or_a_yes() -> None:
    for at in ALL:
        silent = at.evidence not in {Evidence.SAME, Evidence.OTHER} and not (at.unknown and at.image_matches)
        if silent and (
            at.position is Position.OLDER
            or (at.evidence in {Evidence.RETIRED, Evidence.HIDDEN} and at.position is Position.NEWER)
        ):
            assert decide(at) is Answer.UNRESOLVED, at


def test_the_same_operation_with_another_digest_fails_closed_wherever_it_is_found() -> None:
    for at in ALL:
        if at.evidence is Evidence.OTHER and at.position is not Position.EXPECTED:
            assert decide(at) is Answer.DIGEST_MISMATCH, at


@pytest.mark.parametrize(
    ("story", "at", "answer"),
    [
        (
            "a first delivery",
            Situation(Arm.TRANSACTIONAL, Position.EXPECTED, True, Evidence.NONE),
            Answer.WRITE,
        ),
        (
            "somebody else saved first, and the gate was open all along",
            Situation(Arm.TRANSACTIONAL, Position.NEWER, True, Evidence.NONE),
            Answer.WRITE,
        ),
        (
            "somebody else saved first, without statistics",
            Situation(Arm.SOURCE_ONLY, Position.NEWER, False, Evidence.NONE),
            Answer.VERSION_STALE,
        ),
        (
            "a redelivery",
            Situation(Arm.TRANSACTIONAL, Position.NEWER, True, Evidence.SAME),
            Answer.SAVED,
        ),
        (
            "a redelivery of what another opening saw saved",
            Situation(Arm.TRANSACTIONAL, Position.NEWER, False, Evidence.SAME),
            Answer.SAVED,
        ),
        (
            "a redelivery with another decision",
            Situation(Arm.TRANSACTIONAL, Position.NEWER, True, Evidence.OTHER),
            Answer.DIGEST_MISMATCH,
        ),
        (
            "a first delivery that comes after its author's correction",
            Situation(Arm.TRANSACTIONAL, Position.NEWER, True, Evidence.SUPERSEDED),
            Answer.VERSION_STALE,
        ),
        (
            "a delivery across an opening of the gate",
            Situation(Arm.TRANSACTIONAL, Position.NEWER, False, Evidence.NONE),
            Answer.VERSION_STALE,
        ),
        (
            "a redelivery whose receipt may have been reclaimed",
            Situation(Arm.TRANSACTIONAL, Position.NEWER, True, Evidence.RETIRED),
            Answer.UNRESOLVED,
        ),
        (
            "a redelivery of what may have overflowed without a name",
            Situation(Arm.FOLD, Position.NEWER, True, Evidence.HIDDEN),
            Answer.UNRESOLVED,
        ),
        (
            "somebody else saved first, and both leave entries",
            Situation(Arm.FOLD, Position.NEWER, True, Evidence.NONE),
            Answer.WRITE,
        ),
        (
            "a save that would leave no entry, under somebody else's",
            Situation(Arm.FOLD, Position.NEWER, False, Evidence.NONE),
            Answer.VERSION_STALE,
        ),
        (
            "an entry whose reply was lost, found pending",
            Situation(Arm.FOLD, Position.NEWER, True, Evidence.SAME, unknown=True),
            Answer.SAVED,
        ),
        (
            "a source-only write whose reply was lost, and that is what is stored",
            Situation(Arm.SOURCE_ONLY, Position.NEWER, False, Evidence.NONE, unknown=True, image_matches=True),
            Answer.SAVED,
        ),
        (
            "a source-only write whose reply was lost, under somebody else's",
            Situation(Arm.SOURCE_ONLY, Position.NEWER, False, Evidence.NONE, unknown=True),
            Answer.UNRESOLVED,
        ),
        (
            "a transaction whose commit was lost, under somebody else's save",
            Situation(Arm.TRANSACTIONAL, Position.NEWER, True, Evidence.NONE, unknown=True),
            Answer.WRITE,
        ),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) and " " in value else "",
)
def test_examples(story: str, at: Situation, answer: Answer) -> None:
    assert decide(at) is answer, story
