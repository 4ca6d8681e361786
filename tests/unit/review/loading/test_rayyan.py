"""The Rayyan log: decisions in recorded order at recorded times, and every malformed row by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from statlib.kernel.refusals import Refusal
from statlib.review.loading.rayyan import RayyanLog
from statlib.review.loading.review import LoadedReview, LoadReason, event_counts, replayed
from statlib.review.screening import Decision
from tests.oracles.project_screening import project_screening
from tests.oracles.rayyan_pandas import final_states, project_screening_of_final_states
from tests.oracles.real_data import real_review
from tests.unit.review.loading.conftest import ARTICLES, LOG_HEADER, WriteExport

T1 = "2021-05-12T11:08:41.919Z"


def standing(review: LoadedReview) -> dict[tuple[str, str], bool | None]:
    """{(article, reviewer): what stands after a replay}, None where the reviewer's decisions left nothing."""
    keys = {study.id: str(study.to_bson()["SourceKey"]) for study in review.studies}
    names = {member.investigator_id: member.name for member in review.project.memberships}
    after = replayed(review.events)
    pairs: dict[tuple[str, str], bool | None] = {
        (keys[event.study_id], names[event.investigator_id]): None for event in review.events
    }
    for study, screenings in after.items():
        pairs |= {(keys[study], names[s.investigator_id]): s.included for s in screenings}
    return pairs


def test_decisions_are_loaded_and_other_kinds_counted(write_rayyan: WriteExport) -> None:
    review = RayyanLog().load(
        write_rayyan(
            f"1,{T1},ann,10,exclusion_reason,Duplicate,1",
            f"2,{T1},ann,10,decision,,-1",
            f"3,{T1},bob,10,decision,,1",
            f"4,{T1},bob,10,label,later,edited",
            f"5,{T1},ann,10,decision,,0",
            f"6,{T1},bob,10,decision,,deleted",
        )
    )
    assert [(event.seq, event.decision) for event in review.events] == [
        (2, Decision.EXCLUDE),
        (3, Decision.INCLUDE),
        (5, Decision.RETRACT),
        (6, Decision.RETRACT),
    ]
    assert review.ignored == 2
    assert review.problems == ()
    assert [member.name for member in review.project.memberships] == ["ann", "bob"]
    assert [(study.title, study.to_bson()["Year"]) for study in review.studies] == [
        ("First", "2001"),
        ("Second", "2002"),
    ]
    assert review.project.provenance.simulated == ""


def test_order_is_that_of_seq_and_times_are_the_recorded_ones(write_rayyan: WriteExport) -> None:
    review = RayyanLog().load(
        write_rayyan(
            "9,2021-01-01T01:30:00.1239+01:00,ann,10,decision,,1",
            "2,2021-01-01 00:00:01 UTC,ann,10,decision,,-1",
            "3,2021-01-01T00:00:02,ann,11,decision,,-1",
        )
    )
    start = datetime(2021, 1, 1, tzinfo=UTC)
    assert [(event.seq, event.at - start) for event in review.events] == [
        (2, timedelta(seconds=1)),
        (3, timedelta(seconds=2)),
        (9, timedelta(minutes=30, milliseconds=123)),
    ]
    assert review.project.memberships[0].joined_at_utc == start + timedelta(seconds=1)


def test_an_article_that_only_the_log_knows_is_loaded_under_a_placeholder(write_rayyan: WriteExport) -> None:
    review = RayyanLog().load(write_rayyan(f"1,{T1},ann,99,decision,,1"))
    assert [study.title for study in review.studies] == ["First", "Second", "Article 99 (title not exported)"]
    assert review.events[0].study_id == review.studies[2].id


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (f",{T1},ann,10,decision,,1", "seq is empty"),
        (f"x,{T1},ann,10,decision,,1", "seq 'x' is not a whole number"),
        (f"-3,{T1},ann,10,decision,,1", "seq '-3' is not a whole number"),
        (f"²,{T1},ann,10,decision,,1", "seq '²' is not a whole number"),
        (f"1,{T1},ann,10,decision,,1", "seq 1 occurs more than once"),
        ("2,,ann,10,decision,,1", "created_at '' is not an ISO 8601 time"),
        ("2,12/05/2021,ann,10,decision,,1", "created_at '12/05/2021' is not an ISO 8601 time"),
        ("2,0001-01-01T00:00+23:00,ann,10,decision,,1", "created_at '0001-01-01T00:00+23:00' is not an ISO 8601 time"),
        (f"2,{T1},,10,decision,,1", "reviewer is empty"),
        (f"2,{T1},ann,,decision,,1", "article_id is empty"),
        (f"2,{T1},ann,10,,,1", "kind is empty"),
        (f"2,{T1},ann,10,decision,,", "value '' is not a decision (1, -1, 0, deleted)"),
        (f"2,{T1},ann,10,decision,,edited", "value 'edited' is not a decision (1, -1, 0, deleted)"),
        (f"2,{T1},ann,10,decision,1", "has 6 columns where the header has 7"),
    ],
)
def test_a_malformed_log_row_is_reported_and_the_rest_loads(write_rayyan: WriteExport, row: str, reason: str) -> None:
    review = RayyanLog().load(write_rayyan(f"1,{T1},ann,10,decision,,1", row, f"7,{T1},ann,11,decision,,1"))
    assert [str(problem) for problem in review.problems] == [f"log.csv, row 3: {reason}"]
    assert [event.seq for event in review.events] == [1, 7]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (",Third,2003", "article_id is empty"),
        ("10,Third,2003", "article_id 10 occurs already in row 2"),
        ("12,Third", "has 2 columns where the header has 3"),
    ],
)
def test_a_malformed_article_is_reported_and_the_rest_loads(write_rayyan: WriteExport, row: str, reason: str) -> None:
    review = RayyanLog().load(write_rayyan(articles=f"{ARTICLES}{row}\n13,Last,2004\n"))
    assert [str(problem) for problem in review.problems] == [f"articles.csv, row 4: {reason}"]
    assert [study.title for study in review.studies] == ["First", "Second", "Last"]


def test_an_export_without_articles_is_refused(write_rayyan: WriteExport) -> None:
    folder = write_rayyan()
    (folder / "articles.csv").unlink()
    with pytest.raises(Refusal, match="holds no articles file; expected") as raised:
        RayyanLog().load(folder)
    assert raised.value.reason is LoadReason.FormatUnknown


@pytest.mark.parametrize(("content", "what"), [(f"{LOG_HEADER}\n", "log"), (ARTICLES, "articles file")])
def test_a_second_file_of_a_kind_is_refused_by_name(write_rayyan: WriteExport, content: str, what: str) -> None:
    folder = write_rayyan()
    (folder / "another.csv").write_text(content)
    with pytest.raises(Refusal, match=rf"more than one {what}: another\.csv, ") as raised:
        RayyanLog().load(folder)
    assert raised.value.reason is LoadReason.FormatAmbiguous


def test_ids_depend_on_the_projects_name_and_on_nothing_else(write_rayyan: WriteExport) -> None:
    before = RayyanLog().load(write_rayyan(f"1,{T1},ann,10,decision,,1"))
    after = RayyanLog().load(write_rayyan(f"1,{T1},ann,11,decision,,1", f"2,{T1},bob,10,decision,,1"))
    renamed = RayyanLog(name="other").load(write_rayyan())
    assert after.project.id == before.project.id != renamed.project.id
    assert [s.id for s in after.studies] == [s.id for s in before.studies]
    assert after.project.memberships[0].investigator_id == before.project.memberships[0].investigator_id
    assert after.project.provenance != before.project.provenance


@pytest.fixture(scope="module")
def real_log() -> LoadedReview:
    return RayyanLog().load(real_review("rayyan_accident_prone"))


def test_every_row_of_a_real_log_loads(real_log: LoadedReview) -> None:
    assert real_log.problems == ()
    assert len(real_log.studies) == 1_224
    assert len(real_log.events) + real_log.ignored == 5_423


def test_a_real_log_replays_with_its_known_counts(real_log: LoadedReview) -> None:
    counts = event_counts(real_log.events)
    assert (counts.submitted, counts.unchanged, counts.standing) == (2_825, 187, 2_506)


def test_what_stands_equals_the_platforms_final_state_for_every_pair(real_log: LoadedReview) -> None:
    expected = final_states(real_review("rayyan_accident_prone"))
    assert len(expected) == 2_510
    assert sum(state is None for state in expected.values()) == 4
    assert standing(real_log) == expected


def test_project_screening_equals_an_independent_count(real_log: LoadedReview) -> None:
    after = replayed(real_log.events)
    studies = [study.model_copy(update={"screenings": after.get(study.id, ())}) for study in real_log.studies]
    threshold = real_log.project.agreement_threshold.to_bson()
    counted = project_screening((study.to_bson() for study in studies), threshold)
    assert counted == project_screening_of_final_states(real_review("rayyan_accident_prone"))
