"""Which format a folder holds is told by header lines; doubt is a refusal that says what was looked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from statlib.kernel.refusals import Refusal
from statlib.review.loading.detection import detect, loaders
from statlib.review.loading.review import Loader, LoadReason
from tests.oracles.real_data import real_review
from tests.unit.review.loading.conftest import ANSWERS_HEADER, FULL_TEXT_HEADER, LOG_HEADER, SHEET_HEADER, WriteExport

FORMATS = {
    "Rayyan log": {"log.csv": LOG_HEADER, "articles.csv": "article_id"},
    "SyRF screening export": {"screening.csv": "StudyId,Title,ScreeningDecisions"},
    "two-reviewer spreadsheet": {"sheet.csv": SHEET_HEADER},
    "two-stage review": {"first.csv": SHEET_HEADER, "second.csv": FULL_TEXT_HEADER},
    "annotation export": {"answers.csv": ANSWERS_HEADER, "records.csv": "article_id,title"},
    "ASReview or SYNERGY labels": {"labels.csv": "title,asreview_label"},
}


@pytest.fixture
def folder_of(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """folder_of({file name: header line}) → folder"""

    def write(files: Mapping[str, str]) -> Path:
        for name, header in files.items():
            (tmp_path / name).write_text(header + "\n", encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize("expected", FORMATS)
def test_each_format_is_detected_by_its_headers(folder_of: Callable[[Mapping[str, str]], Path], expected: str) -> None:
    assert detect(folder_of(FORMATS[expected])).format == expected


def test_every_format_there_is_has_a_case_above() -> None:
    assert {loader.format for loader in loaders()} == set(FORMATS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rayyan_accident_prone", "Rayyan log"),
        ("dimitrov_snhl", "two-stage review"),
        ("syrf_ndc_reporting_quality", "SyRF screening export"),
        ("syrf_screening_export_format", "SyRF screening export"),
        ("hardwicke2023_transparency", "annotation export"),
        ("synergy", "ASReview or SYNERGY labels"),
    ],
)
def test_real_exports_are_detected(name: str, expected: str) -> None:
    assert detect(real_review(name)).format == expected


@pytest.mark.parametrize("loader", loaders(), ids=lambda loader: loader.format)
def test_a_loader_refuses_a_wrong_file_and_says_what_it_expected(tmp_path: Path, loader: Loader) -> None:
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    assert not loader.recognises(tmp_path)
    for read in (loader.load, loader.load_all):
        with pytest.raises(Refusal) as raised:
            read(tmp_path)
        assert raised.value.reason is LoadReason.FormatUnknown
        assert "expected" in raised.value.detail


def test_a_given_name_becomes_the_projects(write_sheet: WriteExport) -> None:
    folder = write_sheet()
    assert detect(folder).load(folder).project.name == "my_sheet"
    assert detect(folder, name="Hearing loss").load(folder).project.name == "Hearing loss"


def test_a_review_is_picked_only_where_there_may_be_several(write_sheet: WriteExport) -> None:
    with pytest.raises(Refusal, match="is one review, not 'full text'") as raised:
        detect(write_sheet(), review="full text")
    assert raised.value.reason is LoadReason.ReviewNotNamed


def test_an_unknown_folder_is_refused_with_what_was_found_and_looked_for(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    (tmp_path / "void.csv").touch()
    with pytest.raises(Refusal) as raised:
        detect(tmp_path)
    assert raised.value.reason is LoadReason.FormatUnknown
    looked_for = [f"{loader.format}: {loader.expects}" for loader in loaders()]
    for part in ("odd.csv with columns a, b", "void.csv with no header line", *looked_for):
        assert part in raised.value.detail


def test_a_log_that_lacks_a_column_is_unknown(write_rayyan: WriteExport) -> None:
    with pytest.raises(Refusal) as raised:
        detect(write_rayyan(header="created_at,reviewer,article_id,kind,key,value"))
    assert raised.value.reason is LoadReason.FormatUnknown


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no CSV file"):
        detect(tmp_path)


def test_a_folder_of_two_formats_is_refused(write_rayyan: WriteExport) -> None:
    folder = write_rayyan()
    (folder / "sheet.csv").write_text("ID,R1_decision,R2_decision\n")
    with pytest.raises(Refusal, match="Rayyan log and two-reviewer spreadsheet") as raised:
        detect(folder)
    assert raised.value.reason is LoadReason.FormatAmbiguous


def test_a_folder_with_many_files_names_some_and_counts_the_rest(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"{number}.csv").write_text(",".join(f"c{column}" for column in range(20)) + "\n")
    with pytest.raises(Refusal, match=r"and 2 more") as raised:
        detect(tmp_path)
    assert "c7, …" in raised.value.detail
    assert "c8" not in raised.value.detail
