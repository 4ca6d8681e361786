"""A two-reviewer spreadsheet: one study per row, up to three decisions, made-up times that are owned up to."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pandas as pd
import pytest

from statlib.kernel.refusals import Refusal
from statlib.review.documents import AgreementThreshold
from statlib.review.loading.recording import STARTED_AT
from statlib.review.loading.review import LoadReason, event_counts, replayed
from statlib.review.loading.spreadsheet import Spreadsheet, SpreadsheetColumns, detected_columns
from statlib.review.screening import Decision, ScreeningClass, screening_class, tally
from tests.oracles.real_data import real_review
from tests.unit.review.loading.conftest import WriteExport


def test_rows_become_studies_and_cells_decisions_in_row_order(write_sheet: WriteExport) -> None:
    review = Spreadsheet().load(write_sheet("1,One,1,2,2", "2,Two,2,,", "3,,,,", "4,Four,Include,EXCLUDED,maybe"))
    names = {member.investigator_id: member.name for member in review.project.memberships}
    keys = {study.id: study.to_bson()["SourceKey"] for study in review.studies}
    assert [(keys[e.study_id], names[e.investigator_id], e.decision) for e in review.events] == [
        ("1", "R1", Decision.INCLUDE),
        ("1", "R2", Decision.EXCLUDE),
        ("1", "R3", Decision.EXCLUDE),
        ("2", "R1", Decision.EXCLUDE),
        ("4", "R1", Decision.INCLUDE),
        ("4", "R2", Decision.EXCLUDE),
        ("4", "R3", Decision.RETRACT),
    ]
    assert [study.title for study in review.studies] == ["One", "Two", "Record 3 (no title in the spreadsheet)", "Four"]
    assert review.problems == ()


def test_made_up_times_follow_the_rows_and_the_provenance_says_so(write_sheet: WriteExport) -> None:
    review = Spreadsheet().load(write_sheet("1,One,1,2,2", "2,Two,2,1,"))
    assert [event.at - STARTED_AT for event in review.events] == [timedelta(seconds=n) for n in range(1, 6)]
    assert "Order and times" in review.project.provenance.simulated
    assert "2000-01-01 00:00 UTC" in review.project.provenance.simulated


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (",Two,1,1,", "ID is empty"),
        ("1,Two,1,1,", "ID 1 occurs already in row 2"),
        ("2,Two,3,1,", "R1_decision '3' is not a decision"),
        ("2,Two,1,0,", "R2_decision '0' is not a decision"),
        ("2,Two,1,2,Exluded", "R3_arbitration 'Exluded' is not a decision"),
        ("2,Two,1", "has 3 columns where the header has 5"),
    ],
)
def test_a_malformed_row_is_reported_whole_and_the_rest_loads(write_sheet: WriteExport, row: str, reason: str) -> None:
    review = Spreadsheet().load(write_sheet("1,One,1,1,", row, "9,Nine,2,2,"))
    [problem] = review.problems
    assert str(problem).startswith(f"screening.csv, row 3: {reason}")
    assert [study.title for study in review.studies] == ["One", "Nine"]
    assert [event.seq for event in review.events] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("ID,R1_decision,R2_decision", SpreadsheetColumns("ID", ("R1_decision", "R2_decision"))),
        (
            "record_id,Title,Reviewer 1 decision,reviewer 2 Decision,Arbiter,Database",
            SpreadsheetColumns(
                "record_id", ("Reviewer 1 decision", "reviewer 2 Decision"), "Arbiter", "Title", "Database"
            ),
        ),
        ("ID,R1_decision,R2_decision,decision", SpreadsheetColumns("ID", ("R1_decision", "R2_decision"))),
        ("ID,R1_decision", None),
        ("ID,R1_decision,R2_decision,R3_decision", None),
        ("ID,R1_decision,R2_decision,arbitration,R3_arbitration", None),
        ("title,R1_decision,R2_decision", None),
        ("article_id,reviewer1,reviewer2", None),
    ],
)
def test_columns_are_found_by_their_usual_names(header: str, expected: SpreadsheetColumns | None) -> None:
    assert detected_columns(header.split(",")) == expected


def test_columns_and_meanings_can_be_given(write_sheet: WriteExport) -> None:
    folder = write_sheet("a,1,0", "b,0,0", header="key,Ann,Ben")
    loader = Spreadsheet(
        name="named",
        columns=SpreadsheetColumns(record="key", reviewers=("Ann", "Ben")),
        meanings={"1": Decision.INCLUDE, "0": Decision.EXCLUDE},
    )
    assert loader.recognises(folder)
    review = loader.load(folder)
    assert review.project.name == "named"
    assert [member.name for member in review.project.memberships] == ["Ann", "Ben"]
    assert [event.decision for event in review.events] == [Decision.INCLUDE, *[Decision.EXCLUDE] * 3]


def test_a_given_column_that_is_missing_is_refused(write_sheet: WriteExport) -> None:
    loader = Spreadsheet(columns=SpreadsheetColumns(record="key", reviewers=("Ann", "Ben")))
    with pytest.raises(Refusal, match="expected one file with columns key, Ann, Ben") as raised:
        loader.load(write_sheet())
    assert raised.value.reason is LoadReason.FormatUnknown


def test_two_spreadsheets_in_a_folder_are_refused_by_name(write_sheet: WriteExport) -> None:
    folder = write_sheet()
    (folder / "copy.csv").write_text("ID,R1_decision,R2_decision\n")
    with pytest.raises(Refusal, match=r"copy\.csv, screening\.csv") as raised:
        Spreadsheet().load(folder)
    assert raised.value.reason is LoadReason.FormatAmbiguous


def test_a_real_spreadsheet_with_names_and_meanings_of_its_own_loads_once_told() -> None:
    folder = real_review("syrf_ndc_reporting_quality")
    columns = SpreadsheetColumns("PROSPERO_ID", ("Screener_1", "Screener_2"), "Reconciliation")
    review = Spreadsheet(columns=columns, meanings={"1": Decision.INCLUDE, "0": Decision.EXCLUDE}).load(folder)
    sheet = pd.read_csv(folder / "prospero_data.csv", dtype=str, keep_default_na=False)
    cells = sheet[["Screener_1", "Screener_2", "Reconciliation"]].to_numpy()
    assert (len(review.studies), len(review.events)) == (len(sheet), int((cells != "").sum())) == (82, 171)
    tallies = Counter(tally(screenings) for screenings in replayed(review.events).values())
    classes = Counter(screening_class(n, i, AgreementThreshold()).value.lower() for n, i in tallies.elements())
    # The platform's own word for what each record ended as.
    assert classes == Counter(f"{decision}d" for decision in sheet["Final_Decision"])


def test_a_real_spreadsheet_loads_whole_with_its_conflicts_settled() -> None:
    review = Spreadsheet().load(real_review("dimitrov_snhl"))
    assert review.problems == ()
    assert (len(review.studies), len(review.events)) == (1_498, 3_002)
    assert event_counts(review.events).unchanged == 0
    after = replayed(review.events)
    tallies = Counter(tally(screenings) for screenings in after.values())
    assert tallies == {(2, 2): 14, (2, 0): 1_478, (3, 2): 2, (3, 1): 4}
    classes = Counter(screening_class(n, i, AgreementThreshold()) for n, i in tallies.elements())
    assert classes == {ScreeningClass.INCLUDED: 16, ScreeningClass.EXCLUDED: 1_482}
    assert Counter(search.name for search in review.project.searches).total() == 7
