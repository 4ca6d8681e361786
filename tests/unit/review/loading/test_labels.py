"""Labels without reviewers: records by row, decisions made up by a seeded error model, which the provenance says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from statlib.kernel.refusals import Refusal
from statlib.review.documents import AgreementThreshold
from statlib.review.loading.error_model import ARBITER, simulated
from statlib.review.loading.labels import Labels
from statlib.review.loading.review import LoadedReview, LoadReason, replayed
from statlib.review.screening import screening_class, tally
from tests.oracles import labels_pandas as oracle
from tests.oracles.real_data import real_review
from tests.unit.review.loading.conftest import WriteExport, told

HEADER = "review,row,openalex_id,doi,label_included"
ROWS = ("A,1,W1,10.1/x,1", "A,2,W1,,0", "B,1,,,0", "A,3,,,1", "B,2,,,")


def keys(review: LoadedReview) -> dict[str, Any]:
    """{row: what is stored as its label}"""
    stored = [study.to_bson() for study in review.studies]
    return {study["SourceKey"]: study.get("SourceLabel") for study in stored}


def test_every_review_of_the_file_is_a_project_with_records_known_by_row(write_csv: WriteExport) -> None:
    first, second = Labels().load_all(write_csv("labels.csv", HEADER, *ROWS))
    assert [first.project.name, second.project.name] == ["my_export, A", "my_export, B"]
    assert keys(first) == {"1": True, "2": False, "3": True}
    assert keys(second) == {"1": False, "2": None}
    assert {record for record, _, _ in told(second)} == {"1"}, "nobody decides what has no label"


def test_a_file_of_one_review_needs_neither_column(write_csv: WriteExport) -> None:
    folder = write_csv("export.csv", "title,asreview_label", "One,1", "Two,0", "Three,-1", "Four,1.0")
    review = Labels().load(folder)
    assert review.project.name == "my_export"
    assert keys(review) == {"2": True, "3": False, "4": None, "5": True}
    assert [study.title for study in review.studies] == ["One", "Two", "Three", "Four"]


def test_one_of_several_reviews_is_read_by_name_and_never_by_chance(write_csv: WriteExport) -> None:
    folder = write_csv("labels.csv", HEADER, *ROWS)
    assert Labels(review="B").load(folder).project.name == "my_export, B"
    assert Labels(review="B", name="mine").load(folder).project.name == "mine"
    assert [review.project.name for review in Labels(review="B").load_all(folder)] == ["my_export, B"]
    for loader in (Labels(), Labels(review="C")):
        with pytest.raises(Refusal, match="holds 2 reviews: A, B") as raised:
            loader.load(folder)
        assert raised.value.reason is LoadReason.ReviewNotNamed


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("A,9,,,maybe", "label_included 'maybe' is not a label"),
        ("A,1,,,1", "row 1 occurs already in row 2"),
        ("A,,,,1", "row is empty"),
        (",9,,,1", "review is empty"),
        ("A,9", "has 2 columns where the header has 5"),
    ],
)
def test_a_row_that_cannot_be_read_is_reported_once(write_csv: WriteExport, row: str, reason: str) -> None:
    reviews = Labels().load_all(write_csv("labels.csv", HEADER, ROWS[0], row, *ROWS[1:]))
    [problem] = [problem for review in reviews for problem in review.problems]
    assert str(problem).startswith(f"labels.csv, row 3: {reason}")
    assert [len(review.studies) for review in reviews] == [3, 2]


def test_what_is_made_up_is_named_with_its_seed_and_follows_from_it(write_csv: WriteExport) -> None:
    folder = write_csv("labels.csv", HEADER, *(f"A,{n},,,{int(n % 7 == 0)}" for n in range(1, 400)))
    review, again, other = (Labels(seed=seed).load(folder) for seed in (5, 5, 6))
    assert review == again
    assert told(review) != told(other)
    provenance = review.project.provenance
    assert provenance.seed == 5
    assert "Reviewers and all their decisions" in provenance.simulated
    assert "made up from seed 5" in provenance.simulated
    assert provenance.recorded == "Records, each known by its row, and their final labels (label_included)."


def test_two_reviewers_decide_all_and_an_arbiter_what_they_differ_in_as_labelled() -> None:
    labels = [n % 5 == 0 for n in range(2_000)]
    model = simulated(labels, 11, "x")
    votes: dict[int, list[tuple[str, bool]]] = {}
    for made in model.decisions:
        votes.setdefault(made.record, []).append((made.reviewer, made.included))
    first, second = (reviewer.name for reviewer in model.reviewers)
    counted = Counter(tuple(who for who, _ in of) for of in votes.values())
    assert counted == {(first, second): 2_000 - model.disagreements, (first, second, ARBITER): model.disagreements}
    assert all(of[2][1] is labels[record] for record, of in votes.items() if len(of) == 3)
    wrong = sum(of[0][1] == of[1][1] != labels[record] for record, of in votes.items())
    assert wrong == model.ended_otherwise
    assert 0 < wrong < model.disagreements
    assert f"({model.disagreements:,} records)" in model.described


def test_the_errors_are_as_frequent_as_the_model_says() -> None:
    labels = [n % 2 == 0 for n in range(40_000)]
    model = simulated(labels, 3, "x")
    for reviewer in model.reviewers:
        own = [made for made in model.decisions if made.reviewer == reviewer.name]
        missed = sum(not made.included for made in own if labels[made.record])
        taken_in = sum(made.included for made in own if not labels[made.record])
        assert missed == pytest.approx(20 * reviewer.misses, rel=0.2)
        assert taken_in == pytest.approx(20 * reviewer.false_alarms, rel=0.2)


def test_real_labels_load_as_pandas_reads_them() -> None:
    folder = real_review("synergy")
    expected = oracle.labels(folder)
    assert oracle.identifiable(folder) == (2_673, 6_889), "blank and repeated: the row is the key"
    reviews = Labels().load_all(folder)
    assert [review.project.name for review in reviews] == [f"synergy, {name}" for name in expected]
    assert sum(len(review.studies) for review in reviews) == 41_799
    for review, labels in zip(reviews, expected.values(), strict=True):
        assert review.problems == ()
        assert keys(review) == labels
        stored = {study.id: study.to_bson() for study in review.studies}
        ended = {
            stored[study]["SourceKey"]: screening_class(*tally(screenings), AgreementThreshold()).value == "Included"
            for study, screenings in replayed(review.events).items()
        }
        differing = sum(ended[row] != label for row, label in labels.items())
        assert f"where both err ({differing:,})" in review.project.provenance.simulated
