"""The table that holds served counters against those counted from raw files."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from statlib.examples import transparency_export
from statlib.kernel.refusals import Refusal
from statlib.review.documents import Membership, Project
from statlib.review.loading.review import LoadReason
from statlib.runbook.raw_files import DIFFERENCES_SHOWN, Comparison, by_name, counted
from tests.oracles.few_articles import few_articles
from tests.oracles.real_data import real_review
from tests.reviews import JOINED

ANN, GONE = UUID(int=1), UUID(int=2)
RAW = {"Screening": {"project": {"Studies": 12, "Decisions": 7}}, "Members": {"member/Ann": {"Screened": 7}}}


def served(**changed: int) -> dict[str, dict[str, dict[str, int]]]:
    return {
        "Screening": {"project": {"Studies": 12, "Decisions": 7, "Conflicts": 0} | changed},
        "Members": {"member/Ann": {"Screened": 7}, "member/Ben": {}},
    }


def test_counts_that_agree_are_said_to_be_equal_and_zeros_make_no_difference() -> None:
    found = Comparison(served(), RAW, "stored counters")
    assert found.differing == ()
    assert found.text().startswith("Equal: all 3 counters: stored counters")
    assert [line.split() for line in found.text().splitlines()[3:]] == [
        ["Screening", "2", "19", "19", "all"],
        ["Members", "1", "7", "7", "all"],
    ]
    assert 'class="bad"' not in found.html()


def test_every_counter_that_differs_is_named_with_both_values() -> None:
    found = Comparison(served(Decisions=8, Extra=1), RAW, "stored counters")
    assert found.differing == (("Screening", "project", "Decisions", 8, 7), ("Screening", "project", "Extra", 1, 0))
    assert found.text().startswith("Different: 2 of 4")
    assert "1 of 3" in found.text()
    assert found.html().count('<tr role="row" class="bad">') == 1


def test_a_family_or_a_scope_of_one_count_alone_differs() -> None:
    assert Comparison({}, RAW, "").differing[0] == ("Screening", "project", "Decisions", 0, 7)
    alone = {"Members": {"member/Ben": {"Screened": 1}}}
    assert Comparison(alone, {}, "").differing == (("Members", "member/Ben", "Screened", 1, 0),)


def test_of_many_differences_the_first_are_shown_and_the_number_is_said() -> None:
    many = {"Family": {"project": {f"Counter{number:03}": 1 for number in range(DIFFERENCES_SHOWN + 5)}}}
    text = Comparison(many, {"Family": {}}, "").text()
    assert f"the first {DIFFERENCES_SHOWN} of {DIFFERENCES_SHOWN + 5}" in text
    assert text.count("Counter0") == DIFFERENCES_SHOWN


def test_ids_become_names_wherever_they_stand_and_unknown_ones_stay() -> None:
    project = Project(
        id=UUID(int=9),
        name="a review",
        memberships=(Membership(investigator_id=ANN, name="Ann", joined_at_utc=JOINED),),
    )
    values = {"Members": {f"member/{ANN}": {f"{ANN}/{GONE}": 1}}}
    assert by_name(values, project) == {"Members": {"member/Ann": {f"Ann/{GONE}": 1}}}


def test_people_of_one_name_and_of_none_are_told_apart_by_their_ids() -> None:
    people = {UUID(int=n): name for n, name in enumerate(("Ann", "Ann", "", "Ben"), 1)}
    members = tuple(Membership(investigator_id=id_, name=name, joined_at_utc=JOINED) for id_, name in people.items())
    project = Project(id=UUID(int=9), name="a review", memberships=members)
    found = by_name({"Members": {f"member/{id_}": {} for id_ in people}}, project)
    assert set(found["Members"]) == {*(f"member/{id_}" for id_ in list(people)[:3]), "member/Ben"}


def test_no_folder_counts_nothing_and_a_missing_file_is_named(tmp_path: Path) -> None:
    assert counted("") == {}
    with pytest.raises(Refusal, match=r"does not hold .*sessions\.csv") as refused:
        counted(str(tmp_path))
    assert refused.value.reason is LoadReason.ExportUnreadable


def test_a_real_export_is_counted_for_all_nine_families(tmp_path: Path) -> None:
    folder = few_articles(real_review("hardwicke2023_transparency"), tmp_path / "export", 8)
    found = counted(str(folder))
    assert len(found) == 9
    assert found == transparency_export.families(folder)
    assert found["ProjectScreening"]["project"]["Inclusions"] == 16
