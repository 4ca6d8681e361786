"""The SyRF screening export: lists in cells, reviewers by id or by position, verdicts that are only held against it."""

from __future__ import annotations

import pytest

from statlib.review.documents import AgreementThreshold
from statlib.review.loading.recording import STARTED_AT
from statlib.review.loading.review import LoadedReview, replayed
from statlib.review.loading.syrf import SyrfScreening
from statlib.review.screening import screening_class, tally
from tests.oracles import syrf_pandas as oracle
from tests.oracles.real_data import real_review
from tests.unit.review.loading.conftest import WriteExport, told

SHORT = "StudyId,Title,Year,InvestigatorDecisions,ScreeningDecision"
WIDE = (
    "StudyId,Title,SystematicSearchName,InvestigatorIds,InvestigatorNames,DateTimeOfScreenings,ScreeningDecisions,"
    "ScreeningStatus"
)


def load(write_csv: WriteExport, *rows: str, header: str = SHORT) -> LoadedReview:
    return SyrfScreening().load(write_csv("export.csv", header, *rows))


def test_without_ids_reviewers_are_told_apart_by_position_and_the_provenance_says_so(write_csv: WriteExport) -> None:
    review = load(write_csv, "a,One,2001,Excluded;Included;Included,Included", "b,Two,2002,Excluded;Excluded,Excluded")
    assert told(review) == [
        ("a", "Reviewer 1 (by position)", "Exclude"),
        ("a", "Reviewer 2 (by position)", "Include"),
        ("a", "Reviewer 3 (by position)", "Include"),
        ("b", "Reviewer 1 (by position)", "Exclude"),
        ("b", "Reviewer 2 (by position)", "Exclude"),
    ]
    provenance = review.project.provenance
    assert "the n-th decision on every study is taken to be reviewer n's" in provenance.simulated
    assert "times, neither of which is exported" in provenance.simulated
    assert "reviewers" not in provenance.recorded
    assert [(event.at - STARTED_AT).total_seconds() for event in review.events] == [1, 2, 3, 4, 5]
    assert (review.problems, review.remarks) == ((), ())


def test_with_ids_and_times_everything_is_recorded_and_ordered_by_time(write_csv: WriteExport) -> None:
    review = load(
        write_csv,
        "a,,Elicit,id1;id2,Ann;Ben,2025-11-04 09:36:00;2025-11-26 23:10:26,Included;Excluded,In conflict",
        "b,Two,PubMed,id2;id1,Ben;Ann,2025-11-05 10:00:00;2025-11-03 10:00:00,Included;Included,Included",
        header=WIDE,
    )
    assert told(review) == [
        ("b", "Ann", "Include"),
        ("a", "Ann", "Include"),
        ("b", "Ben", "Include"),
        ("a", "Ben", "Exclude"),
    ]
    assert review.events[0].at.isoformat() == "2025-11-03T10:00:00+00:00"
    assert review.project.provenance.simulated == ""
    assert [search.name for search in review.project.searches] == ["Elicit", "PubMed"]
    assert [study.title for study in review.studies] == ["Study a (no title exported)", "Two"]


def test_two_reviewers_of_one_name_stay_two(write_csv: WriteExport) -> None:
    review = load(
        write_csv,
        "a,One,,id1;id2,Ann;Ann,2025-11-04 09:36:00;2025-11-26 23:10:26,Included;Excluded,",
        header=WIDE,
    )
    assert len({event.investigator_id for event in review.events}) == len(review.project.memberships) == 2


def test_only_decisions_without_an_id_are_positional(write_csv: WriteExport) -> None:
    review = load(
        write_csv,
        "a,One,,id1;,Ann;,2025-11-04 09:36:00;2025-11-26 23:10:26,Included;Excluded,",
        "b,Two,,,,2025-11-04 10:36:00,Included,",
        header=WIDE,
    )
    assert told(review) == [
        ("a", "Ann", "Include"),
        ("b", "Reviewer 1 (by position)", "Include"),
        ("a", "Reviewer 2 (by position)", "Exclude"),
    ]
    assert "where no id is exported" in review.project.provenance.simulated


def test_a_study_that_nobody_screened_has_no_decision(write_csv: WriteExport) -> None:
    review = load(write_csv, "a,One,2001,,", "b,Two,2001,Included;Included,Included")
    assert ([study.title for study in review.studies], len(review.events)) == (["One", "Two"], 2)


def test_a_known_misspelling_is_read_and_remarked_on(write_csv: WriteExport) -> None:
    review = load(write_csv, "a,One,2001,Excluded;Exluded,Excluded")
    assert [decision for _, _, decision in told(review)] == ["Exclude", "Exclude"]
    assert [str(remark) for remark in review.remarks] == ["export.csv, row 2: 'Exluded' is read as 'Excluded'"]


def test_a_verdict_that_its_decisions_do_not_bear_out_is_remarked_on(write_csv: WriteExport) -> None:
    review = load(write_csv, "a,One,2001,Excluded;Included,Included", "b,Two,2001,Excluded;Excluded,Excluded")
    [remark] = review.remarks
    assert str(remark) == "export.csv, row 2: is said to be Included, while its decisions amount to Conflict"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (",One,,,,,,", "StudyId is empty"),
        ("a,,,,,,,", "StudyId a occurs already in row 2"),
        ("b,,,id1,Ann,2025-11-04 09:36:00,Perhaps,", "ScreeningDecisions 'Perhaps' is not a decision"),
        ("b,,,id1;id2,Ann,2025-11-04 09:36:00,Included,", "ScreeningDecisions lists 1, InvestigatorIds 2"),
        ("b,,,id1,Ann;Ben,2025-11-04 09:36:00,Included,", "ScreeningDecisions lists 1, InvestigatorNames 2"),
        ("b,,,id1,Ann,,Included,", "ScreeningDecisions lists 1, DateTimeOfScreenings 0"),
        ("b,,,id1,Ann,yesterday,Included,", "DateTimeOfScreenings 'yesterday' is not an ISO 8601 time"),
        ("b,,,id1,Ann", "has 5 columns where the header has 8"),
    ],
)
def test_a_row_that_cannot_be_read_is_reported_and_the_rest_loads(
    write_csv: WriteExport, row: str, reason: str
) -> None:
    good = "{},,,id1,Ann,2025-11-04 09:36:00,Included,"
    review = load(write_csv, good.format("a"), row, good.format("z"), header=WIDE)
    [problem] = review.problems
    assert str(problem).startswith(f"export.csv, row 3: {reason}")
    assert [record for record, _, _ in told(review)] == ["a", "z"]


def test_the_other_files_of_the_folder_are_named(write_csv: WriteExport) -> None:
    write_csv("notes.csv", "a,b")
    assert load(write_csv, "a,One,2001,,").unread == ("notes.csv",)


def test_a_real_export_loads_as_pandas_reads_it() -> None:
    folder = real_review("syrf_ndc_reporting_quality")
    [review] = SyrfScreening().load_all(folder)
    assert (review.problems, len(review.studies)) == ((), 1_325)
    positions = {f"Reviewer {n} (by position)": n for n in (1, 2, 3)}
    found = {(study, positions[who]): decision == "Include" for study, who, decision in told(review)}
    expected = oracle.decisions(folder)
    assert found == expected
    assert sum(position == 3 for _, position in expected) == 12
    keys = {study.id: study.to_bson()["SourceKey"] for study in review.studies}
    classes = {
        keys[study]: screening_class(*tally(screenings), AgreementThreshold()).value
        for study, screenings in replayed(review.events).items()
    }
    assert classes == oracle.verdicts(folder)
    assert [str(remark) for remark in review.remarks] == ["screening.csv, row 1018: 'Exluded' is read as 'Excluded'"]


def test_a_real_wide_export_loads_with_its_reviewers_and_times() -> None:
    [review] = SyrfScreening().load_all(real_review("syrf_screening_export_format"))
    assert (len(review.studies), len(review.events), review.problems) == (4, 10, ())
    assert [member.name for member in review.project.memberships] == ["Reviewer A", "Reviewer B", "Reviewer C"]
    assert review.project.provenance.simulated == ""
