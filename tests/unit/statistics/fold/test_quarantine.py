"""What is recorded of what was set aside, towards the caps and at them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from statlib.statistics.documents import FoldMode, ProjectControl
from statlib.statistics.fold.dispositions import SetAside
from statlib.statistics.fold.quarantine import Caps, Intake, take_in
from statlib.statistics.pending import Poison
from tests.pending_books import NOW

PROJECT, BOOK = UUID(int=9), UUID(int=1)
CAPS = Caps(copies=3, soft=6, hard=10)


def control(mode: FoldMode = FoldMode.ENABLED, **changed: Any) -> ProjectControl:
    return ProjectControl(id=PROJECT, fold_mode=mode, **changed)


def some(count: int) -> list[SetAside]:
    return [SetAside(BOOK, Poison.OVERFLOWED, ("n", str(n)), f"d{n}", entry={"Number": n}) for n in range(count)]


def intake(count: int, held: int, mode: FoldMode = FoldMode.ENABLED) -> Intake:
    return take_in(some(count), held, control(mode), NOW, CAPS)


@pytest.mark.req("POISON-08")
def test_a_record_names_the_operation_its_document_the_reason_and_the_digest() -> None:
    (record,) = intake(1, held=0).records
    assert record.to_bson() == {
        "ProjectId": PROJECT,
        "StudyId": BOOK,
        "OperationNamespace": "n",
        "OperationId": "0",
        "Reason": "Overflowed",
        "SubmissionDigest": "d0",
        "FromRevision": None,
        "ToRevision": None,
        "Entry": {"Number": 0},
        "QuarantinedAtUtc": NOW,
    }


@pytest.mark.req("POISON-10")
def test_only_a_projects_first_records_keep_the_entry_itself() -> None:
    assert [record.entry is not None for record in intake(3, held=1).records] == [True, True, False]


@pytest.mark.parametrize("entry", ["no document", 3], ids=str)
def test_an_entry_that_is_no_document_is_kept_as_a_value(entry: object) -> None:
    aside = [SetAside(BOOK, Poison.UNDESERIALIZABLE, entry=entry)]
    (record,) = take_in(aside, 0, control(), NOW, CAPS).records
    assert record.entry == {"Value": entry}


@pytest.mark.req("POISON-14")
@pytest.mark.parametrize(
    ("count", "held", "mode", "disables"),
    [
        (1, 4, FoldMode.ENABLED, False),
        (1, 5, FoldMode.ENABLED, True),
        (2, 4, FoldMode.ENABLED, True),
        (1, 9, FoldMode.ENABLED, True),  # enabled again meanwhile
        (1, 5, FoldMode.DISABLING, False),
        (1, 5, FoldMode.DISABLED, False),
        (0, 9, FoldMode.ENABLED, False),
    ],
)
def test_fold_mode_disables_itself_with_the_record_that_reaches_the_soft_cap(
    count: int, held: int, mode: FoldMode, *, disables: bool
) -> None:
    taken = intake(count, held, mode)
    assert taken.disables is disables
    fields = taken.control_fields(control(mode), NOW)
    assert fields == ({"FoldMode": "Disabling", "FoldDisablingSinceUtc": NOW} if disables else {})


@pytest.mark.req("POISON-15")
@pytest.mark.parametrize(("count", "held", "recorded"), [(2, 8, 2), (3, 8, 2), (2, 10, 0), (1, 11, 0)])
def test_at_the_hard_cap_nothing_more_is_recorded_and_the_project_says_so(count: int, held: int, recorded: int) -> None:
    taken = intake(count, held, FoldMode.DISABLING)
    assert len(taken.records) == recorded
    assert taken.incomplete is (recorded < count)
    marked = {"FoldQuarantineIncompleteSinceUtc": NOW} if recorded < count else {}
    assert taken.control_fields(control(FoldMode.DISABLING), NOW) == marked


def test_the_first_time_is_the_one_that_stands() -> None:
    already = control(FoldMode.DISABLING, fold_quarantine_incomplete_since_utc=NOW)
    assert intake(1, 10, FoldMode.DISABLING).control_fields(already, NOW) == {}
