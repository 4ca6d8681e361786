"""A review in two stages: two projects, one id space, and contradictions between the sheets that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from statlib.kernel.refusals import Refusal
from statlib.review.loading.review import LoadReason, replayed
from statlib.review.loading.two_stage import TwoStageReview
from tests.oracles import two_stage_pandas as oracle
from tests.oracles.real_data import real_review
from tests.unit.review.loading.conftest import FULL_TEXT_HEADER, SHEET_HEADER, WriteExport, told

FIRST_ROWS = ("1,One,1,1,", "2,Two,2,2,", "3,Three,1,2,1")


@pytest.fixture
def write_stages(write_csv: WriteExport) -> WriteExport:
    """write_stages(*full-text rows) → folder"""

    def write(*rows: str) -> Path:
        write_csv("abstracts.csv", SHEET_HEADER, *FIRST_ROWS)
        return write_csv("full_texts.csv", FULL_TEXT_HEADER, *rows)

    return write


def test_each_stage_is_a_project_of_its_own(write_stages: WriteExport) -> None:
    folder = write_stages("One,1,1,1,1", "Three,3,2,1,2")
    first, second = TwoStageReview(name="mine").load_all(folder)
    assert [first.project.name, second.project.name] == ["mine, title and abstract", "mine, full text"]
    assert first.project.id != second.project.id
    assert len(told(first)) == 7
    assert told(second) == [
        ("1", "R2", "Include"),
        ("1", "R1", "Include"),
        ("3", "R2", "Exclude"),
        ("3", "R1", "Include"),
        ("3", "Arbiter (final decision)", "Exclude"),
    ]
    assert "Who made that third decision" in second.project.provenance.simulated
    assert (first.remarks, second.remarks, first.unread, second.unread) == ((), (), (), ())


def test_one_stage_is_read_by_its_name_and_the_first_without_one(write_stages: WriteExport) -> None:
    folder = write_stages("One,1,1,1,1")
    assert TwoStageReview().load(folder).project.name == "my_export, title and abstract"
    assert TwoStageReview(stage="full text").load(folder).project.name == "my_export, full text"
    with pytest.raises(Refusal, match="title and abstract and full text") as raised:
        TwoStageReview(stage="third").load(folder)
    assert raised.value.reason is LoadReason.ReviewNotNamed


def test_what_the_sheets_say_against_one_another_is_remarked_on(write_stages: WriteExport) -> None:
    folder = write_stages("One,1,1,1,1", "Two,2,1,1,1", "Elsewhere,NA,2,2,2", "Nowhere,9,1,1,1", "Odd,,1,1,2")
    first, second = TwoStageReview().load_all(folder)
    assert [str(remark) for remark in first.remarks] == [
        "abstracts.csv, row 4: ID 3 was included, and is not in full_texts.csv"
    ]
    assert [str(remark) for remark in second.remarks] == [
        "full_texts.csv, row 3: ID 2 was excluded in abstracts.csv",
        "full_texts.csv, row 4: has no ID: it is known by its row",
        "full_texts.csv, row 5: ID 9 was never in abstracts.csv",
        "full_texts.csv, row 6: final_decision is Exclude, while both reviewers decided Include",
        "full_texts.csv, row 6: has no ID: it is known by its row",
    ]
    assert {record for record, _, _ in told(second)} == {"1", "2", "row 4", "9", "row 6"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("Again,1,1,1,1", "ID 1 occurs already in row 2"),
        ("Two,2,7,1,1", "R2_full_text_response '7' is not a decision"),
        ("Two,2,1,1,maybe not", "final_decision 'maybe not' is not a decision"),
        ("Two,2", "has 2 columns where the header has 5"),
    ],
)
def test_a_full_text_row_that_cannot_be_read_is_reported(write_stages: WriteExport, row: str, reason: str) -> None:
    second = TwoStageReview(stage="full text").load(write_stages("One,1,1,1,1", row, "Three,3,1,1,1"))
    [problem] = second.problems
    assert str(problem).startswith(f"full_texts.csv, row 3: {reason}")
    assert {record for record, _, _ in told(second)} == {"1", "3"}


def test_a_real_two_stage_review_loads_as_pandas_reads_it() -> None:
    folder = real_review("dimitrov_snhl")
    first, second = TwoStageReview().load_all(folder)
    assert first.problems == second.problems == ()
    assert {(record, who): decision == "Include" for record, who, decision in told(first)} == oracle.first_stage(folder)
    assert (len(first.studies), len(first.events)) == (1_498, 3_002)
    sheet = oracle.second_stage(folder)
    assert (
        (len(second.studies), len(second.events)) == (len(sheet), 2 * len(sheet) + sheet["settled"].sum()) == (18, 37)
    )
    after = replayed(second.events)
    for study, line in zip(second.studies, sheet.itertuples(), strict=True):
        votes = [screening.included for screening in after[study.id]]
        assert votes == [line.R2, line.R1, *([line.included] if line.settled else [])]
    lost = oracle.lost_between(folder)
    assert lost == {"43"}
    assert [remark.reason for remark in first.remarks] == [
        f"ID {record} was included, and is not in full_text_screening.csv" for record in lost
    ]
    assert [remark.row for remark in second.remarks] == [17, 18, 19]
